"""A tester of integer noise laws: tallies draws block by block, then gives named p-values.

Chi-square over the body (every cell expects at least a thousand draws); exact binomials for tails,
signs, binary digits, and for agreement of pairs at several lags.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy import special, stats

LAGS = (1, 2, 7, 64, 4096, 65536)
BODY_CELLS = 100
LEAST_EXPECTED = 1000
TAILS = (1e-2, 1e-3, 1e-4, 1e-5)


@dataclass(frozen=True)
class Law:
    """The target law: exact tail function, independent of the samplers' arithmetic."""

    family: str
    scale: float

    def upper_tail(self, k):
        """P[X >= k] for integer arrays k >= 0."""
        k = np.asarray(k, np.float64)
        if self.family == "laplace":
            q = math.exp(-1 / self.scale)
            return np.where(k <= 0, 1 / (1 + q), np.exp(-k / self.scale) / (1 + q))
        if self.family == "rounded":
            return np.where(
                k <= 0, special.ndtr(0.5 / self.scale), special.ndtr(-(k - 0.5) / self.scale)
            )
        if self.scale > 2e4:  # Euler-Maclaurin: relative error below 1 / (24 scale**2)
            return special.ndtr(-(k - 0.5) / self.scale)
        sums = _gaussian_sums(self.scale)
        return sums[np.minimum(k, sums.size - 1).astype(np.int64)]

    def magnitude_tail(self, k):
        """P[|X| >= k] for integer arrays k >= 1; 1 at 0."""
        return np.where(np.asarray(k) <= 0, 1.0, 2 * self.upper_tail(k))

    def cut(self, probability: float) -> int:
        """The least k with P[|X| >= k] <= probability."""
        low, high = 0, 1
        while self.magnitude_tail(high) > probability:
            high *= 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (low, middle) if self.magnitude_tail(middle) <= probability else (middle, high)
            )
        return high


@lru_cache
def _gaussian_sums(scale):
    weights = np.exp(-(np.arange(int(40 * scale) + 40) ** 2) / (2 * scale**2))
    return np.cumsum(weights[::-1])[::-1] / (2 * weights.sum() - 1)


def _merged(counts, expected):
    """Merge cells from the tail inward until each expects at least a thousand draws."""
    cells, held = [], np.zeros(2)
    for cell in np.stack([counts, expected], axis=1)[::-1]:
        held = held + cell
        if held[1] >= LEAST_EXPECTED:
            cells.append(held)
            held = np.zeros(2)
    if held[1] and cells:
        cells[-1] = cells[-1] + held
    return np.array(cells).reshape(-1, 2).T


@dataclass
class Tally:
    """Counts of one sampler's draws against one law."""

    law: Law
    draws: int = 0
    edges: np.ndarray = field(init=False)
    counts: np.ndarray = field(init=False)
    tails: dict = field(init=False)
    signs: list = field(default_factory=lambda: [0, 0])
    digits: np.ndarray = field(default_factory=lambda: np.zeros(10, np.int64))
    pairs: dict = field(default_factory=lambda: {lag: [0, 0, 0, 0] for lag in LAGS})

    def __post_init__(self):
        self.edges = np.unique(
            [0] + [self.law.cut(1 - i / BODY_CELLS) for i in range(1, BODY_CELLS)]
        )
        self.counts = np.zeros(self.edges.size, np.int64)
        self.tails = {self.law.cut(p): 0 for p in TAILS}

    def add(self, block):
        block = np.asarray(block)
        size = np.abs(block)
        self.draws += size.size
        self.counts += np.bincount(
            np.searchsorted(self.edges, size, side="right") - 1, minlength=self.edges.size
        )
        for edge in self.tails:
            self.tails[edge] += int((size >= edge).sum())
        nonzero = size[size > 0] - 1
        positive = int((block > 0).sum())
        self.signs[0] += positive
        self.signs[1] += nonzero.size - positive
        for digit in range(self.digits.size):
            self.digits[digit] += int((nonzero >> digit & 1).sum())
        median = self.median
        for lag, tally in self.pairs.items():
            half = block[: block.size // (2 * lag) * 2 * lag].reshape(-1, 2, lag)
            for at, flags in ((0, np.sign(half)), (2, 2 * (np.abs(half) >= median) - 1)):
                product = flags[:, 0] * flags[:, 1]
                tally[at] += int((product > 0).sum())
                tally[at + 1] += int((product != 0).sum())

    @property
    def median(self) -> int:
        return max(1, self.law.cut(0.5))

    def p_values(self) -> dict[str, float]:
        out = {}
        tails = self.law.magnitude_tail(self.edges)
        counts, expected = _merged(self.counts, self.draws * (tails - np.append(tails[1:], 0.0)))
        if expected.size > 1:
            statistic = float(((counts - expected) ** 2 / expected).sum())
            out["body"] = float(stats.chi2.sf(statistic, expected.size - 1))
        for edge, count in self.tails.items():
            out[f"tail {edge}"] = binomial(count, self.draws, float(self.law.magnitude_tail(edge)))
        nonzero = sum(self.signs)
        out["sign"] = binomial(self.signs[0], nonzero, 0.5)
        if self.law.family == "laplace":
            for digit, count in enumerate(self.digits.tolist()):
                chance = float(special.expit(-(2.0**digit) / self.law.scale))
                out[f"digit {digit}"] = binomial(count, nonzero, chance)
        far = float(self.law.magnitude_tail(self.median))
        for lag, (agree, pairs, near, all_pairs) in self.pairs.items():
            out[f"lag {lag} sign"] = binomial(agree, pairs, 0.5)
            out[f"lag {lag} size"] = binomial(near, all_pairs, far**2 + (1 - far) ** 2)
        return out

    def worst(self) -> tuple[str, float]:
        """Name and Bonferroni-corrected p-value of the worst test."""
        values = self.p_values()
        name = min(values, key=values.__getitem__)
        return name, min(1.0, values[name] * len(values))


def binomial(count: int, trials: int, chance: float) -> float:
    """Two-sided exact binomial p-value (twice the smaller tail)."""
    if trials == 0:
        return 1.0
    low = stats.binom.cdf(count, trials, chance)
    high = stats.binom.sf(count - 1, trials, chance)
    return float(min(1.0, 2 * min(low, high)))


def tallied(draw, law: Law, draws: int, block: int = 1 << 20) -> Tally:
    """Tally ``draws`` draws of ``draw(count)``."""
    tally = Tally(law)
    while tally.draws < draws:
        tally.add(draw(min(block, draws - tally.draws)))
    return tally
