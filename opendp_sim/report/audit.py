"""Report an audit.

The verdict, the counterexample, and the checked pairs.
"""

from __future__ import annotations

import ast
import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from opendp_sim.accounting.file_schemas import Plain, Strict, read_strictly
from opendp_sim.core.errors import AuditError, SimError
from opendp_sim.core.system.file_kinds import kind_of_file
from opendp_sim.core.system.regular_files import regular
from opendp_sim.core.system.syntax_trees import tried_again
from opendp_sim.report.facts import Facts
from opendp_sim.report.tiles import Tile

_LONGEST = 2**26
"""Bytes of a file that is read; an audit's counterexamples are small datasets."""


Verdict = Literal["refuted", "priced", "not refuted"]


class _Layer(Strict):
    layer: str
    status: Literal["refuted", "not refuted", "skipped"]
    reason: str
    runs: int
    seconds: float
    evidence: Plain | None
    power: str
    facts: Plain


class _Audit(Strict):
    verdict: Verdict
    subject: str
    claim: str | None = None
    d_in: Any
    asked: str | None
    budget: str
    seed: int
    beta: float
    seconds: float
    cpu_seconds: float
    how: str | None
    witness: Plain | None
    script: str | None
    unread: list[str]
    versions: dict[str, str]
    refuted_by: str | None
    evidence: Plain | None
    priced: Plain | None = None
    warnings: list[str] = Field(default_factory=list)
    lower_bounds: dict[str, float]
    layers: list[_Layer]
    replay: str


class _LeftOut(Strict):
    name: str
    why: str


class Audits(Strict):
    """The file that ``opendp-sim audit TARGET --format json`` prints."""

    verdict: Verdict
    audits: list[_Audit]
    left_out: list[_LeftOut] = Field(default_factory=list)


@dataclass(frozen=True)
class AuditPart:
    """One audited object on the page.

    Attributes:
        found: (word, text) of the claim, and of the counterexample where there is one.
        layers: (what was looked at, its answer, what it would have seen or why it did not run).
        script: the lines of Python that show it again; none where the page's command does.
    """

    subject: str
    verdict: str
    found: tuple[tuple[str, str], ...]
    layers: tuple[tuple[str, str, str], ...]
    script: tuple[str, ...]


def read_audits(path: Path) -> Audits:
    """Read the file of an audit.

    Raises:
        AuditError (OS501): no such file, another format, or a verdict that its own layers contradict.
    """

    def refusal(came: str) -> SimError:
        found = kind_of_file(path)
        then = f"; {found.then}" if found.then and found.name != "audit" else ""
        return AuditError(
            "OS501", str(path), expected="what `opendp-sim audit TARGET --format json` prints",
            got=came if found.name == "audit" else found.said,
            hint=f"write it with `opendp-sim audit TARGET --format json > audit.json`{then}.",
        )  # fmt: skip

    try:
        text = regular(path).read_bytes() if path.stat().st_size <= _LONGEST else b""
    except OSError:
        raise refusal("a file that cannot be read") from None
    found = read_strictly(Audits, text, refusal)
    for audit in found.audits:
        said = audit.verdict == "refuted", audit.verdict == "priced"
        shown = any(layer.status == "refuted" for layer in audit.layers)
        if (shown, audit.priced is not None) != said or (audit.evidence is not None) != said[0]:
            raise refusal("another value at verdict")
        if not audit.layers:
            raise refusal("another value at verdict")
    if not found.audits or found.verdict != _worst(found):
        raise refusal("another value at verdict")
    return found


def audit_facts(path: Path) -> Facts:
    """Gather the facts of an audit's file; nothing is run again."""
    found = read_audits(path)
    said = [audit.verdict for audit in found.audits]
    refuted, priced = said.count("refuted"), said.count("priced")
    first = next(audit for audit in found.audits if audit.verdict == _worst(found))
    name = first.subject.partition(" (")[0].partition("#")[0]
    out = Facts(
        "Audit: an attempt to refute a privacy claim",
        name,
        _SENTENCES[found.verdict],
        "record",
        _again(first, name, sum(audit.beta for audit in found.audits)),
    )
    risk, seconds = sum(a.beta for a in found.audits), sum(a.cpu_seconds for a in found.audits)
    runs = sum(layer.runs for audit in found.audits for layer in audit.layers)
    out.tiles = [
        Tile(
            found.verdict,
            f"{refuted} refuted and {priced} priced, of {len(found.audits)} audited claims",
            warn=found.verdict != "not refuted",
        ),
        Tile(f"{risk:.2g}", "the chance of a wrong `refuted` is at most this"),
        Tile(f"{runs:,}", "runs and pairs of datasets that were compared"),
        Tile(f"{seconds:.0f} s", "of computing time; a longer look sees smaller faults"),
    ]
    out.audits = [_part(audit) for audit in found.audits]
    out.not_promised = [
        "That a claim which was not refuted is true: only a proof shows that.",
        "Anything about the real data: an audit makes datasets of its own.",
        "That this file is what the auditor printed: run the command below to see it yourself.",
    ]
    out.details = [("versions", ", ".join(f"{k} {v}" for k, v in sorted(first.versions.items())))]
    return out


