"""What the selection mechanisms share: their coins, their parameters, outward sums.

Every random choice of a selection mechanism is one of the methods of ``Coins``. OpenDP answers them
in production; a test answers them with exact probabilities and so enumerates the whole output
distribution of the very code that runs. A stability test asks only whether noise reaches a number,
so its tree of choices is finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core import dp
from opendp_sim.core.errors import BudgetError, ParameterError
from opendp_sim.core.rounding import float_up
from opendp_sim.noise.parts.bulk import AUTO_CELLS
from opendp_sim.noise.parts.sampling_noise import add_gaussian, add_laplace, add_rounded
from opendp_sim.top_k.parts.gate_tail import lead_of
from opendp_sim.top_k.parts.gaussian_tail import tail_of, threshold_for
from opendp_sim.top_k.parts.open_draw import draw_listed, draw_open

__all__ = [
    "ACCOUNTING",
    "DELTA",
    "DISTANCE",
    "OPENDP",
    "SCALE",
    "Accounting",
    "Coins",
    "choice_rho",
    "gate_noise",
    "gaussian_rho",
    "need_cover",
    "passes_beyond",
    "peel_rho",
    "threshold_of",
    "up",
]

_CELLS = "i64"
_MONOTONE, _PLAIN = (dp.linf_distance(T="i64", monotonic=m) for m in (True, False))

_GROUPED = 2_000
"""From this many candidates on, equal counts are drawn as one group: same law, less work."""

Accounting = Literal["zcdp", "curve"]

SCALE: dict[str, Any] = {
    "unit": "votes",
    "ge": 2.0**-60,
    "le": 2.0**40,
    "hint": "the language solves it from the budget: leave it out, or write `scale: solve`; if no "
    "scale fits, `distance` is below the unit's d_in, or delta's reserve too small.",
}
DELTA: dict[str, Any] = {
    "unit": "probability",
    "ge": 1e-100,
    "le": 0.1,
    "hint": "well below one over the number of users: 1e-6, or half of the budget's delta.",
}
DISTANCE: dict[str, Any] = {
    "symbol": "c",
    "unit": "users",
    "default": 1,
    "ge": 1,
    "le": 1000,
    "hint": "the unit's d_in: 2 for a replaced user; a spec that leaves it out gets that.",
}
ACCOUNTING: dict[str, Any] = {
    "symbol": "-",
    "unit": "none",
    "default": "zcdp",
    "hint": "curve for a single release: the exact (epsilon, delta) curve, 5 to 15 % less noise; "
    "zcdp when releases are composed.",
}


class Coins(Protocol):
    """The random choices of selection."""

    def reaches(self, scale: float, least: int) -> bool:
        """Say whether discrete Gaussian noise is at least ``least``."""
        ...

    def gate_reaches(self, right: float, left: float, least: int) -> bool:
        """Say whether the noise of ``top_k/parts/gate_tail.py`` is at least ``least``."""
        ...

    def best(self, scores: NDArray[np.int64], scale: float) -> int:
        """Draw one index with probability proportional to ``exp(score / scale)``."""
        ...

    def top(
        self, scores: NDArray[np.int64], rounds: int, scale: float, *, lowest: bool = False
    ) -> Sequence[int]:
        """Draw ``rounds`` indices, each like ``best`` among those left; from the bottom if asked."""
        ...

    def in_order(self, scores: NDArray[np.int64], rounds: int, scale: float) -> list[int]:
        """Draw like ``top``, and tell the order in which they were drawn."""
        ...

    def top_open(
        self, votes: NDArray[np.int64], universe: int, rounds: int, scale: float
    ) -> Sequence[tuple[bool, int]]:
        """Draw like ``top`` from ``universe`` candidates of which all but ``votes`` have no vote.

        Returns (whether it occurs, its place among those that occur or among those that do not).
        """
        ...

    def noisy_best(self, scores: NDArray[np.int64], scale: float) -> int:
        """Return the first index with the largest score plus discrete Gaussian noise."""
        ...

    def noisy(self, scores: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """Return the scores plus discrete Gaussian noise."""
        ...

    def noisy_above(
        self, noise: str, scores: NDArray[np.int64], scale: float, least: int, *, tells: bool
    ) -> NDArray[np.int64]:
        """Return scores plus such noise, from ``least - 1`` on; not above ``least`` without ``tells``."""
        ...

    def laplace(self, scale: float) -> int:
        """Return discrete Laplace noise."""
        ...

    def laplace_reaches(self, scale: float, least: int) -> bool:
        """Say whether discrete Laplace noise is at least ``least``."""
        ...


class _OpenDP:
    """Coins from OpenDP's samplers."""

    def reaches(self, scale: float, least: int) -> bool:
        return bool(_scalar_gaussian(scale)(0) >= least)

    def gate_reaches(self, right: float, left: float, least: int) -> bool:
        return gate_noise(right, left) >= least

    def best(self, scores: NDArray[np.int64], scale: float) -> int:
        return int(_noisy_max(scale)(scores))

    def top(
        self, scores: NDArray[np.int64], rounds: int, scale: float, *, lowest: bool = False
    ) -> Sequence[int]:
        if not rounds:
            return []
        if len(scores) >= _GROUPED:
            return draw_listed(scores, rounds, scale, lowest=lowest)
        return list(_noisy_top(rounds, scale, lowest)(scores))

    def in_order(self, scores: NDArray[np.int64], rounds: int, scale: float) -> list[int]:
        return list(_noisy_top(rounds, scale, lowest=False)(scores))

    def top_open(
        self, votes: NDArray[np.int64], universe: int, rounds: int, scale: float
    ) -> Sequence[tuple[bool, int]]:
        return draw_open(votes, universe, rounds, scale)

    def noisy_best(self, scores: NDArray[np.int64], scale: float) -> int:
        return int(np.argmax(self.noisy(scores, scale)))

    def noisy(self, scores: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        if len(scores) >= AUTO_CELLS:
            return add_gaussian(scores, ((len(scores), Fraction(scale)),))
        return np.asarray(_vector_gaussian(scale)(scores), dtype=np.int64)

    def noisy_above(
        self, noise: str, scores: NDArray[np.int64], scale: float, least: int, *, tells: bool
    ) -> NDArray[np.int64]:
        add = add_rounded if noise == "gaussian" else add_laplace
        noisy = add(scores, ((len(scores), Fraction(scale)),))
        return np.clip(noisy, least - 1, None if tells else least)

    def laplace(self, scale: float) -> int:
        return int(_scalar_laplace(scale)(0))

    def laplace_reaches(self, scale: float, least: int) -> bool:
        return self.laplace(scale) >= least


OPENDP: Coins = _OpenDP()


def gate_noise(right: float, left: float) -> int:
    """Draw the noise of ``top_k/parts/gate_tail.py`` (Lemma 2 of ``gate_tail.md``)."""
    up = _not_negative(_scalar_laplace(right), 0)
    return up - _not_negative(_scalar_gaussian(left), lead_of(left))


def _not_negative(noise: dp.Measurement, center: int) -> int:
    """Draw ``center`` plus noise until the sum is not negative."""
    while (drawn := int(noise(center))) < 0:
        pass
    return drawn


def _vector() -> dp.Domain:
    return dp.vector_domain(dp.atom_domain(T=_CELLS))


@lru_cache(maxsize=256)
def _scalar_gaussian(scale: float) -> dp.Measurement:
    return dp.m.make_gaussian(dp.atom_domain(T=_CELLS), dp.absolute_distance(T=_CELLS), scale)


@lru_cache(maxsize=256)
def _scalar_laplace(scale: float) -> dp.Measurement:
    return dp.m.make_laplace(dp.atom_domain(T=_CELLS), dp.absolute_distance(T=_CELLS), scale)


@lru_cache(maxsize=256)
def _vector_gaussian(scale: float) -> dp.Measurement:
    return dp.m.make_gaussian(_vector(), dp.l2_distance(T=float), scale)


@lru_cache(maxsize=256)
def _noisy_max(scale: float) -> dp.Measurement:
    return dp.m.make_noisy_max(_vector(), _PLAIN, dp.zero_concentrated_divergence(), scale=scale)


@lru_cache(maxsize=256)
def _noisy_top(rounds: int, scale: float, lowest: bool) -> dp.Measurement:
    return dp.m.make_noisy_top_k(
        _vector(),
        _MONOTONE,
        dp.zero_concentrated_divergence(),
        k=rounds,
        scale=scale,
        negate=lowest,
    )


# --- maps, all OpenDP's own and added outward -------------------------------------------------------


def gaussian_rho(scale: float, users: int, norm: float = 1.0) -> float:
    """Return OpenDP's loss of a Gaussian at L2 distance ``users * norm``."""
    return float(_vector_gaussian(scale).map(float_up(Fraction(norm) * users)))


def choice_rho(scale: float, users: int) -> float:
    """Return OpenDP's loss of one draw over scores that each move by at most ``users``."""
    return float(_noisy_max(scale).map(users))


def peel_rho(rounds: int, scale: float, users: int) -> float:
    """Return OpenDP's loss of ``rounds`` draws over counts that ``users`` users move."""
    return float(_noisy_top(rounds, scale, False).map(users)) if rounds else 0.0


def up(*parts: float) -> float:
    """Return a float that is at least the sum."""
    return float_up(sum((Fraction(part) for part in parts), Fraction(0)))


def threshold_of(key: str, scale: float, delta: float, distance: int) -> int:
    """Return the threshold that ``distance`` users' difference reaches with probability delta."""
    try:
        return threshold_for(scale, delta, distance)
    except OverflowError:
        raise ParameterError(
            "OS102", f"{key}.scale", expected="a scale whose threshold is below 2**62", got=scale,
            hint="ask for a larger budget.",
        ) from None  # fmt: skip


def passes_beyond(key: str, scale: float, threshold: int, users: int) -> float:
    """Bound the probability that a test passes on one of two datasets whose sets differ.

    Raises:
        BudgetError (OS404): see ``need_cover``.
    """
    need_cover(key, threshold, users)
    return float(tail_of(scale)(threshold - users)) if users else 0.0


def need_cover(key: str, threshold: int, users: int) -> None:
    """Refuse a distance at which the gap alone may reach the threshold.

    Raises:
        BudgetError (OS404): so many users; the test no longer says anything.
    """
    if users >= threshold:
        raise BudgetError(
            "OS404", f"{key}.map", expected=f"an input distance below {threshold} users", got=users,
            hint="set `distance` to the number of users you mean to hide; the threshold follows it.",
        )  # fmt: skip
