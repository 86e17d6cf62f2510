"""The lines of a report: the finding and its event, what each layer saw, what a black box leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opendp_sim.audit.findings import Evidence, LayerResult
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.witness import Witness

__all__ = ["found_lines", "layer_lines", "shown_pair", "stronger_lines", "text_of_data"]

_LONGEST = 160


def shown_pair(evidence: Evidence, witness: Witness | None) -> Pair | None:
    """Return the pair that a reader is shown: the smaller one, where draws show the event on it."""
    if witness is not None and witness.certified:
        return witness.pair
    return evidence.pair


def found_lines(evidence: Evidence, layer: str, witness: Witness | None) -> list[str]:
    """Say what was found, on which pair, and the plain event that shows it."""
    declared = (
        "    declared   core= and noise= by whoever asked: if they are wrong, so is this finding"
    )
    lines = [
        f"  refuted by {layer}: {evidence.detail}",
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
    """Say the plain event, how often it was seen, and what that certifies."""
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
    """Say of each layer what it would have seen, or why it did not run."""
    lines = [f"  {'layer':<16} {'verdict':<12} {'CPU s':>6}  what it did and would have seen"]
    for layer in layers:
        note = layer.reason or layer.power
        lines.append(
            f"  {layer.layer:<16} {layer.status:<12} {layer.seconds:6.2f}  {note}".rstrip()
        )
    return lines


def stronger_lines(layers: Sequence[LayerResult], budget: str, *, asked: bool) -> list[str]:
    """Say what a black box leaves open, and what would help with such outputs."""
    lines = ["a black box: only the pairs and outputs above were seen."]
    for layer in layers:
        lines += [f"  drawn: {text}" for text in layer.facts.get("noise", ())]
        lines += [f"  never drawn: {text}" for text in layer.facts.get("never", ())]
    advice = next((layer.facts["advice"] for layer in layers if layer.facts.get("advice")), "")
    sums = any(layer.facts.get("additive") for layer in layers)
    hides = any(not layer.facts.get("shown", True) for layer in layers)
    if not advice and sums and not hides and not asked:
        advice = _ADDITIVE
    return [*lines, f"  stronger: {advice or _of_choices(budget, asked=asked)}"]


_ADDITIVE = 'audit(obj, d_in, core=<dataset to array>, noise=NoiseLaw("discrete_laplace", scale))'


def _of_choices(budget: str, *, asked: bool) -> str:
    """Say what helps where no output is a noiseless part plus noise."""
    helps = ["a Budget of more seconds" if budget == "deep" else 'budget="deep" (more draws)']
    helps += ["drive=function (asks a queryable what you choose)"] if asked else []
    helps.append("pairs=[(x, y)] (neighbours of yours, tried first)")
    last = "events={name: function} (a number of an output that tells neighbours apart)"
    return f"audit(obj, d_in, ...) with {', '.join(helps)} or {last}"


def text_of_data(value: Any) -> str:
    """Return a dataset as Python writes it."""
    if isinstance(value, np.ndarray):
        return f"np.array({value.tolist()!r}).reshape({value.shape})"
    return repr(value)


def _short(value: Any) -> str:
    text = text_of_data(value) if not isinstance(value, str) else value
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
