"""A released moment tree read as polynomials, and cells of a distance tree that are kept: the sums of the lemma."""

from __future__ import annotations

import numpy as np
import pytest

from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.transformations.sketches.distances._impl.axes import Dyadic
from opendp_sim.transformations.sketches.distances.distance_tree import TreeReader
from opendp_sim.transformations.sketches.distances.moment_tree import MomentTable


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
