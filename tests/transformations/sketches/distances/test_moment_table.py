"""A released moment tree read as polynomials, and cells of a distance tree that are kept: the sums of the lemma."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.transformations.sketches.distances._impl.axes import Dyadic
from opendp_sim.transformations.sketches.distances.distance_tree import TreeReader
from opendp_sim.transformations.sketches.distances.moment_tree import MomentTable, MomentTreeReader

CASES = [
    (1, 5, (0,), (100,), None),
    (1, 6, (-7, 3, 0), (9, 50, 4), ("a", "b", "c")),  # more leaves than numbers
    (2, 3, (-7, 3, 0), (9, 50, 4), None),
    (3, 4, (0,), (1000,), ("a", "b")),
    (8, 3, (-3,), (4,), None),
]


def path_sums(reader: Any, moments: Any, query: Any) -> tuple[Any, float, float]:
    """Lemma 2 as it is written, for one query: the siblings of its path, level by level."""
    p, height = reader.p, reader.height
    cells, scale = moments * reader.node_scale(), reader.level_scale
    sums, variance, counted = np.zeros(len(cells)), 0.0, 0.0
    for column, axis in enumerate(reader.axes):
        y, starts = query[column], axis.starts
        outside = not axis.lower <= y <= axis.lower + axis.span - 1
        leaf = int(np.searchsorted(starts[:-1], min(y, starts[-1] - 1), side="right")) - 1
        for level in range(1, 2 if outside else height + 1):
            own = max(leaf, 0) >> (height - level)
            sign = (-1.0 if own & 1 else 1.0) ** p
            for node in [own ^ 1, own][: 2 if outside else 1]:
                at = 2**level - 2 + node
                gap = float(reader.centres[column, at]) - 2 * y
                for order in range(p + 1):
                    factor = sign * math.comb(p, order) / 2.0**p * gap ** (p - order)
                    sums += factor * cells[:, column, order, at]
                    variance += (factor * scale[column, level - 1, order]) ** 2
                    counted += factor if (level, order) == (1, 0) else 0.0
    return sums, variance, counted


@pytest.mark.parametrize(("p", "height", "lower", "upper", "labels"), CASES)
def test_a_table_of_polynomials_is_the_walk_along_the_path(
    p: int, height: int, lower: Any, upper: Any, labels: Any
) -> None:
    g = np.random.default_rng(p)
    rows = GridRows(width=3, unit=1.0, lower=lower, upper=upper, l2=1e3, labels=labels)
    reader = MomentTreeReader(rows, height, p, "laplace", labels is not None)
    moments = g.normal(0, 5, reader.shape) + g.integers(0, 1000, reader.shape)
    low, high = (np.broadcast_to(np.array(v, dtype=float), 3) for v in (lower, upper))
    asked = g.uniform(low - 30, high + 30, (60, 3))
    asked[:20] = np.rint(asked[:20])
    asked[20], asked[21], asked[22], asked[23] = low, high, low - 0.5, high + 0.5
    asked[24] = np.nextafter(high, np.inf)
    found = reader.reading({"moments": moments}, None, 0.0).at(Rows(asked))
    for at, query in enumerate(asked):
        sums, variance, counted = path_sums(reader, moments, query)
        assert found.values[:, at] == pytest.approx(sums, rel=1e-9, abs=1e-9 * np.abs(sums).max())
        assert found.variance[at] == pytest.approx(variance, rel=1e-9)
        own = counted * reader.counted_factor**2 / 2
        assert found.with_count[at] == pytest.approx(own, rel=1e-9, abs=1e-9)


def test_the_dropped_leaf_is_the_farther_of_its_ends() -> None:
    rows = GridRows(width=1, unit=1.0, lower=(0,), upper=(9,), l2=1e3)
    reading = MomentTreeReader(rows, 2, 1, "laplace", per_label=False).reading(
        {"moments": np.zeros((1, 1, 2, 6))}, None, 0.0
    )
    asked = np.array(
        [[-1.0], [0.0], [1.5], [2.0], [2.5], [9.0], [9.5]]
    )  # leaves 0-2, 3-4, 5-7, 8-9
    assert reading.at(Rows(asked)).missed.tolist() == [0.0, 2.0, 1.5, 2.0, 2.5, 1.0, 0.0]


@pytest.mark.parametrize("consistent", [True, False])
def test_what_was_kept_of_other_questions_changes_no_answer(*, consistent: bool) -> None:
    """One by one, in any order, twice or together: the cells of a distance tree say the same."""
    g = np.random.default_rng(1)
    rows = GridRows(width=3, unit=0.5, lower=(0, 0, -4), upper=(31, 31, 20), l2=1e3)
    reader = TreeReader(rows, 4, consistent, per_label=False)
    released = {"counts": g.normal(50, 9, reader.shape)}
    asked = g.uniform(-10, 40, (40, 3))
    whole = reader.reading(released, None, 0.1).at(Rows(asked))
    reading = reader.reading(released, None, 0.1)
    for at in [*g.permutation(40), *g.permutation(40)]:
        one = reading.at(Rows(asked[at : at + 1]))
        for name in ("values", "variance", "with_count"):
            told = np.ravel(getattr(one, name))[0]
            assert told == pytest.approx(np.ravel(getattr(whole, name))[at], rel=1e-12)


@pytest.mark.parametrize("span", [3, 100, 2**20 + 7, 2**45 - 1, 2**50 + 3])
def test_a_value_is_on_the_leaf_that_holds_its_integer(span: int) -> None:
    """In floats where quotients are exact, in integers beyond."""
    g, axis = np.random.default_rng(0), Dyadic(-2, span, 6)
    centres, cells = np.zeros((1, 126), dtype=np.int64), np.zeros((1, 1, 2, 126))
    table = MomentTable.of((axis,), centres, cells, np.ones((1, 6, 2)))
    edges = axis.starts[:-1].astype(float)
    asked = np.concatenate([edges, edges - 0.5, edges - 1, g.uniform(-3, span, 400)])
    inside = (asked >= axis.lower) & (asked <= axis.lower + span - 1)
    leaf = np.searchsorted(axis.starts[:-1], asked, side="right")
    expected = np.where(inside, leaf, np.where(asked < axis.lower, 0, 65))
    assert table.pieces(asked, 0).tolist() == expected.tolist()
