"""Test by betting.

Wealth grows only when the claim is false. For a claim ``P[A in S] <= e^eps P[B in S] + delta`` draw
one output from each side and bet on ``X = 1{A in S} - e^eps 1{B in S} - delta``. Under the claim E[X]
<= 0 whatever event, eps, direction and pair were chosen *from the past*, so the wealth is a
supermartingale and exceeds 1/beta with probability at most beta, at any stopping time (Ville). No
sample is split off, nothing is corrected for the number of events tried.

**Both ways in one round** (own). Neighbours are neighbours either way round, so the claim also bounds
``Y = 1{B in T} - e^eps' 1{A in T} - delta'`` by E[Y] <= 0, for any event T chosen from the past. The
round then multiplies the wealth by ``F = 1 + l X + m Y`` with l, m >= 0 chosen from the past:
E[F] = 1 + l E[X] + m E[Y] <= 1, whatever the dependence of X and Y (they share A and B), and
X >= -(e^eps + delta), Y >= -(e^eps' + delta'), so F >= 1 - l (e^eps + delta) - m (e^eps' + delta'),
which the stakes, two parts of at most .98 of the wealth together, keep positive. The wealth is a
supermartingale as before; on a one-dimensional Laplace release at eps = 1 it grows about 1.5 times
as fast as by one event alone.

Which event is bet on (``best_bet``), and how much (``with_stakes``): the proof asks of either
no more than that it looks at the past alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.claims.curves import Curve
from opendp_sim.audit.outputs.encoding import Encoded
from opendp_sim.audit.statistics.scores import LEARNED, Score


@dataclass(frozen=True)
class Bet:
    """Describe a bet by event, point of the claim and stake."""

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
    against: Bet | None = None
    """An event of the opposite direction, bet on in the same rounds with stakes of its own."""

    @property
    def worst(self) -> float:
        """Return the largest loss of a round, ``e^eps + delta``, in bets."""
        return math.exp(min(self.epsilon, 60.0)) + self.delta

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
    batches: int = 0
    unused: int = 0
    """Rounds of the last batch after the one that reached the goal: drawn, but not needed."""

    @property
    def log(self) -> float:
        """The logarithm of the wealth now; it began at 0."""
        return 0.0 if self.purses is None else float(np.logaddexp.reduce(self.purses))

    def add(self, changes: NDArray[np.float64], goal: float) -> bool:
        """Multiply in rounds, shape (players, rounds), until the goal."""
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
        self.unused = rounds - stop
        self.peak = max(self.peak, float(together[:stop].max()))
        # The players share the wealth, half of it after the first batch and 1/(k + 1) after the k-th:
        # what small samples mislead them to lose is made up for, and later winnings hardly shrink.
        self.batches += 1
        share = 1 / (self.batches + 1)
        even = float(together[stop - 1]) + math.log(share / players)
        self.purses = np.logaddexp(paths[:, stop - 1] + math.log1p(-share), even)
        return bool(reached.size)


def settle_bets(bet: Bet, left: Encoded, right: Encoded) -> NDArray[np.float64]:
    """Return the log-factors of each wealth on fresh outputs, (players, rounds)."""
    rounds = min(len(left), len(right))
    gain = _gain(bet, left, right, rounds)
    if bet.against is not None:
        gain = gain + _gain(bet.against, right, left, rounds)
    return np.asarray(np.log1p(gain))


def _gain(bet: Bet, left: Encoded, right: Encoded, rounds: int) -> NDArray[np.float64]:
    """Return stake times outcome, (players, rounds)."""
    if not any(bet.stakes):
        return np.zeros((len(bet.stakes), rounds))
    lam = np.array(bet.stakes) / bet.worst
    a, b = bet.holds(left)[:rounds].astype(float), bet.holds(right)[:rounds].astype(float)
    x = a - (bet.worst - bet.delta) * b - bet.delta
    return np.asarray(lam[:, None] * x)


# --------------------------------------------------------------------------------------------------
# The event of past outputs with the greatest excess over the claim.


_CUTS = np.concatenate(
    [np.geomspace(0.002, 0.1, 8), np.linspace(0.15, 0.85, 15), 1 - np.geomspace(0.1, 0.002, 8)]
)


def best_bet(
    scores: dict[str, Score], left: Encoded, right: Encoded, curve: Curve, hold_out: slice
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
        strength = _strength(p, q, (len(a), len(b)), factors, deltas)
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
            )
    return None if found is None else with_stakes(found)


def _strength(
    p: NDArray[np.float64],
    q: NDArray[np.float64],
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
    return np.asarray(excess / np.sqrt(variance))


# --------------------------------------------------------------------------------------------------
# Kelly's stakes at an excess shrunk for selection.


DOUBT = 2.0
"""Pseudo-count of either outcome of an event: few outputs look like a sure thing to a learner."""
_FRACTIONS = np.concatenate([np.geomspace(1e-4, 0.2, 24), np.linspace(0.25, 0.98, 20)])
LUCK = (1.5, 2.5, 3.5, math.inf)
"""Strength that the best of many events has by luck: a bold, a middling and a careful player's guess,
and that of one who never bets and so keeps what the others lose."""


def with_stakes(bet: Bet) -> Bet:
    """Return the bet with each player's Kelly stake at shrunk excess."""
    q = (bet.hits[1] * bet.seen[1] + DOUBT) / (bet.seen[1] + 2 * DOUBT)
    allowed = math.exp(min(bet.epsilon, 60.0)) * q + bet.delta
    excess = max(bet.hits[0] - allowed, 0.0)
    return replace(bet, stakes=tuple(_stake(bet, q, allowed, excess, luck) for luck in LUCK))


