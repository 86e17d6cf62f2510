"""Directions: orthonormal, unbiased, as scattered as the lemma says, whatever the thread or the layout."""

from __future__ import annotations

import math

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.arithmetic.directions import (
    length_of_normal,
    orthogonal_blocks,
    spread_of_blocks,
)
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows


@pytest.mark.parametrize(("columns", "directions"), [(1, 3), (2, 5), (7, 7), (9, 30), (40, 12)])
def test_blocks_are_orthonormal(columns: int, directions: int) -> None:
    found = orthogonal_blocks(np.random.default_rng(1), columns, directions)
    assert found.shape == (columns, directions)
    for start in range(0, directions, columns):
        block = found[:, start : start + columns]
        assert np.abs(block.T @ block - np.eye(block.shape[1])).max() < 1e-12


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("columns", "directions"),
    [*((1, 2), (2, 2), (3, 5), (16, 16), (30, 8)), pytest.param(16, 64, marks=pytest.mark.long)],
)
def test_the_scatter_is_the_lemmas(columns: int, directions: int) -> None:
    """2,000 draws: the mean within 6 errors of 1, the deviation within 15 % (9 errors)."""
    vector = np.zeros(columns)
    vector[0] = 1.0
    scale = math.sqrt(math.pi / 2) * length_of_normal(columns)
    means = [
        scale
        * np.abs(vector @ orthogonal_blocks(np.random.default_rng(s), columns, directions)).mean()
        for s in range(2000)
    ]
    stated = spread_of_blocks(columns, directions)
    assert np.mean(means) == pytest.approx(1.0, abs=6 * stated / math.sqrt(2000) + 1e-12)
    assert np.std(means) == pytest.approx(stated, rel=0.15, abs=1e-12)
    if directions >= columns > 2:
        assert stated < 0.45 * math.sqrt((math.pi / 2 - 1) / directions)


def test_an_embedding_from_the_middle_of_the_box_pays_half_and_keeps_distances() -> None:
    rng = np.random.default_rng(3)
    domain = GridRows(width=6, unit=0.25, lower=(0,), upper=(400,))
    about = GridRows(width=6, unit=0.25, lower=(-200,), upper=(200,))
    rows, queries = (
        rng.integers(0, 401, (40, 6)).astype(float),
        rng.integers(0, 401, (5, 6)).astype(float),
    )
    params = {"directions": 300, "seed": 4, "bits": 14}
    claim = lookup("l1_embedding")(**params).bind(domain, Symmetric())
    same = lookup("l1_embedding")(**params).bind(about, Symmetric())
    moved, own = claim.function(Rows(rows)), same.function(Rows(rows - 200))
    assert np.array_equal(moved.values, own.values)  # one clip, one step: only the place differs
    assert claim.output.unit == same.output.unit
    asked = claim.on_queries(Rows(queries)).values
    found = np.abs(moved.values[None] - asked[:, None]).sum(axis=2) * claim.output.unit
    exact = np.sqrt(np.square(rows[None] - queries[:, None]).sum(axis=2)) * 0.25
    assert np.abs(found / exact - 1).max() < 6 * spread_of_blocks(6, 300) + 0.01
    claim.output.check(moved)
    # In few columns no projection is longer than the mean length of a normal vector, times the norm.
    assert claim.output.unit * 2**13 * 300 == pytest.approx(
        math.sqrt(math.pi / 2) * length_of_normal(6) * math.sqrt(6) * 200 * 0.25
    )
    assert claim.expected["clipping and rounding, per record"] == pytest.approx(
        claim.output.unit * 300
    )
