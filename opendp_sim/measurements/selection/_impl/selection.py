"""Share the random choices and parameters of selection mechanisms.

And outward sums. Every random choice of a selection mechanism is one of the methods of ``Choices``.
OpenDP answers them in production; a test answers them with exact probabilities and so enumerates the
whole output distribution of the very code that runs. A stability test asks only whether noise reaches
a number, so its tree of choices is finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import islice, pairwise
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core import dp
from opendp_sim.core.arithmetic.exp_bounds import exp_neg_bounds
from opendp_sim.core.arithmetic.rounding import float_up
from opendp_sim.core.errors import BudgetError, ParameterError
from opendp_sim.core.mechanism import param
from opendp_sim.core.randomness import private_bytes
from opendp_sim.measurements.noise._impl.bulk import AUTO_CELLS
from opendp_sim.measurements.noise._impl.samplers import add_gaussian, add_laplace, add_rounded
from opendp_sim.measurements.selection._impl.gate_tail import lead_of
from opendp_sim.measurements.selection._impl.gaussian_tail import tail_of, threshold_for

# --------------------------------------------------------------------------------------------------
# The exponential mechanism over very many candidates, listed or not, drawn exactly.
#
# Candidates with equal counts are exchangeable, so a draw is two draws: a count, with probability
# proportional to (how many have it) * exp(count / scale), and then one of them, uniformly. The first is
# settled by comparing random bits with certified bounds, and refined until they decide. Proof:
# Lemmas 3 and 4 of ``peel.md``, beside this file.

_START = 96
"""Fractional bits of the first attempt; each further one doubles them."""
_GUARD = 32
"""Bits by which weights are known better than the draw that they settle."""


def draw_open(
    votes: NDArray[np.int64], universe: int, rounds: int, scale: float
) -> list[tuple[bool, int]]:
    """Draw different candidates one after another (Lemma 3 of ``peel.md``).

    Those that occur have ``votes`` (m,) of at least 1 each, the other N - m of ``universe`` none; b is
    ``scale`` in ``exp(count / b)``. Returns (occurs, place): place among ``votes``, or the rank among
    the candidates that do not occur.
    """
    counts, sizes = _counted(np.asarray(votes))
    if universe > len(votes):
        counts, sizes = [*counts, 0], [*sizes, universe - len(votes)]
    groups = Groups(counts, sizes, Fraction(scale))
    urns: dict[int, tuple[NDArray[np.int64] | None, _Urn]] = {}
    out = []
    for _ in range(rounds):
        group = groups.pick()
        if group not in urns:
            absent = counts[group] == 0
            members = None if absent else np.flatnonzero(votes == counts[group])
            urns[group] = members, _Urn(sizes[group])
        members, urn = urns[group]
        place = urn.draw()
        out.append((False, place) if members is None else (True, int(members[place])))
        groups.remove(group)
    return out


def draw_listed(
    scores: NDArray[np.int64], rounds: int, scale: float, *, lowest: bool = False
) -> list[int]:
    """Draw ``rounds`` different indices one after another; any whole scores."""
    votes = (scores.max() - scores if lowest else scores - scores.min()) + 1
    return [place for _, place in draw_open(votes, len(votes), rounds, scale)]


def _counted(votes: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Return the distinct counts, falling, and how many candidates have each."""
    ranked = np.sort(votes)
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], len(ranked) > 0))
    return ranked[ends][::-1].tolist(), np.diff(ends, prepend=-1)[::-1].tolist()


