"""Write the report of an audit, with each layer's power."""

from __future__ import annotations

import json
import math
import platform
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from opendp_sim.accounting.claim_text import Statement, html_card
from opendp_sim.audit.findings import Evidence, LayerResult
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.report.counterexample import Witness
from opendp_sim.audit.report.repro_script import is_object, stability_script

# --------------------------------------------------------------------------------------------------
# The lines of a report: the finding and its event, what each layer saw, what a black box leaves open.

_LONGEST = 160


def shown_pair(evidence: Evidence, witness: Witness | None) -> Pair | None:
    """Return the pair that the report shows, smaller if draws confirm."""
    if witness is not None and witness.certified:
        return witness.pair
    return evidence.pair


def found_lines(
    evidence: Evidence, layer: str, witness: Witness | None, verdict: str = "refuted"
) -> list[str]:
    """Return lines with the finding, its pair and plain event."""
    declared = (
        "    declared   core= and noise= by whoever asked: if they are wrong, so is this finding"
    )
    lines = [
        f"  {verdict} by {layer}: {evidence.detail}",
        f"    claimed    {evidence.claimed}",
        f"    measured   {evidence.measured}",
        f"    confidence {evidence.confidence}",
    ]
    if said := evidence.extra.get("declared"):
        lines.append(f"    declared   {said}" if isinstance(said, str) else declared)
    pair = shown_pair(evidence, witness)
    one = witness is not None and pair is not None and _same(pair, witness.pair)
    smaller = pair is not None and evidence.pair is not None and not _same(pair, evidence.pair)
    if smaller:
        lines.append(
            "               (of a larger pair; the event below is seen on this one as well)"
        )
    if pair is not None:
        lines += _pair_lines(pair, named=one)
    if evidence.outputs is not None and not smaller:
        lines.append(
            f"    outputs    {_short(evidence.outputs[0])} against {_short(evidence.outputs[1])}"
        )
    if said := evidence.extra.get("event"):
        lines.append(f"    event      {said}")
    return lines if witness is None else [*lines, *_event_lines(witness, named=one)]


def _pair_lines(pair: Pair, *, named: bool) -> list[str]:
    if not pair.distance and _same(Pair(pair.left, pair.left, 0), Pair(pair.right, pair.left, 0)):
        return [f"    dataset    {text_of_data(pair.left)}"]
    left, right = ("left (x)", "right (y)") if named else ("left", "right")
    return [
        f"    {left:<10} {text_of_data(pair.left)}",
        f"    {right:<10} {text_of_data(pair.right)}",
        f"    distance   {pair.distance}",
    ]


def _event_lines(witness: Witness, *, named: bool) -> list[str]:
    """Return lines with the event, its frequency and certified bound."""
    p, q = witness.hits
    x, y = "x", "y"
    if not named:
        x, y = f"x = {_short(witness.pair.left)}", f"y = {_short(witness.pair.right)}"
    bound = f"epsilon >= {witness.epsilon:.4g} at delta {witness.delta:.3g}"
    bound += ", risk 1e-3 over all that was tried"
    return [
        f"    event      {witness.event}",
        f"    seen       {p} of {witness.runs} on {x},",
        f"               {q} of {witness.runs} on {y}",
        f"    certified  {bound}{'' if witness.certified else ': draws alone do not show it'}",
    ]


def _same(first: Pair, second: Pair) -> bool:
    """Say whether two pairs are the same datasets in the same order."""
    mine, other = ((repr(p.left), repr(p.right)) for p in (first, second))
    return mine == other


def layer_lines(layers: Sequence[LayerResult]) -> list[str]:
    """Return lines with each layer's power, or reason for skipping."""
    lines = [f"  {'layer':<16} {'verdict':<12} {'work s':>6}  what it did and would have seen"]
    for layer in layers:
        note = layer.reason or layer.power
        lines.append(
            f"  {layer.layer:<16} {layer.status:<12} {layer.seconds:6.2f}  {note}".rstrip()
        )
    return lines


def stronger_lines(layers: Sequence[LayerResult], budget: str, *, asked: bool) -> list[str]:
    """Return lines with a black box's limits and remedies."""
    lines = ["a black box: only the pairs and outputs above were seen."]
    for layer in layers:
        lines += [f"  drawn: {text}" for text in layer.facts.get("noise", ())]
        lines += [f"  never drawn: {text}" for text in layer.facts.get("never", ())]
    advice = next((layer.facts["advice"] for layer in layers if layer.facts.get("advice")), "")
    return [*lines, f"  stronger: {advice or _of_choices(budget, asked=asked)}"]


