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

**Noise in common** (``common_noise.py``). Nothing above asks that A and B be independent. Where
they share
their noise, how often both are in the event is counted too: strength and stakes follow it.

Which event is bet on is chosen in ``events.py``, and how much in ``kelly.py``: the proof asks of either
no more than that it looks at the past alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.outputs.encoding import Encoded
from opendp_sim.audit.statistics.scores import Score


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
    both: float | None = None
    """Estimated probability that both outputs of a round are in the event, where they are coupled."""
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