def _stake(bet: Bet, q: float, allowed: float, excess: float, luck: float) -> float:
    if bet.strength <= luck:
        return 0.0
    p = min(allowed + (1 - (luck / bet.strength) ** 2) * excess, 1.0)
    growth = _growth(p, q, (bet.epsilon, bet.delta), _FRACTIONS)
    spot = int(np.argmax(growth))
    return float(_FRACTIONS[spot]) if growth[spot] > 0 else 0.0


def _growth(
    p: float, q: float, claim: tuple[float, float], stakes: NDArray[np.float64]
) -> NDArray[np.float64]:
    (epsilon, delta), both = claim, p * q
    factor = math.exp(min(epsilon, 60.0))
    lam = stakes / (factor + delta)
    return np.asarray(
        both * np.log1p(lam * (1 - factor - delta))
        + (p - both) * np.log1p(lam * (1 - delta))
        + (q - both) * np.log1p(lam * (-factor - delta))
        + (1 - p - q + both) * np.log1p(lam * -delta)
    )


def both_ways(bet: Bet, other: Bet | None, left: Encoded, right: Encoded) -> Bet:
    """Join a bet with one of the opposite direction.

    Each player sets both stakes anew.
    """
    if other is None:
        return bet
    cells = [2 * bet.holds(side).astype(np.int64) + other.holds(side) for side in (left, right)]
    mass = np.outer(*map(_frequencies, cells))
    chosen = [_two_stakes(bet, other, mass, luck) for luck in LUCK]
    mine = tuple(s if t == 0 else t for s, (t, _) in zip(bet.stakes, chosen, strict=True))
    against = replace(other, stakes=tuple(t for _, t in chosen))
    return replace(bet, stakes=mine, against=against) if any(against.stakes) else bet


def _frequencies(cells: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return smoothed frequencies of four cells."""
    counts = np.bincount(cells, minlength=4) + 1 / 4
    return np.asarray(counts / counts.sum())


def _two_stakes(
    bet: Bet, other: Bet, mass: NDArray[np.float64], luck: float
) -> tuple[float, float]:
    """Return Kelly's stakes of two bets, or zeros."""
    if other.strength <= luck or bet.strength <= luck:
        return 0.0, 0.0
    hits = np.array([0.0, 1.0])
    a = np.arange(4)[:, None]
    b = np.arange(4)[None, :]
    scores, sure, parts = [], [], []
    for one, mine, its in ((bet, hits[a // 2], hits[b // 2]), (other, hits[b % 2], hits[a % 2])):
        factor = math.exp(min(one.epsilon, 60.0))
        excess = one.hits[0] - factor * one.hits[1] - one.delta
        scores.append((mine - factor * its - one.delta) / one.worst)
        sure.append(max(0.0, (1 - (luck / one.strength) ** 2) * excess) / one.worst)
        error = excess / one.strength / one.worst
        parts.append(sure[-1] / max(error * error * one.seen[0], 1e-300))
    share = np.array(parts) / max(sum(parts), 1e-300)
    together = share[0] * scores[0] + share[1] * scores[1]
    # what luck is thought to have added to the mean is taken out again, to first order
    surplus = float((mass * together).sum()) - float(share.dot(np.array(sure)))
    growth = np.array(
        [float((mass * np.log1p(t * together)).sum()) - t * surplus for t in _FRACTIONS]
    )
    spot = int(np.argmax(growth))
    if growth[spot] <= 0:
        return 0.0, 0.0
    return float(_FRACTIONS[spot] * share[0]), float(_FRACTIONS[spot] * share[1])