def _of_choices(budget: str, *, asked: bool) -> str:
    """Say what helps where no output is a noiseless part plus noise."""
    helps = ["an Effort of more seconds" if budget == "deep" else 'budget="deep" (more draws)']
    helps += ["drive=function (asks a queryable what you choose)"] if asked else []
    helps.append("pairs=[(x, y)] (neighbours of yours, tried first)")
    last = "events={name: function} (a number of an output that tells neighbours apart)"
    return f"audit(obj, d_in, ...) with {', '.join(helps)} or {last}"


def text_of_data(value: Any) -> str:
    """Return a dataset as Python writes it."""
    if hasattr(value, "collect_schema"):
        rows, schema = value.collect().rows(), dict(value.collect_schema())
        return f"pl.LazyFrame({rows!r}, schema={schema!r}, orient='row')"
    if isinstance(value, np.ndarray):
        return f"np.array({value.tolist()!r}).reshape({value.shape})"
    return repr(value)


def _short(value: Any) -> str:
    text = text_of_data(value) if not isinstance(value, str) else value
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


# --------------------------------------------------------------------------------------------------

_COMPARES = ("L1", "L2", "L3", "L4")
"""Layers that compare releases, or what they are made of."""
_INNER = frozenset({"genome", "turned"})
"""What parts of a report are for the search and no reader."""


def nothing_found(pairs: int) -> str:
    """Return the sentence for an audit that refuted nothing."""
    return f"No problem found{f' in {pairs:,} pairs' if pairs else ''}. This is not a proof."