class _Urn:
    """Draw numbers 0 .. size - 1 uniformly without replacement."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._moved: dict[int, int] = {}

    def draw(self) -> int:
        at = uniform_below(self._left)
        self._left -= 1
        found = self._moved.get(at, at)
        self._moved[at] = self._moved.pop(self._left, self._left)
        return found


@dataclass
class _Weights:
    """Hold groups' powers and the totals of their candidates.

    From the top down.

    Attributes:
        powers: (lower, upper) bounds.
        lowest: lower bound on the weight of what is left.
        highest: upper bound on it.
        near: how many candidates are left.
    """

    powers: list[tuple[int, int]]
    lowest: int
    highest: int
    near: int


class Groups:
    """Group candidates with equal counts, drawn by size and count."""

    def __init__(self, counts: list[int], sizes: list[int], scale: Fraction) -> None:
        """Take falling counts and the number of candidates that have each."""
        self._sizes, self._all = list(sizes), sum(sizes)
        self._steps, self._scale = [a - b for a, b in pairwise(counts)], scale
        self._spare = self._all.bit_length() + _GUARD
        self._top = 0
        self._known: dict[int, _Weights] = {}

    def remove(self, group: int) -> None:
        """Take one candidate out of a group."""
        self._sizes[group] -= 1
        self._all -= 1
        for weights in self._known.values():
            at = group - self._top
            if at < len(weights.powers):
                weights.lowest -= weights.powers[at][0]
                weights.highest -= weights.powers[at][1]
                weights.near -= 1

    def pick(self) -> int:
        """Draw g with probability proportional to ``sizes[g] * exp(counts[g] / scale)`` (Lemma 4)."""
        bits, drawn, known = _START, 0, 0
        while True:
            fresh = bits - known
            drawn = (drawn << fresh) | int.from_bytes(private_bytes(fresh // 8).tobytes(), "big")
            known = bits
            found = self.settled(drawn, bits)
            if found is None and not self._sizes[self._top]:
                self._lower_top()
                found = self.settled(drawn, bits)
            if found is not None:
                return found
            bits *= 2

    def settled(self, drawn: int, bits: int) -> int | None:
        """Return the group with [drawn, drawn + 1) / 2**bits, or None."""
        weights = self._weights(bits)
        far = self._all - weights.near  # so far below the top that each weighs one unit at most
        surely, surely_not = (drawn + 1) * (weights.highest + far), drawn * weights.lowest
        low = high = 0
        for group, (lower, upper) in enumerate(weights.powers, self._top):
            before = high
            low, high = low + self._sizes[group] * lower, high + self._sizes[group] * upper
            if low << bits >= surely:
                return group if before << bits <= surely_not else None
        return None

    def _lower_top(self) -> None:
        """Measure weights from the first group that is not empty."""
        while not self._sizes[self._top]:
            self._top += 1
        self._known = {}

    def _weights(self, bits: int) -> _Weights:
        """Return certified ``exp((count - top) / scale) * 2**n`` from the top group down.

        Each is a product of outward roundings. Where the upper bound is down to one unit the list ends.
        """
        if bits not in self._known:
            places, factors = bits + self._spare, dict[int, tuple[int, int]]()
            low = high = 1 << places
            powers = [(low, high)]
            for step in islice(self._steps, self._top, None):
                if step not in factors:
                    factors[step] = exp_neg_bounds(step / self._scale, places)
                lower, upper = factors[step]
                low, high = low * lower >> places, -(-high * upper >> places)
                if high <= 1:
                    break
                powers.append((low, high))
            sizes = self._sizes[self._top : self._top + len(powers)]
            self._known[bits] = _Weights(
                powers,
                sum(n * lower for n, (lower, _) in zip(sizes, powers, strict=True)),
                sum(n * upper for n, (_, upper) in zip(sizes, powers, strict=True)),
                sum(sizes),
            )
        return self._known[bits]


def uniform_below(bound: int) -> int:
    """Draw an integer below ``bound`` uniformly, by rejection of random bits."""
    bits = max((bound - 1).bit_length(), 1)
    size = (bits + 7) // 8
    while True:
        value = int.from_bytes(private_bytes(size).tobytes(), "big") >> (8 * size - bits)
        if value < bound:
            return value


# --------------------------------------------------------------------------------------------------

_CELLS = "i64"
_MONOTONE, _PLAIN = (dp.linf_distance(T="i64", monotonic=m) for m in (True, False))

_GROUPED = 2_000
"""From this many candidates on, equal counts are drawn as one group: same law, less work."""

SCALE: dict[str, Any] = {
    "symbol": "s",
    "unit": "votes",
    "ge": 2.0**-60,
    "le": 2.0**40,
    "hint": "the language solves it from the budget: leave it out, or write `scale: solve`; if no "
    "scale fits, `distance` is below the unit's d_in, or delta's reserve too small.",
}
DELTA: dict[str, Any] = {
    "symbol": "δ",
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
SetDelta = Annotated[
    float, param("Chance that an unstable set gets out, at the calibrated distance.", **DELTA)
]
ItemDelta = Annotated[float, param("Chance that an item of one side alone gets out.", **DELTA)]
Distance = Annotated[
    int, param("Number of users for whom the threshold is calibrated.", **DISTANCE)
]
Accounting = Annotated[
    Literal["zcdp", "curve"],
    param(
        "How the loss is stated.", symbol="-", unit="none", default="zcdp",
        hint="curve for a single release: the exact (epsilon, delta) curve, 5 to 15 % less noise; "
        "zcdp when releases are composed.",
    ),
]  # fmt: skip


class Choices(Protocol):
    """The random choices of selection."""

    def reaches(self, scale: float, least: int) -> bool:
        """Say whether discrete Gaussian noise is at least ``least``."""
        ...

    def gate_reaches(self, right: float, left: float, least: int) -> bool:
        """Return whether the gate's noise is at least ``least``."""
        ...

    def best(self, scores: NDArray[np.int64], scale: float) -> int:
        """Draw one index with probability proportional to ``exp(score / scale)``."""
        ...

    def top(
        self, scores: NDArray[np.int64], rounds: int, scale: float, *, lowest: bool = False
    ) -> Sequence[int]:
        """Draw ``rounds`` indices, each like ``best`` among the rest, or from below."""
        ...

    def in_order(self, scores: NDArray[np.int64], rounds: int, scale: float) -> list[int]:
        """Draw like ``top``, and tell the order in which they were drawn."""
        ...

    def top_open(
        self, votes: NDArray[np.int64], universe: int, rounds: int, scale: float
    ) -> Sequence[tuple[bool, int]]:
        """Draw like ``top`` from a universe, without votes outside ``votes``.

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
        """Return noisy scores from ``least - 1`` on, above ``least`` only with ``tells``."""
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


OPENDP: Choices = _OpenDP()


def gate_noise(right: float, left: float) -> int:
    """Draw the noise of ``measurements/selection/_impl/gate_tail.py`` (Lemma 2 of ``gate_tail.md``)."""
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


def gaussian_loss(scale: float, users: int, norm: float = 1.0) -> float:
    """Return OpenDP's loss of a Gaussian at L2 distance ``users * norm``."""
    return float(_vector_gaussian(scale).map(float_up(Fraction(norm) * users)))


def choice_rho(scale: float, users: int) -> float:
    """Return OpenDP's loss of a draw whose scores move by ``users``."""
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
    """Bound a test's passing on one side of differing sets (OS404)."""
    need_cover(key, threshold, users)
    return float(tail_of(scale)(threshold - users)) if users else 0.0


def need_cover(key: str, threshold: int, users: int) -> None:
    """Refuse a distance whose gap alone may reach the threshold (OS404)."""
    if users >= threshold:
        raise BudgetError(
            "OS404", f"{key}.map", expected=f"an input distance below {threshold} users", got=users,
            hint="set `distance` to the number of users you mean to hide; the threshold follows it.",
        )  # fmt: skip
