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
_LUCK = (1.5, 2.5, 3.5)
"""Strength that the best of many events has by luck: a bold, a middling and a careful player's guess."""
_SHARE = 0.03
"""Part of the wealth that the players share evenly after each batch: none is ruined for good."""
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
    stakes: tuple[float, ...]
    """One for each player: they bet on the same event and differ in how much."""
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
    """The wealth of all players together, in logs, and its peak.

    A mean of supermartingales is one, and so is what is left after the players share between batches.
    """

    peak: float = 0.0
    rounds: int = 0
    purses: NDArray[np.float64] | None = None

    @property
    def log(self) -> float:
        """The logarithm of the wealth now; it began at 0."""
        return 0.0 if self.purses is None else float(np.logaddexp.reduce(self.purses))

    def add(self, changes: NDArray[np.float64], goal: float) -> bool:
        """Multiply in the rounds of a batch, shape (players, rounds); stop where the goal is reached."""
        players, rounds = changes.shape
        if rounds == 0:
            return False
        if self.purses is None:
            self.purses = np.full(players, -math.log(players))
        paths = self.purses[:, None] + np.cumsum(changes, axis=1)
        together = np.logaddexp.reduce(paths, axis=0)
        reached = np.flatnonzero(together >= goal)
        stop = int(reached[0]) + 1 if reached.size else rounds
        self.rounds += stop
        self.peak = max(self.peak, float(together[:stop].max()))
        even = float(together[stop - 1]) + math.log(_SHARE / players)
        self.purses = np.logaddexp(paths[:, stop - 1] + math.log1p(-_SHARE), even)
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
                name, score, float(cuts[cut]), float(epsilons[e]), float(deltas[e]),
                (0.0,) * len(_LUCK), value, (float(p[cut]), float(q[cut])), (len(a), len(b)),
            )  # fmt: skip
    return None if found is None else _with_stakes(found)


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


def _with_stakes(bet: Bet) -> Bet:
    """Kelly's stake of each player, at an excess shrunk for having been the largest of many."""
    q = (bet.hits[1] * bet.seen[1] + 0.5) / (bet.seen[1] + 1)
    allowed = math.exp(min(bet.epsilon, 60.0)) * q + bet.delta
    excess = max(bet.hits[0] - allowed, 0.0)
    return replace(bet, stakes=tuple(_stake(bet, q, allowed, excess, luck) for luck in _LUCK))


def _stake(bet: Bet, q: float, allowed: float, excess: float, luck: float) -> float:
    if bet.strength <= luck:
        return 0.0
    p = min(allowed + (1 - (luck / bet.strength) ** 2) * excess, 1.0)
    growth = _growth(p, q, bet.epsilon, bet.delta, _FRACTIONS)
    spot = int(np.argmax(growth))
    return float(_FRACTIONS[spot]) if growth[spot] > 0 else 0.0


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
    """Return the logs of what the rounds of fresh outputs multiply each wealth by: (players, rounds)."""
    rounds = min(len(left), len(right))
    if not any(bet.stakes):
        return np.zeros((len(bet.stakes), rounds))
    factor = math.exp(min(bet.epsilon, 60.0))
    lam = np.array(bet.stakes) / (factor + bet.delta)
    a, b = bet.holds(left), bet.holds(right)
    x = a[:rounds].astype(float) - factor * b[:rounds].astype(float) - bet.delta
    return np.asarray(np.log1p(lam[:, None] * x))
