"""Explain a trace without refutation by powers and untried inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opendp_sim.audit.instrument.compare_tapes import Claim, decode
from opendp_sim.audit.instrument.tape import Draw, TapeEndError
from opendp_sim.audit.trace.context import UNSEEN, Tracer

_DRAWS, _WORDS = 6, 6
_LITTLE = 0.01
_CALLS, _LOOKED, _MORE = 4, 20, 1.001
"""Calls that tell whether a function draws, pairs and records that are looked at for what is said of
all, and how much more several draws cost than one where that is said."""


_BESIDE = "randomness that no tape sees (C extensions, threads, clocks): only its outputs"
_UNLIKE = (
    "with stand-ins for its generators it raises, or releases something else, where it does not without:"
    " only its own releases were drawn"
)


def facts_of_trace(tracer: Tracer) -> dict[str, Any]:
    """Return facts for the report, ``noise``, ``never``, ``shown`` and ``advice``."""
    if tracer.unlike:
        return {"noise": [], "never": [_BESIDE], "shown": True, "advice": ""}
    lines, shown = _noise(tracer), _shown(tracer)
    never = [f"datasets of more than {_records(tracer)}"]
    words = sorted(tracer.mined.words)
    if words and _has_text(tracer):
        tried = ", ".join(repr(w) for w in words[:_WORDS])
        never.append(f"other words than the usual ones and those of the code ({tried})")
    if tracer.hidden:
        never.append(_BESIDE)
    best = tracer.seen.best
    if shown and best and 0 < best[0].loss <= 1 + 1e-9:
        percent = 100 * (1 / min(best[0].loss, 1.0) - 1)
        by = f"by {percent:.3g} %" if percent >= _LITTLE else "by however little"
        lines.append(
            f"a scale too small, or a sensitivity too large, {by} would have been calculated on the "
            "costliest pair"
        )
    advice = _advice(tracer) if shown else ""
    return {"noise": lines, "never": never, "shown": shown or tracer.hidden, "advice": advice}


def looked(tracer: Tracer, *, refuted: bool) -> str:
    """Return a summary of the tapes' findings and hints."""
    if tracer.unlike:
        return _UNLIKE
    if tracer.stateful:
        return "the number of draws changes from call to call: repeated calls were tested, no pairs"
    if not tracer.seen.best:
        return "no pair could be run along its tape"
    parts = [f"{tracer.seen.pairs} pairs along their tapes, up to {_records(tracer)}"]
    if tracer.hidden and not _drawn(tracer):
        return f"{parts[0]}; its noise is on no tape: nothing was priced, its outputs were drawn"
    loss = tracer.seen.best[0].loss
    parts.append(_costs(tracer, loss))
    odd = [name for name in sorted(tracer.seen.odd) if name != UNSEEN]
    if loss > 1 + 1e-9 and not refuted:
        longer = "an Effort of more seconds" if tracer.budget.name == "deep" else 'budget="deep"'
        parts.append(f"a hint that draws did not confirm: {longer} draws for longer")
    elif not odd and not refuted:
        parts.append("nothing odd")
    parts += odd
    return "; ".join([*parts, *(["some randomness is not on the tape"] if tracer.hidden else [])])


def hinted(tracer: Tracer) -> str:
    """Return a hint of a pair whose tape exceeds the claim."""
    if tracer.unlike or tracer.stateful or tracer.priced is not None or not tracer.seen.best:
        return ""
    if tracer.seen.best[0].loss <= 1 + 1e-9 or not _drawn(tracer) or not _priced(tracer):
        return ""
    return f"a hint, and no finding: {_costs(tracer, tracer.seen.best[0].loss)}, on a pair along its tape"


def noiseless(tracer: Tracer) -> str:
    """Return a warning of a finite claim without noise, or nothing."""
    if tracer.unlike or tracer.stateful or tracer.hidden or not tracer.seen.best or _drawn(tracer):
        return ""
    return (
        f"it drew no noise on {tracer.seen.pairs} pairs: only an output that does not depend on the data "
        "keeps a finite claim"
    )


def _priced(tracer: Tracer) -> bool:
    """Say whether the law of any draw is known."""
    return any(
        draw.law or draw.free or draw.hint or draw.options is not None
        for found in tracer.seen.best[:_LOOKED]
        for draw in found.view.draws
    )


def _costs(tracer: Tracer, loss: float) -> str:
    """Say what the costliest pair costs, where anything was priced."""
    if not _drawn(tracer):
        return "it draws no noise"
    if not _priced(tracer):
        return "the laws of its draws are not known, so nothing was priced"
    if loss == 0:
        if not any(d.law for f in tracer.seen.best[:_LOOKED] for d in f.view.draws):
            return "its outputs are the same on both sides of every pair at equal noise"
        return "its draws are of the same numbers on both sides of every pair"
    share = f"{loss:.3g}" if math.isfinite(loss) else "without bound in units"
    return f"the costliest is {share} of the claim at equal noisy values"


def _drawn(tracer: Tracer) -> bool:
    return any(found.view.draws or found.view.other for found in tracer.seen.best)


def _records(tracer: Tracer) -> str:
    most = max(tracer.seen.sizes, default=1)
    return f"{most} record{'s' if most != 1 else ''}"


def _has_text(tracer: Tracer) -> bool:
    """Say whether any dataset tried holds a text."""
    sides = [side for f in tracer.seen.best[:_LOOKED] for side in (f.pair.left, f.pair.right)]
    return any("'" in repr(side) for side in sides)


def _noise(tracer: Tracer) -> list[str]:
    """Return each draw's largest share of the claim, as lines."""
    largest, together = dict[str, float](), dict[str, float]()
    for found in tracer.seen.best:
        sums: dict[str, float] = {}
        for a, b in zip(found.view.draws, found.view.other, strict=False):
            name, share = f"{a.what} at {a.site}", share_of(a, b, tracer.claim)
            largest[name] = max(largest.get(name, 0.0), share)
            sums[name] = sums.get(name, 0.0) + share
        for name, total in sums.items():
            together[name] = max(together.get(name, 0.0), total)
    return [
        f"{name}: at most {share:.3g} of the claim {_in_all(share, together[name])}at equal noisy values"
        for name, share in list(largest.items())[:_DRAWS]
    ]


def _in_all(share: float, total: float) -> str:
    return f"a draw, {total:.3g} in all draws of a run, " if total > _MORE * share else ""


def share_of(a: Draw, b: Draw, claim: Claim) -> float:
    """Return the claim's share of two draws' known loss."""
    if a.law is None or np.shape(a.argument) != np.shape(b.argument):
        return 0.0
    epsilon, rho = a.law.loss(a.argument, b.argument)
    return (rho if claim[0] == "rho" else epsilon) / claim[1]


def _shown(tracer: Tracer) -> bool:
    """Return whether the output shows the noisy values."""
    if tracer.hidden or tracer.stateful or not tracer.seen.best:
        return False
    try:
        return decode(tracer.tape, tracer.function, tracer.top) is not None
    except (TapeEndError, ValueError, TypeError):
        return False


def _advice(tracer: Tracer) -> str:
    laws = {d.law.noise for d in tracer.seen.best[0].view.draws if d.law is not None}
    if len(laws) != 1:
        return ""
    law = laws.pop()
    return f'audit(obj, d_in, core=<dataset to array>, noise=NoiseLaw("{law.family}", {law.scale:.6g}))'
