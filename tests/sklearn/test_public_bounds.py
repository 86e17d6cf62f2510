"""Bounds of columns: one meaning for what can be read in one way, and a refusal for the rest."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import opendp_sim.sklearn as sklearn_door
from opendp_sim.sklearn import EstimatorRefused
from opendp_sim.sklearn._validation.bounds import box_of


class Seen:
    """An estimator that saw columns of these names."""

    def __init__(self, *names):
        if names:
            self.feature_names_in_ = np.array(names, dtype=object)


def pairs(bounds, width=2, *names):
    return box_of(bounds, None, width, Seen(*names)).pairs


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_two_pairs_for_two_columns_are_refused_where_both_readings_are_bounds(kind):
    """One a column they were read as lows and highs, and charged."""
    with pytest.raises(EstimatorRefused, match=r"OS102.*\{0: \(low, high\), 1: \(low, high\)\}"):
        pairs(kind([(0, 10), (5, 1000)]))
    with pytest.raises(EstimatorRefused, match=r"\{'a': \(low, high\), 'b'"):
        pairs(kind([(0, 10), (5, 1000)]), 2, "a", "b")


def test_every_pair_of_pairs_is_read_in_its_one_way_or_refused():
    refused = 0
    for a, b, c, d in itertools.product(range(4), repeat=4):
        lows_and_highs, one_a_column = a < c and b < d, a < b and c < d
        both = lows_and_highs and one_a_column and (b, c) != (c, b)
        if both or not lows_and_highs:
            with pytest.raises(EstimatorRefused, match="OS102"):
                pairs([(a, b), (c, d)])
            refused += both
        else:
            assert pairs([(a, b), (c, d)]) == [(a, c), (b, d)]
        if lows_and_highs:
            assert pairs((np.array([a, b]), np.array([c, d]))) == [(a, c), (b, d)]
        if one_a_column:
            assert pairs({0: (a, b), 1: (c, d)}) == [(a, b), (c, d)]
            assert pairs({"y": (c, d), "x": (a, b)}, 2, "x", "y") == [(a, b), (c, d)]
    assert refused


@pytest.mark.parametrize(
    "bounds",
    [
        {0: (0, 1)},
        {0: (0, 1), 2: (0, 1)},
        {"x": (0, 1), "y": (0, 1)},
        {0: 1, 1: 2},
        {0: (1, 0), 1: (0, 1)},
    ],
    ids=["one less", "another", "names of none", "no pairs", "high below low"],
)
def test_a_dict_names_every_column_and_its_pair(bounds):
    with pytest.raises(EstimatorRefused, match="OS102"):
        pairs(bounds)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", [n for n in sklearn_door.__all__ if n.startswith("DP")])
def test_data_norm_is_a_word_of_every_estimator_that_takes_bounds(name):
    made = getattr(sklearn_door, name)
    if "bounds" not in made._get_param_names():
        return
    rows = np.random.default_rng(1).normal(size=(80, 3))
    target = np.where(rows[:, 0] > 0, 1, 0)
    told = {"classes": [0, 1], "y_bounds": (0, 1), "threshold": 0.5}
    known = {word: value for word, value in told.items() if word in made._get_param_names()}
    fit = made(data_norm=2.0, **known).fit(rows, target)
    assert fit.plan_.claim is not None
    with pytest.raises(EstimatorRefused, match="data_norm"):
        made(data_norm=-1.0, **known).fit(rows, target)


def test_a_norm_bounds_each_feature_beside_other_columns():
    """A row of at most that length has no entry beyond it; the columns beside keep their own bounds."""
    assert box_of(None, 2.0, 2, Seen()).beside(2, 0.0, 9.0).pairs == [(-2, 2), (-2, 2), (0, 9)]
    assert box_of((-1, 5), 2.0, 2, Seen()).beside(2, 0.0, 9.0).pairs == [(-1, 2), (-1, 2), (0, 9)]
