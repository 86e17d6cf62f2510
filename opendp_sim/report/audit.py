"""Report an audit's verdict, counterexample and checked pairs."""

from __future__ import annotations

import ast
import json
import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from opendp_sim.accounting.file_schemas import Plain, Strict, read_strictly
from opendp_sim.audit.report.report import nothing_found
from opendp_sim.core.errors import AuditError, SimError
from opendp_sim.core.system.file_kinds import kind_of_file
from opendp_sim.core.system.regular_files import regular
from opendp_sim.core.system.syntax_trees import tried_again
from opendp_sim.report.facts import Card, Facts, Judgement, Part, Tile

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


def read_audits(path: Path) -> Audits:
    """Read an audit's file, refusing formats and contradicted verdicts (OS501)."""

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
    risk, seconds = sum(a.beta for a in found.audits), sum(a.cpu_seconds for a in found.audits)
    runs = sum(layer.runs for audit in found.audits for layer in audit.layers)
    out = Facts("Audit: an attempt to refute a privacy claim", name)
    word = {"refuted": "Refuted", "priced": "To be looked at", "not refuted": "Not refuted"}
    text = _SENTENCES.get(found.verdict) or _nothing(found)
    out.verdict = Judgement("Verdict", word[found.verdict], text, _LOOKED)
    many = len(found.audits)
    out.tiles = [
        Tile(
            "Claims",
            f"{refuted} of {many} refuted",
            f"{refuted} refuted and {priced} priced, of {many} audited.",
            warn=found.verdict != "not refuted",
        ),
        Tile("False alarm", f"{risk:.2g}", "The chance of a wrong `refuted` is at most this."),
        Tile("Work", f"{runs:,}", "Runs, and pairs of datasets, that were compared."),
        Tile("Time", f"{seconds:.0f} s", "Of computing; a longer look sees smaller faults."),
    ]
    shown = [(audit.subject, audit.verdict) for audit in found.audits]
    worst = min(found.audits, key=lambda audit: audit.verdict != found.verdict)
    evidence = _found(worst)
    out.cards = [
        Card(
            "What was audited",
            [
                Part("table", shown[:_SHOWN], head=("claim of", "answer"), note=_left_out(found)),
                *([Part("pairs", evidence, "What was found")] if evidence else []),
            ],
        ),
        Card("Not promised", [Part("list", _NOT_PROMISED)]),
    ]
    out.folds = [
        Card(
            "Each claim",
            [p for a in found.audits for p in _parts(a)],
            "what was looked at, and how",
        ),
        Card(
            "Verify",
            [
                Part("code", [_again(first, name, risk)], note=_FRESH),
                Part(
                    "pairs",
                    [
                        (
                            "versions",
                            ", ".join(f"{k} {v}" for k, v in sorted(first.versions.items())),
                        )
                    ],
                ),
            ],
            "command and versions",
        ),
    ]
    out.choices = ("noted", "look longer: ____ seconds", "not to be used")
    return out


def _nothing(found: Audits) -> str:
    """Return the sentence for claims of which none was refuted."""
    facts = [layer.facts for audit in found.audits for layer in audit.layers]
    if any(one.get("raised") for one in facts):
        return "Releases raised, so that nothing was released. This is not a proof."
    if hints := [str(one["hint"]) for one in facts if one.get("hint")]:
        return f"Not confirmed, and to be checked by a person: {hints[0]}"
    return nothing_found(sum(_pairs(audit) for audit in found.audits))


def _pairs(audit: _Audit) -> int:
    """Return the pairs tried by the layer that tried most of them."""
    return max(
        (
            int(layer.facts.get("pairs", layer.runs if layer.layer.startswith("L1") else 0))
            for layer in audit.layers
        ),
        default=0,
    )


def _left_out(found: Audits) -> str:
    more = len(found.audits) - _SHOWN
    told = f"{more} more stand below. " if more > 0 else ""
    return told + (
        f"Left out: {', '.join(one.name for one in found.left_out)}." if found.left_out else ""
    )


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


_SHOWN = 8
"""Claims that are listed before anything is opened."""
_SENTENCES: dict[str, str] = {
    "refuted": (
        "The claim is wrong: below is a pair of datasets that differ by no more than the claim says, and "
        "whose releases can be distinguished better than it claims."
    ),
    "priced": (
        "A calculation says that the claim is wrong on the pair of datasets below, and drawing releases "
        "did not confirm it. A person has to look at it: it assumes that all randomness was seen."
    ),
}
_LOOKED = "The auditor tried to tell neighbouring datasets apart better than the claim allows."
_NOT_PROMISED = (
    "That a claim which was not refuted is true: only a proof shows that.",
    "Anything about the real data: an audit makes datasets of its own.",
    "That this file is what the auditor printed: run the command below to see it yourself.",
)
_FRESH = "The seed chooses the datasets; the noise is fresh each time, so other numbers come out."


def _parts(audit: _Audit) -> Iterator[Part]:
    """Yield an audited claim, its layers and its script."""
    of_spec = bool(_spec_of(audit.subject))
    shown = audit.script if of_spec else audit.script or audit.replay
    lines = tuple((shown or "").splitlines())
    if of_spec and not _runs(lines):
        lines = ()
    claim = audit.claim or f"what the object states of itself at a distance of {audit.d_in}"
    told = [("the claim that was tested", claim), *_found(audit)]
    yield Part("pairs", told, f"{audit.subject}: {audit.verdict}")
    rows = [
        (layer.layer, layer.status, layer.reason or layer.power or "-") for layer in audit.layers
    ]
    head = ("layer", "answer", "what it would have seen, or why it did not run")
    yield Part("table", rows, head=head)
    if lines:
        yield Part("code", lines)


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
