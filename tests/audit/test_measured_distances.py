"""Distances between outputs, measured exactly."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from opendp_sim.audit import Subject
from opendp_sim.audit.checks.compare_outputs import distance_of_outputs
from opendp_sim.audit.claims.output_distance import measure_distance
from opendp_sim.core.bridge import to_dp_metric
from opendp_sim.domains.metrics import VectorNorm


def counts(**votes):
    items = sorted(votes)
    return {"item": np.array(items, dtype=object), "votes": np.array([votes[i] for i in items])}


def test_open_counts_are_compared_item_by_item():
    left, right = counts(a=3, b=1), counts(a=1, c=1)
    assert measure_distance("LInfDistance", left, right) == 2
    assert measure_distance("L1Distance", left, right) == 4
    assert measure_distance("L2Distance", left, right) == Fraction(6)
    assert measure_distance("L1Distance", left, left) == 0
    assert measure_distance("LInfDistance", counts(), counts(z=5)) == 5


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_weighted_norms_add_each_gap_up_once_and_exactly(norm):
    """Against the sum over cells in fractions; the largest integers too."""
    rng = np.random.default_rng(5)
    measure = distance_of_outputs(
        Subject(run=len, output_metric=to_dp_metric(VectorNorm(norm, ((30, 7), (50, 1))))), None
    )
    left, right = rng.integers(-3, 4, size=(2, 80))
    left[[0, 40]], right[[0, 40]] = 2**62, -(2**62) - 5
    parts = [
        Fraction(abs(int(a) - int(b)), 7 if i < 30 else 1)
        for i, (a, b) in enumerate(zip(left, right, strict=True))
    ]
    expected = {"l1": sum(parts), "l2": sum(p * p for p in parts), "linf": max(parts)}[norm]
    assert measure(left, right) == expected
    assert measure(left, left) == 0
    assert measure(left, left[:-1]) == math.inf
    half = left[40:].astype(float) + 0.5
    assert measure(np.r_[left[:40], left[40:]] * 1.0, np.r_[left[:40] * 1.0, half]) > 0


# --- steps of few cells ---------------------------------------------------------------------------


def _fewest_steps(reach: int, size: int, cells: int) -> dict[tuple[int, ...], int]:
    """Breadth-first search from zero: a step moves at most ``cells`` cells by one, up or down."""
    ways = [
        tuple(sign if j in some else 0 for j in range(size))
        for count in range(1, min(cells, size) + 1)
        for some in itertools.combinations(range(size), count)
        for sign in (1, -1)
    ]
    found, edge = {(0,) * size: 0}, [(0,) * size]
    while edge:
        reached = {
            at: found[one] + 1
            for one in edge
            for way in ways
            if max(map(abs, at := tuple(a + b for a, b in zip(one, way, strict=True)))) <= reach
            and at not in found
        }
        found |= reached
        edge = list(reached)
    return found


@pytest.mark.parametrize("mapping", [False, True])
@pytest.mark.parametrize(("size", "cells"), [(2, 1), (3, 1), (3, 2), (3, 5), (4, 3)])
def test_the_distance_in_steps_is_the_fewest_steps(size, cells, mapping):
    """The metric that states the cells of a step, and the monotone one, on all small vectors."""
    # a reach beyond the vectors asked about: a shortest way never leaves them, but may be let to
    fewest = _fewest_steps(3, size, cells)
    in_steps = distance_of(VectorNorm("linf", steps=True, touched=cells))
    one_way = distance_of(VectorNorm("linf", monotone=True, touched=cells))
    for move in itertools.product(range(-2, 3), repeat=size):
        left, right = (np.array(v) for v in ([5] * size, [5 + m for m in move]))
        if mapping:  # items that occur on one side only among them
            left, right = counts(a=4, z=1), counts(a=4, z=1)
            for item, m in zip("bcde", move, strict=False):
                left, right = _add(left, item, max(-m, 0)), _add(right, item, max(m, 0))
        assert in_steps(left, right) == in_steps(right, left) == fewest[move]
        signed = max(move) > 0 > min(move)
        assert one_way(left, right) == (math.inf if signed else fewest[move])


def distance_of(norm):
    return distance_of_outputs(Subject(run=len, output_metric=to_dp_metric(norm)), None)


def _add(table, item, votes):
    known = dict(zip(table["item"].tolist(), table["votes"].tolist(), strict=True))
    return counts(**known | ({item: votes} if votes else {}))


def test_steps_of_few_cells_are_exact_at_the_ends_of_integers():
    few = distance_of(VectorNorm("linf", steps=True, touched=2))
    ends = np.iinfo(np.int64)
    left, right = np.full(3, ends.min), np.full(3, ends.max)
    assert few(left, right) == math.ceil(Fraction(3 * (2**64 - 1), 2))
    assert few(left, left) == 0
    assert few(left, left[:2]) == math.inf
    assert few(np.array([0.0, math.inf]), np.zeros(2)) == math.inf


@pytest.mark.parametrize(
    "norm",
    [
        VectorNorm("l1", weights=((1, 1),)),
        VectorNorm("l2", weights=((1, 1),)),
        VectorNorm("linf", weights=((1, 1),)),
        VectorNorm("linf", steps=True),
        VectorNorm("l1"),
        VectorNorm("l2"),
        VectorNorm("linf"),
    ],
    ids=str,
)
def test_cells_of_two_types_and_beyond_numbers_have_their_distance(norm):
    """Signed beside unsigned cells met as floats, 0 apart; what is not finite ended the audit."""
    apart = distance_of(norm)
    signed, unsigned = np.array([2**63 - 1]), np.array([2**63], dtype=np.uint64)
    assert apart(signed, unsigned) == apart(unsigned, signed) == 1
    assert apart(np.array([2**53 + 1]), np.array([2.0**53])) == 1
    for wild in (math.inf, -math.inf, math.nan):
        assert apart(np.array([wild]), np.array([0])) == math.inf
        assert apart(np.array([0]), np.array([wild])) == math.inf
        assert apart(np.array([wild]), np.array([wild])) == 0


@pytest.mark.parametrize("metric", ["L1Distance", "L2Distance", "LInfDistance"])
def test_long_lists_of_integers_are_measured_as_short_ones_are(metric):
    """A list that numpy would change (a float, a huge integer among them) is left as it is."""
    for odd in (0, -(2**62), 2**63 + 1, 0.5, math.inf):
        left, right = [1, 5, odd] + [0] * 600, [2, -5, 0] + [0] * 600
        short = measure_distance(metric, left[:3], right[:3])
        assert measure_distance(metric, left, right) == short
    assert measure_distance(metric, [1] * 600, [1] * 601) == math.inf
