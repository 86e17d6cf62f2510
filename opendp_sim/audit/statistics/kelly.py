"""Compute Kelly's stakes at an excess shrunk for selection."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.outputs.encoding import Encoded
from opendp_sim.audit.statistics.betting import Bet

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
    both = p * q if bet.both is None else max(p * q, min(bet.both, p, q), p + q - 1)
    growth = _growth(p, q, both, (bet.epsilon, bet.delta), _FRACTIONS)
    spot = int(np.argmax(growth))
    return float(_FRACTIONS[spot]) if growth[spot] > 0 else 0.0


def _growth(
    p: float, q: float, both: float, claim: tuple[float, float], stakes: NDArray[np.float64]
) -> NDArray[np.float64]:
    epsilon, delta = claim
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
    if bet.both is None:
        mass = np.outer(_frequencies(cells[0], 4), _frequencies(cells[1], 4))
    else:
        mass = _frequencies(4 * cells[0] + cells[1], 16).reshape(4, 4)
    chosen = [_two_stakes(bet, other, mass, luck) for luck in LUCK]
    mine = tuple(s if t == 0 else t for s, (t, _) in zip(bet.stakes, chosen, strict=True))
    against = replace(other, stakes=tuple(t for _, t in chosen))
    return replace(bet, stakes=mine, against=against) if any(against.stakes) else bet


def _frequencies(cells: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return smoothed frequencies of cells."""
    counts = np.bincount(cells, minlength=count) + 1 / count
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
