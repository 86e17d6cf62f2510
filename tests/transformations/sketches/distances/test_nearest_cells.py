"""Queries are read at the nearest cell, and what that costs is a bound on what it loses."""

from __future__ import annotations

import numpy as np
import pytest

from opendp_sim.domains.rows import GridRows
from opendp_sim.transformations.sketches.distances._impl.axes import Dyadic
from opendp_sim.transformations.sketches.distances._impl.tree_sums import NearestCells

GRID = GridRows(width=3, unit=0.5, lower=(0, -3, 5), upper=(12, 4, 5))


def axes_of(height):
    pairs = zip(GRID.lower, GRID.upper, strict=True)
    return [Dyadic(low, top - low + 1, height) for low, top in pairs]


@pytest.mark.parametrize("height", [1, 2, 5])
def test_spans_and_cells_are_those_of_the_columns_trees(height):
    cells = NearestCells(GRID, height)
    axes = axes_of(height)
    assert cells.spans.tolist() == [axis.span for axis in axes] == [13, 8, 1]
    assert cells.counts.tolist() == [min(axis.span, 2**height) for axis in axes]
    assert (cells.widths * cells.counts == cells.spans).all()


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("height", [1, 3, 6])
def test_no_record_s_distance_is_farther_off_than_is_said(power, height):
    cells = NearestCells(GRID, height)
    asked = np.random.default_rng(1).integers([-2, -6, 5], [15, 9, 6], (40, 3)).astype(np.float64)
    places, beyond, missed = cells.located(asked, power)
    assert ((beyond == 0) | (power == 1)).all()
    record = np.array([7, -1, 5])
    leaves = [
        axis.leaves(np.array([x]))[0] for axis, x in zip(axes_of(height), record, strict=True)
    ]
    own = np.where(cells.counts == cells.spans, record - np.array(GRID.lower), leaves)
    said = ((np.abs(places - own[:, None]) ** power) * cells.powers(power)[:, None]).sum(axis=0)
    truth = ((GRID.unit * np.abs(asked - record)) ** power).sum(axis=1)
    assert (np.abs(said + beyond - truth) <= missed + 1e-9).all()


def test_a_height_that_tells_all_values_apart_loses_nothing():
    cells = NearestCells(GRID, 4)
    inside = np.array([[0.0, 4.0, 5.0], [12.0, -3.0, 5.0]])
    places, beyond, missed = cells.located(inside, 2.0)
    assert places.T.tolist() == [[0, 7, 0], [12, 0, 0]]
    assert not beyond.any()
    assert not missed.any()
    assert cells.most_lost(2.0) == 0.0
