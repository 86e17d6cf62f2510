"""Choose the past output's event with the greatest excess over the claim."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.claims.curves import Curve
from opendp_sim.audit.outputs.encoding import Encoded
from opendp_sim.audit.statistics.betting import Bet
from opendp_sim.audit.statistics.kelly import DOUBT, LUCK, with_stakes
from opendp_sim.audit.statistics.scores import LEARNED, Score

_LEAST = 0.05
"""Part of the left's own variance that noise in common leaves at least."""
_CUTS = np.concatenate(
    [np.geomspace(0.002, 0.1, 8), np.linspace(0.15, 0.85, 15), 1 - np.geomspace(0.1, 0.002, 8)]
)


def best_bet(
    scores: dict[str, Score],
    left: Encoded,
    right: Encoded,
    curve: Curve,
    hold_out: slice,
    *,
    coupled: bool = False,
) -> Bet | None:
    """Choose event, eps and stake on held-out outputs.

    The score was not learned from them.
    """
    found: Bet | None = None
    epsilons = curve.grid
    deltas = curve.deltas
    with np.errstate(over="ignore"):
        factors = np.exp(epsilons)
    for name, score in scores.items():
        seen = hold_out if name in LEARNED else slice(None)
        a, b = score(left.part(seen)), score(right.part(seen))
        cuts = np.unique(np.quantile(np.concatenate([a, b]), _CUTS))
        cuts = np.unique(np.concatenate([cuts, np.nextafter(cuts, np.inf)]))
        p = (a[None, :] >= cuts[:, None]).mean(axis=1)
        q = (b[None, :] >= cuts[:, None]).mean(axis=1)
        both = p * q
        if coupled:
            both = ((a[None, :] >= cuts[:, None]) & (b[None, :] >= cuts[:, None])).mean(axis=1)
            both = np.maximum(both * len(a) / (len(a) + 2 * DOUBT), p * q)
        strength = _strength(p, q, both, (len(a), len(b)), factors, deltas)
        spot = np.unravel_index(int(np.argmax(strength)), strength.shape)
        value = float(strength[spot])
        if found is None or value > found.strength:
            cut, e = int(spot[0]), int(spot[1])
            found = Bet(
                name,
                score,
                float(cuts[cut]),
                float(epsilons[e]),
                float(deltas[e]),
                (0.0,) * len(LUCK),
                value,
                (float(p[cut]), float(q[cut])),
                (len(a), len(b)),
                float(both[cut]) if coupled else None,
            )
    return None if found is None else with_stakes(found)


def _strength(
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    both: NDArray[np.float64],
    seen: tuple[int, int],
    factors: NDArray[np.float64],
    deltas: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return excesses over their standard errors."""
    first, second = seen
    ps = (p * first + DOUBT) / (first + 2 * DOUBT)
    qs = (q * second + DOUBT) / (second + 2 * DOUBT)
    excess = p[:, None] - factors[None, :] * qs[:, None] - deltas[None, :]
    alone = (ps * (1 - ps) / first)[:, None]
    variance = alone + factors[None, :] ** 2 * (qs * (1 - qs) / second)[:, None]
    shared = np.minimum(both, np.minimum(ps, qs)) - p * q  # noise in common takes this away
    variance -= 2 * factors[None, :] * (np.maximum(shared, 0.0) / max(first, second))[:, None]
    variance = np.maximum(variance, alone * _LEAST)
    return np.asarray(excess / np.sqrt(variance))