@dataclass(frozen=True)
class Report:
    """One audit. ``verdict`` is ``refuted``, ``priced`` or ``not refuted``; never "private".

    ``refuted``: draws made for it, exact distances or structure show that the claim is wrong.
    ``priced``: a calculation says so, on one pair, if a run is a function of its dataset and its tape;
    draws did not confirm it in this budget. It is a finding for a person.
    ``not refuted``: neither was found. This is no proof.
    """

    subject: str
    d_in: Any
    budget: str
    seed: int
    beta: float
    layers: tuple[LayerResult, ...]
    seconds: float
    versions: dict[str, str]
    origin: str = ""
    """What the audited object was made from: a spec, ``module:factory``, or nothing."""
    drive: str = ""
    """What an interactive release was asked, when nobody said what to ask."""
    cpu_seconds: float = 0.0
    """CPU seconds of this process; ``seconds`` are of the clock on the wall."""
    witness: Witness | None = None
    """A plain event that shows the finding, certified on draws of its own."""
    unread: tuple[str, ...] = ()
    """Types of objects in outputs of which not all was read."""
    opaque: bool = False
    """Whether a measurement was audited whose noiseless part nobody declared."""

    claim: str = ""
    """What is claimed: whom it is about and what it promises, or what the object's own map says."""
    given: str = ""
    """Further arguments of the call that made this audit, as Python writes them."""
    shares: int = 1
    """How many audits of one command share its risk of a false alarm."""

    @property
    def verdict(self) -> str:
        """The answer."""
        if self.evidence is not None:
            return "refuted"
        return "not refuted" if self.priced is None else "priced"

    @property
    def evidence(self) -> Evidence | None:
        """The counterexample, when there is one."""
        found = [layer.evidence for layer in self.layers if layer.status == "refuted"]
        return found[0] if found else None

    @property
    def priced(self) -> Evidence | None:
        """A calculated excess that draws did not confirm, where nothing was refuted."""
        return None if self._pricing is None else self._pricing.facts["priced"]

    @property
    def _pricing(self) -> LayerResult | None:
        """The layer that priced the claim, where none refuted it."""
        found = [x for x in self.layers if x.facts.get("priced")]
        return found[0] if found and self.evidence is None else None

    @property
    def not_entered(self) -> str:
        """Return the parts that no layer looked at, or nothing."""
        if self.evidence is not None or self.empty:
            return ""
        kinds = [kind for kind in self.unread if not kind.endswith(")")]
        if kinds:
            return f"outputs were not read: {', '.join(kinds)}"
        compared = any(x.status != "skipped" for x in self.layers if x.layer[:2] in _COMPARES)
        if compared or not self.opaque:
            return next((str(x.facts["idle"]) for x in self.layers if x.facts.get("idle")), "")
        reasons = [x.reason for x in self.layers if x.layer.startswith("L3")]
        return f"releases were not compared: {'; '.join(reasons) or 'L3 did not run'}"

    @property
    def warnings(self) -> list[str]:
        """Return warnings on a claim that was not refuted."""
        if self.evidence is not None or self.empty:  # of no release there is nothing to warn of
            return []
        told = [str(layer.facts["warning"]) for layer in self.layers if layer.facts.get("warning")]
        return [*told, *([f"not entered: {self.not_entered}"] if self.not_entered else [])]

    @property
    def tried(self) -> int:
        """Pairs that were tried by the layer that tried most of them."""
        pairs = (
            layer.facts.get("pairs", layer.runs if layer.layer.startswith("L1") else 0)
            for layer in self.layers
        )
        return max(pairs, default=0)

    @property
    def layer(self) -> str:
        """The layer that refuted, or nothing."""
        found = [layer.layer for layer in self.layers if layer.status == "refuted"]
        return found[0] if found else ""

    @property
    def raised(self) -> str:
        """The exception that every release ended in, or nothing."""
        return next((str(x.facts["raised"]) for x in self.layers if x.facts.get("raised")), "")

    @property
    def empty(self) -> bool:
        """Return whether all releases raised equally, leaving nothing to audit."""
        return bool(self.raised) and self.evidence is None

    @property
    def hints(self) -> list[str]:
        """Return unconfirmed findings of the tapes for a reader to check."""
        if self.evidence is not None:
            return []
        return [str(layer.facts["hint"]) for layer in self.layers if layer.facts.get("hint")]

    @property
    def checks(self) -> str:
        """Return the layers that ran, and those skipped with reasons."""
        ran = sorted(layer.layer[:2] for layer in self.layers if layer.status != "skipped")
        skipped = sorted(layer.layer[:2] for layer in self.layers if layer.status == "skipped")
        told = f"{', '.join(ran) or 'nothing'} ran"
        return f"{told}; {', '.join(skipped)} did not" if skipped else told

    @property
    def lower_bounds(self) -> dict[str, float]:
        """A certified lower bound on epsilon, at the delta it holds for."""
        for layer in reversed(self.layers):
            if "lower_bound" in layer.facts:
                return dict(layer.facts["lower_bound"])
            if layer.evidence is not None and "certified_epsilon_at_delta" in layer.evidence.extra:
                extra = layer.evidence.extra
                return {"epsilon": extra["certified_epsilon_at_delta"], "delta": extra["delta"]}
        return {}

    @property
    def replay(self) -> str:
        """Return a script that reproduces the finding, or repeats the audit."""
        evidence = self.evidence
        if self.witness is not None:
            return self.witness.script
        if evidence is not None and evidence.kind == "stability" and evidence.pair is not None:
            return stability_script(evidence.pair, self.origin, f"measured {evidence.measured}")
        return self.search

    @property
    def search(self) -> str:
        """Return a snippet or command that repeats this audit."""
        target = self.origin or "obj"
        spec = target.removesuffix(" (before the noise)").rpartition("#")[0]
        if spec.endswith((".yaml", ".yml")):
            distance = "" if self.d_in == 1 else f" --d-in {shlex.quote(str(self.d_in))}"
            risk = self.beta * self.shares
            beta = "" if math.isclose(risk, 1e-3, rel_tol=1e-9) else f" --beta {risk!r}"
            return (
                f"opendp-sim audit {shlex.quote(spec)}{distance} --seed {self.seed} --budget "
                f"{self.budget}{beta}"
            )
        loading = ""
        if ":" in self.origin and not self.origin.endswith((".yaml", ".yml")):
            module, name = self.origin.split(":", 1)
            loading, target = f"from {module} import {name}\n", name
            target += "" if is_object(self.origin) else "()"
        lines = [
            f"{loading}from opendp_sim.audit import audit",
            f"report = audit({target}, d_in={self.d_in!r}, budget={self.budget!r}, "  # noqa: ISC004
            f"seed={self.seed}, beta={self.beta!r}{self.given})"
            f"{'  # with what you gave by these names' if self.given else ''}",
        ]
        evidence = self.evidence
        pair = None if evidence is None else shown_pair(evidence, self.witness)
        if pair is not None:
            lines += [
                f"left = {text_of_data(pair.left)}",
                f"right = {text_of_data(pair.right)}  # at distance {pair.distance}",
            ]
        return "\n".join([*lines, "print(report)"])

    # --- rendering -----------------------------------------------------------------

    def _repr_html_(self) -> str:
        """Return the verdict, the finding and the work for a notebook."""
        found = self.evidence or self.priced
        told = found.detail if found is not None else nothing_found(self.tried)
        told = "; ".join(self.hints) or (
            f"nothing was released: {self.raised}" if self.empty else told
        )
        lines = [Statement("verdict", "", self.verdict), Statement("found", "", told)]
        lines += [Statement("claim", "", self.claim)] if self.claim else []
        lines.append(Statement("checks", "", self.checks))
        return html_card(f"audit of {self.origin or self.subject}", lines)

    def __str__(self) -> str:
        name = self.origin or self.subject
        empty = ", but nothing was released" if self.empty else ""
        empty = empty or (f", but {self.not_entered}" if self.not_entered else "")
        lines = [f"audit of {name} at d_in = {self.d_in}: {self.verdict}{empty} ({self.checks})"]
        if self.claim:
            lines.append(f"  claim: {self.claim}")
        if self.verdict == "not refuted" and not (self.empty or self.hints):
            lines.append(f"  {nothing_found(self.tried)}")
        lines += [f"  warning: {text}" for text in self.warnings]
        lines += [f"  {text}" for text in self.hints]
        if self.drive:
            lines.append(f"  asked by default: {self.drive}")
        if self.empty:
            lines.append(f"  every release raised, so that nothing was released: {self.raised}")
        if self.evidence is not None:
            lines += ["", *found_lines(self.evidence, self.layer, self.witness)]
        if self._pricing is not None and self.priced is not None:
            lines += ["", *found_lines(self.priced, self._pricing.layer, None, "priced")]
        lines += ["", *layer_lines(self.layers)]
        if self.evidence is None:
            if self.opaque:
                lines += ["", *stronger_lines(self.layers, self.budget, asked=bool(self.drive))]
            lines += ["", *map(_unread, self.unread)][self.opaque :]
            lines += ["`opendp-sim explain known_limits` says what no audit looks at."]
        lines += [
            (
                f"seed {self.seed}, risk of a false alarm at most {self.beta:g}, "
                f"{self.cpu_seconds:.1f} CPU s, {self.seconds:.1f} s on the clock"
            ),
            "",
            f"# {self._shows}:",
            self.replay,
        ]
        return "\n".join(lines)

    @property
    def _shows(self) -> str:
        """Say what the lines below do."""
        if self.witness is not None:
            return "to count the event yourself"
        return "to see it yourself" if self.replay != self.search else "to search again"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "verdict": self.verdict,
            "subject": self.origin or self.subject,
            "claim": self.claim or None,
            "d_in": json_ready(self.d_in),
            "asked": self.drive or None,
            "budget": self.budget,
            "seed": self.seed,
            "beta": self.beta,
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "how": None if self.evidence is None else self.evidence.extra.get("how"),
            "witness": json_ready(self.witness),
            "script": self.replay if self.evidence is not None else None,
            "unread": list(self.unread),
            "versions": self.versions,
            "refuted_by": self.layer or None,
            "evidence": json_ready(self.evidence),
            "priced": json_ready(self.priced),
            "warnings": self.warnings,
            "lower_bounds": json_ready(self.lower_bounds),
            "layers": [json_ready(layer) for layer in self.layers],
            "replay": self.search,
        }

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)


def worst_of(reports: Sequence[Report]) -> str:
    """Return the gravest verdict of several audits."""
    verdicts = {report.verdict for report in reports}
    return next((one for one in ("refuted", "priced") if one in verdicts), "not refuted")


def versions() -> dict[str, str]:
    """Return what the result depends on."""
    from importlib.metadata import version  # noqa: PLC0415

    return {
        "opendp": version("opendp"),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _unread(kind: str) -> str:
    return f"output holds an object of type {kind} that was not read: not refuted says nothing about it."


def json_ready(value: Any) -> Any:
    """Return JSON-ready data."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: json_ready(getattr(value, f.name))
            for f in fields(value)
            if f.name not in _INNER
        }
    if isinstance(value, dict):
        return {str(k): json_ready(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(v) for v in value]
    if isinstance(value, np.ndarray):
        return json_ready(value.tolist())
    if isinstance(value, np.generic):
        return json_ready(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else repr(value)
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    return repr(value)