def _again(audit: _Audit, name: str, risk: float) -> str:
    """Return the command that repeats a finding."""
    share = risk if _spec_of(name) else audit.beta
    beta = "" if math.isclose(share, 1e-3, rel_tol=1e-9) else f" --beta {share!r}"
    distance = "" if audit.d_in == 1 else f" --d-in {shlex.quote(str(audit.d_in))}"
    return (
        f"opendp-sim audit {shlex.quote(name)}{distance} --seed {audit.seed} --budget "
        f"{audit.budget}{beta}"
    )


def _worst(found: Audits) -> Verdict:
    """Return the verdict of the audit which has most to show."""
    order: tuple[Verdict, ...] = ("refuted", "priced")
    return next((v for v in order if any(a.verdict == v for a in found.audits)), "not refuted")


_SENTENCES: dict[Verdict, str] = {
    "refuted": (
        "The claim is wrong: below is a pair of datasets that differ by no more than the claim "
        "says, and whose releases can be told apart better than it promises."
    ),
    "priced": (
        "A calculation says that the claim is wrong on the pair of datasets below, and drawing releases "
        "did not confirm it. A person has to look at it: it assumes that all randomness was seen."
    ),
    "not refuted": (
        "The auditor tried to tell neighbouring datasets apart better than the claim allows, and did not "
        "succeed. That is no proof; below is what it would have seen."
    ),
}


def _part(audit: _Audit) -> AuditPart:
    layers = tuple(
        (layer.layer, layer.status, layer.reason or layer.power or "-") for layer in audit.layers
    )
    of_spec = bool(_spec_of(audit.subject))
    shown = audit.script if of_spec else audit.script or audit.replay
    lines = tuple((shown or "").splitlines())
    if of_spec and not _runs(lines):
        lines = ()
    claim = audit.claim or f"what the object states of itself at a distance of {audit.d_in}"
    told = (("the claim that was tested", claim), *_found(audit))
    return AuditPart(audit.subject, audit.verdict, told, layers, lines)


def _spec_of(subject: str) -> str:
    """Return the spec that an audited part belongs to, or nothing."""
    name = subject.partition(" (")[0].partition("#")[0]
    return name if name.endswith((".yaml", ".yml")) else ""


def _runs(lines: Sequence[str]) -> bool:
    """Return whether lines are Python."""
    try:
        tried_again(lambda: ast.parse("\n".join(lines)))
    except (SyntaxError, ValueError):
        return False
    return True


def _found(audit: _Audit) -> list[tuple[str, str]]:
    evidence = audit.evidence or audit.priced
    if evidence is None:
        return [("warning", text) for text in audit.warnings]
    witness = audit.witness
    seen_on = evidence if witness is None or not witness.get("certified") else witness
    pair = seen_on.get("pair") or {}
    rows = [
        ("what", evidence.get("detail")),
        ("claimed", evidence.get("claimed")),
        ("measured", evidence.get("measured")),
        ("confidence", evidence.get("confidence")),
        ("one dataset", pair.get("left")),
        ("the other", pair.get("right")),
        ("their distance", pair.get("distance")),
    ]
    if witness is not None:
        hits, runs = witness.get("hits"), witness.get("runs")
        rows += [("event", witness.get("event")), ("seen", _counted(hits, runs))]
        rows += [("certified", f"epsilon is at least {witness.get('epsilon')}")]
    return [(word, _short(value)) for word, value in rows if value is not None]


def _counted(hits: Any, runs: Any) -> str:
    if isinstance(hits, list) and len(hits) == 2:
        return f"{hits[0]} of {runs} times on the one dataset, {hits[1]} of {runs} on the other"
    return f"{hits} times in {runs} runs a side"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 400 else text[:397] + "..."
