"""Cut periods into nodes of a tree, each summed up once (``continual.md``)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.file_schemas import Strict
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.arithmetic.rounding import float_up, sqrt_up
from opendp_sim.core.claims import Sensitivity
from opendp_sim.core.errors import ParameterError, ReleaseError, repr_text

MOST_PERIODS = 2**16
"""Periods of a stream, at most, such as seven years of hours: each leaves a node's file or more."""
_WIDEST = 64
"""The largest base that is tried beside the tree of one level."""
_LARGEST = np.int64(2**63 - 1)

Node = tuple[int, int]
"""First and last period of a node, counted from 1."""


@dataclass(frozen=True)
class PeriodTree:
    """Cut ``periods`` into nodes of ``base**k`` periods each.

    Level ``k`` has the nodes ``(j base**k + 1, (j + 1) base**k)`` that end at ``periods`` or before, for
    every k with ``base**k <= periods``. A period lies in one node of a level at most. A person is in
    ``person_periods`` of them at most.

    Raises:
        ParameterError (OS101): ``periods`` is no whole number from 1 to 2**16, ``base`` none from 2 on,
            ``person_periods`` none from 1 to ``periods``.
    """

    periods: int
    base: int = 2
    person_periods: int = 1

    def __post_init__(self) -> None:
        """Refuse numbers that make no tree."""
        for name, value, least, most in (
            ("periods", self.periods, 1, MOST_PERIODS),
            ("base", self.base, 2, MOST_PERIODS + 1),
            ("person_periods", self.person_periods, 1, self.periods),
        ):
            if type(value) is not int or not least <= value <= most:
                raise ParameterError(
                    "OS101", f"stream.{name}", expected=f"a whole number from {least} to {most:,}",
                    got=repr_text(value, 40), hint="12 months of one year are periods=12.",
                )  # fmt: skip

    @property
    def levels(self) -> int:
        """Number of levels, floor(log(periods) / log(base)) + 1."""
        return len(self.lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Periods in a node of each level."""
        found = [1]
        while found[-1] * self.base <= self.periods:
            found.append(found[-1] * self.base)
        return tuple(found)

    def ending(self, period: int) -> tuple[Node, ...]:
        """Return the nodes that end with a period, short ones first."""
        return tuple((period - n + 1, period) for n in self.lengths if period % n == 0)

    def parts(self, first: int, last: int) -> tuple[Node, ...]:
        """Return the fewest nodes that make up an interval of periods.

        Raises:
            ParameterError (OS101): no interval of the tree's periods.
        """
        first, last = python_value(first), python_value(last)
        whole = type(first) is int and type(last) is int
        if not whole or not 1 <= first <= last <= self.periods:
            raise ParameterError(
                "OS101", "stream.release", expected=f"periods 1 <= first <= last <= {self.periods:,}",
                got=f"{repr_text(first, 20)} to {repr_text(last, 20)}",
                hint="periods are counted from 1, both ends included.",
            )  # fmt: skip
        return tuple(self._parts(first, last))

    def _parts(self, first: int, last: int) -> Iterator[Node]:
        while first <= last:
            fits = (n for n in self.lengths if (first - 1) % n == 0 and first + n - 1 <= last)
            length = max(fits)
            yield first, first + length - 1
            first += length

    def sensitivity(self, one: Sensitivity) -> Sensitivity:
        """Bound one unit's contribution to all nodes (Lemma 1)."""
        most = min(self.person_periods, self.lengths[-1])
        return Sensitivity(
            one.l1 * self._parts_of(1),
            one.l2_squared * self._parts_of(2),
            one.linf * most,
            one.monotone,
        )

    def _parts_of(self, power: int) -> int:
        """Return a unit's most L1 or squared L2 norm, in one period's."""
        if power == 1:
            return self.levels * self.person_periods
        return self.person_periods * sum(min(self.person_periods, n) for n in self.lengths)

    def scale(self, scale: float, *, laplace: bool) -> float:
        """Return a node's scale at one release's loss (Lemma 2)."""
        if laplace:
            return float_up(Fraction(scale) * self._parts_of(1))
        return sqrt_up(Fraction(scale) ** 2 * self._parts_of(2))

    def variance(self, *, laplace: bool) -> Fraction:
        """Return the mean variance of sums of first periods.

        Of periods 1 to t, over t from 1 to ``periods``, as a multiple of one release's at the same loss:
        a node's variance times the mean number of nodes, which is the mean sum of t's digits.
        """
        digits = sum(self._digits(length) for length in self.lengths)
        cost = self._parts_of(1) ** 2 if laplace else self._parts_of(2)
        return Fraction(cost * digits, self.periods)

    def _digits(self, length: int) -> int:
        """Add up one digit of the numbers from 0 to ``periods``."""
        cycle = length * self.base
        whole, rest = divmod(self.periods + 1, cycle)
        digit, beyond = divmod(rest, length)
        each = self.base * (self.base - 1) // 2 * length
        return whole * each + digit * (digit - 1) // 2 * length + digit * beyond


def best_tree(periods: int, *, laplace: bool, person_periods: int = 1) -> PeriodTree:
    """Return the tree of least mean variance, the smallest base first."""
    flat = PeriodTree(periods, 2).periods + 1
    bases = dict.fromkeys([*range(2, min(_WIDEST, flat) + 1), flat])
    trees = [PeriodTree(periods, base, person_periods) for base in bases]
    return min(trees, key=lambda tree: tree.variance(laplace=laplace))


def no_sums(tree: PeriodTree, cells: int) -> NDArray[np.int64]:
    """Return a stream's open sums before its first period."""
    return np.zeros((tree.levels - 1, cells), dtype=np.int64)


def advanced(
    tree: PeriodTree, period: int, sums: NDArray[np.int64], cells: NDArray[np.int64]
) -> tuple[dict[Node, NDArray[np.int64]], NDArray[np.int64]]:
    """Return the exact nodes that end with a period.

    Args:
        tree: the nodes.
        period: the number of this period.
        sums: exact sums since the last end of each level above the first, shape (levels - 1, cells).
        cells: the period's own exact sketch, shape (cells,).

    Returns:
        each node with its sum, and the next ``sums``. Sums saturate at the ends of int64 (Lemma 1).
    """
    after = np.stack([saturated(row, cells) for row in sums]) if len(sums) else sums.copy()
    ended: dict[Node, NDArray[np.int64]] = {}
    for level, length in enumerate(tree.lengths):
        if period % length == 0:
            node = period - length + 1, period
            ended[node] = after[level - 1].copy() if level else cells
            if level:
                after[level - 1] = 0
    return ended, after


def saturated(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Add integers, and stop at the ends of int64."""
    total: NDArray[np.int64] = np.add(one, other)
    over = ((one ^ total) & (other ^ total)) < 0
    total[over] = np.where(one[over] < 0, -_LARGEST - 1, _LARGEST)
    return total


# --------------------------------------------------------------------------------------------------
# What a release's header states of its stream, and sums of such releases (Lemma 4).


class StreamHeader(Strict):
    """State which nodes of which stream a release adds up."""

    name: str
    periods: int
    base: int
    nodes: list[tuple[int, int]]
    person_periods: int = 1


def stream_of(privacy: Mapping[str, Any]) -> StreamHeader | None:
    """Return a claim's stream, or None; ValueError for a malformed one."""
    if "stream" not in privacy:
        return None
    found = StreamHeader.model_validate_json(json.dumps(privacy["stream"]))
    tree = PeriodTree(found.periods, found.base, found.person_periods)
    known = all(
        1 <= last <= tree.periods and (first, last) in tree.ending(last)
        for first, last in found.nodes
    )
    if not found.nodes or not known or _overlap(found.nodes):
        raise ValueError("nodes of a stream")
    return found


def _overlap(nodes: Sequence[Node]) -> bool:
    ordered = sorted(nodes)
    return any(later[0] <= before[1] for before, later in pairwise(ordered))


def joined_claim(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the common claim of one stream's nodes, or None.

    Raises:
        ReleaseError (OS702): both hold the same period.
    """
    first, second = stream_of(one), stream_of(other)
    if first is None or second is None or _but_nodes(one) != _but_nodes(other):
        return None
    nodes = sorted([*first.nodes, *second.nodes])
    if _overlap(nodes):
        raise ReleaseError(
            "OS702", "release", expected="other periods of the stream", got="the same period twice",
            hint="add nodes that have no period in common, or ask the stream's `release(first, last)`.",
        )  # fmt: skip
    return {**one, "stream": {**one["stream"], "nodes": [list(node) for node in nodes]}}


def _but_nodes(privacy: Mapping[str, Any]) -> str:
    """Return a claim without its nodes, as a file has it."""
    stream = {name: value for name, value in privacy["stream"].items() if name != "nodes"}
    return json.dumps({**privacy, "stream": stream}, sort_keys=True)


def mean_error(tree: PeriodTree, *, laplace: bool) -> float:
    """Return the root of the mean variance, in one release's deviations."""
    return math.sqrt(tree.variance(laplace=laplace))
