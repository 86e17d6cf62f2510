"""Testing by betting: wealth that can only grow when the claim is false.

For a claim ``P[A in S] <= e^eps P[B in S] + delta`` draw one output from each side and bet on
``X = 1{A in S} - e^eps 1{B in S} - delta``. Under the claim E[X] <= 0 whatever event, eps, direction
and pair were chosen *from the past*, so the wealth is a supermartingale and exceeds 1/beta with
probability at most beta, at any stopping time (Ville). No sample is split off, nothing is corrected
for the number of events tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.curves import Curve
from opendp_sim.audit.encoding import Encoded
from opendp_sim.audit.scores import LEARNED, Score

__all__ = ["Bet", "Wealth", "best_bet", "settle"]

_FRACTIONS = np.concatenate([np.geomspace(1e-4, 0.2, 24), np.linspace(0.25, 0.98, 20)])
_LUCK = 2.2
"""Strength that the best of many events has by luck."""
_CUTS = np.concatenate(
    [np.geomspace(0.002, 0.1, 8), np.linspace(0.15, 0.85, 15), 1 - np.geomspace(0.1, 0.002, 8)]
)


@dataclass(frozen=True)
class Bet:
    """An event, a point of the claimed curve, and how much of the wealth to put on it."""

    name: str
    score: Score
    cut: float
    epsilon: float
    delta: float
    stake: float
    strength: float
    """Estimated excess in standard errors: how the search ranks pairs."""
    hits: tuple[float, float]
    """Estimated probability of the event on either side."""
    seen: tuple[int, int]
    """Number of outputs behind the estimates."""

    def holds(self, outputs: Encoded) -> NDArray[np.bool_]:
        """Say for each output whether it is in the event."""
        return np.asarray(self.score(outputs) >= self.cut)


@dataclass
class Wealth:
    """The running wealth, in logs, and its peak."""

    log: float = 0.0
    peak: float = 0.0
    rounds: int = 0

    def add(self, changes: NDArray[np.float64], goal: float) -> bool:
        """Multiply in the rounds of a batch, one by one; stop where the goal is reached."""
        path = self.log + np.cumsum(changes)
        reached = np.flatnonzero(path >= goal)
        stop = int(reached[0]) + 1 if reached.size else len(path)
        self.rounds += stop
        self.log = float(path[stop - 1]) if stop else self.log
        self.peak = max(self.peak, self.log)
        return bool(reached.size)

    def rejects(self, beta: float) -> bool:
        """Say whether the claim is refuted at this risk."""
        return self.peak >= -math.log(beta)


def best_bet(
    scores: dict[str, Score], left: Encoded, right: Encoded, curve: Curve, hold_out: slice
) -> Bet | None:
    """Choose event, eps and stake on outputs that the score was not learned from.

    Args:
        scores: candidate scores.
        left: outputs of the side whose probability is claimed not to be large.
        right: outputs of the other side.
        curve: the claim.
        hold_out: the outputs that learned scores have not seen; raw ones may use all.
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
        strength = _strength(p, q, len(a), len(b), factors, deltas)
        spot = np.unravel_index(int(np.argmax(strength)), strength.shape)
        value = float(strength[spot])
        if found is None or value > found.strength:
            cut, e = int(spot[0]), int(spot[1])
            found = Bet(
                name, score, float(cuts[cut]), float(epsilons[e]), float(deltas[e]), 0.0, value,
                (float(p[cut]), float(q[cut])), (len(a), len(b)),
            )  # fmt: skip
    return None if found is None else _with_stake(found)


def _strength(
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    first: int,
    second: int,
    factors: NDArray[np.float64],
    deltas: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Excess over its standard error; rates are pulled in by a pseudo-count so that 0 has an error."""
    ps, qs = (p * first + 0.5) / (first + 1), (q * second + 0.5) / (second + 1)
    excess = p[:, None] - factors[None, :] * qs[:, None] - deltas[None, :]
    variance = (ps * (1 - ps) / first)[:, None] + factors[None, :] ** 2 * (qs * (1 - qs) / second)[
        :, None
    ]
    return np.asarray(excess / np.sqrt(variance))


def _with_stake(bet: Bet) -> Bet:
    """Kelly's stake at an excess shrunk for having been the largest of many: luck is not overbet."""
    if bet.strength <= _LUCK:
        return bet
    q = (bet.hits[1] * bet.seen[1] + 0.5) / (bet.seen[1] + 1)
    allowed = math.exp(min(bet.epsilon, 60.0)) * q + bet.delta
    p = allowed + (1 - (_LUCK / bet.strength) ** 2) * max(bet.hits[0] - allowed, 0.0)
    growth = _growth(min(p, 1.0), q, bet.epsilon, bet.delta, _FRACTIONS)
    spot = int(np.argmax(growth))
    return replace(bet, stake=float(_FRACTIONS[spot]) if growth[spot] > 0 else 0.0)


def _growth(
    p: float, q: float, epsilon: float, delta: float, stakes: NDArray[np.float64]
) -> NDArray[np.float64]:
    factor = math.exp(min(epsilon, 60.0))
    lam = stakes / (factor + delta)
    return np.asarray(
        p * q * np.log1p(lam * (1 - factor - delta))
        + p * (1 - q) * np.log1p(lam * (1 - delta))
        + (1 - p) * q * np.log1p(lam * (-factor - delta))
        + (1 - p) * (1 - q) * np.log1p(lam * -delta)
    )


def settle(bet: Bet, left: Encoded, right: Encoded) -> NDArray[np.float64]:
    """Return the logs of what the rounds of a batch of fresh outputs multiply the wealth by."""
    if bet.stake == 0:
        return np.zeros(min(len(left), len(right)))
    factor = math.exp(min(bet.epsilon, 60.0))
    lam = bet.stake / (factor + bet.delta)
    a, b = bet.holds(left), bet.holds(right)
    rounds = min(len(a), len(b))
    x = a[:rounds].astype(float) - factor * b[:rounds].astype(float) - bet.delta
    return np.asarray(np.log1p(lam * x))
