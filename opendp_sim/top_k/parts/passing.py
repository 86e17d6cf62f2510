"""What noise on counts tells beside a threshold: items of one side that pass, and the rest's curve.

Two laws of integer noise, each with a tail for items that occur on one side only and a privacy
profile for counts that differ by a number of votes. Proofs: ``noise_threshold.md``, one folder up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, Protocol

from opendp_sim.accounting.gaussian_curve import delta_up
from opendp_sim.accounting.normal_tail import upper_tail
from opendp_sim.core.on_use import special
from opendp_sim.core.rounding import float_up, least_int

__all__ = ["Apart", "Law", "law_of", "least_passing", "passes", "profile"]

_SLACK = 1 + 1e-12
"""Relative room for a few rounded operations; the true error is under 2e-13."""
_TINY = 1e-300
"""Added where a positive chance may round to 0."""
_BITS = 60


@dataclass(frozen=True)
class Apart:
    """How far apart counts may be: by ``users`` users of at most ``items`` items each."""

    users: int
    items: int

    @property
    def total(self) -> int:
        """The most votes that come or go."""
        return self.users * self.items


class Law(Protocol):
    """Noise on one count."""

    def tail(self, j: int) -> float:
        """Bound ``Pr[N >= j]`` for j >= 1 from above."""
        ...

    def reach(self, chance: float) -> float:
        """Return about the x with ``Pr[N >= -x] = chance``, for a chance of at least one half."""
        ...

    def rho(self, apart: Apart, votes: int) -> float:
        """Bound the zero-concentrated loss of counts that differ by ``votes`` votes in all."""
        ...

    def delta(self, apart: Apart, votes: int, epsilon: float) -> float:
        """Bound their privacy profile at ``epsilon >= 0``."""
        ...


@dataclass(frozen=True)
class _Gaussian:
    scale: float

    def tail(self, j: int) -> float:
        """``Pr[round(s Z) >= j]``, the normal tail at ``(j - 1/2) / s``."""
        return _normal_tail(self.scale, j)

    def reach(self, chance: float) -> float:
        """A quantile of the normal law."""
        return float(special.ndtri(chance)) * self.scale

    def rho(self, apart: Apart, votes: int) -> float:
        """Half the squared distance over the variance (Lemma 3)."""
        return float_up(self._square(apart, votes) / 2)

    def delta(self, apart: Apart, votes: int, epsilon: float) -> float:
        """The exact curve of Gaussian DP at the largest squared distance (Lemma 3)."""
        return delta_up(self._square(apart, votes), epsilon) if votes else 0.0

    def _square(self, apart: Apart, votes: int) -> Fraction:
        return apart.users * votes / Fraction(self.scale) ** 2


@dataclass(frozen=True)
class _Laplace:
    scale: float

    def tail(self, j: int) -> float:
        """``q**j / (1 + q)`` with q = exp(-1 / s)."""
        return math.exp(-j / self.scale) / (1 + math.exp(-1 / self.scale)) * _SLACK + _TINY

    def reach(self, chance: float) -> float:
        """A quantile of the law without its rounding to whole numbers."""
        return -self.scale * math.log(2 * (1 - chance))

    def rho(self, apart: Apart, votes: int) -> float:  # noqa: ARG002 - L1 counts votes alone
        """Half the square of the pure loss."""
        return float_up((votes / Fraction(self.scale)) ** 2 / 2)

    def delta(self, apart: Apart, votes: int, epsilon: float) -> float:  # noqa: ARG002
        """The largest profile of anything with this pure loss: that of randomised response."""
        pure = float_up(votes / Fraction(self.scale))
        if epsilon >= pure:
            return 0.0
        found = -math.expm1(epsilon - pure) / (1 + math.exp(-pure))
        return min(1.0, found * _SLACK + _TINY)


@lru_cache(maxsize=4096)
def _normal_tail(scale: float, j: int) -> float:
    return float_up(upper_tail((Fraction(2 * j - 1, 2) / Fraction(scale)) ** 2, _BITS)[1])


def law_of(noise: Literal["gaussian", "laplace"], scale: float) -> Law:
    """Return the law of the noise on one count."""
    return _Gaussian(scale) if noise == "gaussian" else _Laplace(scale)


def passes(law: Law, threshold: int, apart: Apart, votes: int) -> float:
    """Bound the chance that any item of one side alone passes, where these have ``votes`` votes.

    Lemma 2: a vote alone on its item, or the votes of all users together, whichever adds more a vote.
    """
    if votes == 0:
        return 0.0
    alone = -math.log1p(-law.tail(threshold - 1))
    together = -math.log1p(-law.tail(threshold - apart.users)) / apart.users
    return min(1.0, -math.expm1(-votes * max(alone, together)) * _SLACK + _TINY)


def least_passing(law: Law, delta: float, apart: Apart) -> int:
    """Return the least threshold above ``apart.users`` that items of one side pass by ``delta``."""
    return apart.users + least_int(
        lambda above: passes(law, apart.users + above, apart, apart.total) <= delta
    )


def profile(law: Law, threshold: int, apart: Apart, epsilon: float) -> float:
    """Bound the whole release's profile at ``epsilon``: the worst split of the votes (Lemma 4)."""
    worst, first = law.delta(apart, apart.total, epsilon), 1
    while first <= apart.total:  # of first to last votes on items of one side
        last = min(2 * first - 1, apart.total if first == apart.total else apart.total - 1)
        alone = passes(law, threshold, apart, last)
        both = alone + (1 - alone) * law.delta(apart, apart.total - first, epsilon)
        worst, first = max(worst, both * _SLACK), last + 1
    return min(1.0, worst)
