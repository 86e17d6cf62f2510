"""What a trace that refuted nothing says: power for each draw, what was never tried, how to see more."""

from __future__ import annotations

from typing import Any

import numpy as np

from opendp_sim.audit.tape import Draw, TapeEndError
from opendp_sim.audit.tracer import Tracer
from opendp_sim.audit.views import Claim, decode

__all__ = ["told"]

_DRAWS, _WORDS = 6, 6


def told(tracer: Tracer) -> dict[str, Any]:
    """Return facts for the report: ``noise``, ``never`` and ``advice``."""
    lines, shown = _noise(tracer), _shown(tracer)
    never = [f"datasets of more than {max(tracer.seen.sizes, default=1)} records"]
    words = sorted(tracer.mined.words)
    if words:
        tried = ", ".join(repr(w) for w in words[:_WORDS])
        never.append(f"other words than the usual ones and those of the code ({tried})")
    if tracer.hidden:
        never.append(
            "randomness that no tape sees (C extensions, threads, clocks): only its outputs"
        )
    best = tracer.seen.best
    if shown and best and 0 < best[0].loss <= 1 + 1e-9:
        excess = 1 / min(best[0].loss, 1.0) - 1
        lines.append(
            f"a scale too small, or a sensitivity too large, by {100 * excess:.3g} % would have been "
            "calculated on the costliest pair"
        )
    return {"noise": lines, "never": never, "advice": _advice(tracer) if shown else ""}


def _noise(tracer: Tracer) -> list[str]:
    """Say of each draw, by the place in the code, the largest share of the claim that it attained."""
    largest: dict[str, float] = {}
    for found in tracer.seen.best:
        for a, b in zip(found.view.draws, found.view.other, strict=False):
            name = f"{a.what} at {a.site}"
            largest[name] = max(largest.get(name, 0.0), _share(a, b, tracer.claim))
    return [
        f"{name}: at most {share:.3g} of the claim at equal noisy values"
        for name, share in list(largest.items())[:_DRAWS]
    ]


def _share(a: Draw, b: Draw, claim: Claim) -> float:
    if a.law is None or np.shape(a.argument) != np.shape(b.argument):
        return 0.0
    epsilon, rho = a.law.loss(a.argument, b.argument)
    return (rho if claim[0] == "rho" else epsilon) / claim[1]


def _shown(tracer: Tracer) -> bool:
    """Say whether the output shows the noisy values, so that prices are exact."""
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
