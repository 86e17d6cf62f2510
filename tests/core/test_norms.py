"""The norm of a sketch is one of three wherever it can enter, and no distance is claimed that is none."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, strategies as st
from opendp.extras.numpy import array2_domain

import opendp_sim.prelude as sim
from opendp_sim.core.bridge import build
from opendp_sim.core.constructors import bind_to_opendp, constructors
from opendp_sim.core.errors import ParameterError
from opendp_sim.domains.metrics import IdDistance, VectorNorm
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.row_norms import any_longer, norm_slack, row_norms
from tests.cases import cases

dp.enable_features("contrib")

WRONG = (
    "monotone",
    "linf_squared",
    "l2_squared",
    "L2",
    "",
    "__class__",
    None,
    0,
    False,
    ["l1"],
    2,
    b"l1",
)
SKETCHES = {key: case for key, case in cases().items() if case.mechanism.room == "sketches"}
RECORDS = Records((Column("who", "int64", role="privacy_id"), Column("word", "int64")))
BOTH_WAYS = (
    {"who": np.array([1]), "word": np.array([3])},
    {"who": np.array([2]), "word": np.array([5])},
)


@pytest.mark.few(15)
@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize("key", sorted(SKETCHES))
def test_every_door_refuses_another_norm(key, wrong):
    case = SKETCHES[key]
    make, then = constructors(type(case.mechanism))
    params = {name: getattr(case.mechanism, name) for name in type(case.mechanism).model_fields}
    doors = [
        lambda: make(case.domain, case.metric, **params, norm=wrong),
        lambda: then(**params, norm=wrong),
    ]
    if wrong is not None:  # inside the house None means that nobody asked
        claim = case.claim()
        doors += [
            lambda: bind_to_opendp(case.mechanism, case.domain, case.metric, wrong),
            lambda: build(claim, case.mechanism.key, case.domain, case.metric, wrong),
        ]
    for door in doors:
        with pytest.raises(ParameterError, match="OS101"):
            door()


def test_the_context_refuses_another_norm():
    sim.register()
    context = dp.Context.compositor(
        data=np.zeros((3, 2)),
        domain=array2_domain(num_columns=2, nan=False, T=float),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0),
        split_evenly_over=1,
    )
    gridded = context.query().sim_quantize(bits=8, bounds=(-1.0, 1.0))
    with pytest.raises(ParameterError, match="OS101"):
        gridded.sim_threshold_sketch(thresholds=4, norm="monotone")


@pytest.mark.parametrize("wrong", [w for w in WRONG if w is not None], ids=repr)
def test_metrics_and_sensitivities_refuse_another_norm(wrong):
    with pytest.raises(ParameterError, match="OS101"):
        VectorNorm(wrong)
    with pytest.raises(ParameterError, match="OS101"):
        SKETCHES["race_sketch"].claim().sensitivity.bound(wrong, 1)


@pytest.mark.parametrize("weights", [((4, 0),), ((4, -1),), ((0, 1),), ((4, 0.5),), ((4, True),)])
def test_a_metric_has_whole_weights_from_one_on(weights):
    with pytest.raises(ParameterError, match="OS102"):
        VectorNorm("l1", weights)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"steps": True, "touched": cells} for cells in (0, -1, 1.5, "x", True, np.int64(2))),
        {"touched": 1},
        {"steps": True, "monotone": True},
        {"steps": 1},
        {"monotone": "yes"},
        {"steps": True, "weights": ((4, 2),)},
        {"monotone": True, "touched": 2, "weights": ((4, 2),)},
        {"weights": ((4,),)},
    ],
    ids=repr,
)
def test_a_metric_refuses_steps_that_are_none(wrong):
    with pytest.raises(ParameterError, match="OS102"):
        VectorNorm("linf", **wrong)


@pytest.mark.parametrize(
    "flag", [{"monotone": True}, {"steps": True}, {"steps": True, "touched": 2}]
)
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_signs_of_steps_belong_to_the_largest_cell(norm, flag):
    with pytest.raises(ParameterError, match="OS102"):
        VectorNorm(norm, **flag)


# --- what OpenDP's monotone distance is -----------------------------------------------------------


@pytest.mark.parametrize("key", sorted(SKETCHES))
def test_no_monotone_distance_is_claimed_for_records_that_come_and_go(key):
    """OpenDP: "set to true if non-monotonicity implies infinite distance"."""
    case = SKETCHES[key]
    made = bind_to_opendp(case.mechanism, case.domain, case.metric, "linf")
    assert made.map(0) == 0
    assert made.map(1) == case.claim().sensitivity.bound("linf", 1)
    if "monotonic" in str(made.output_metric):
        for d_in in (2, 3, 2**31):
            with pytest.raises(dp.OpenDPException, match="OS206"):
                made.map(d_in)
    else:
        assert made.map(2) == case.claim().sensitivity.bound("linf", 2)


def test_native_noisy_max_chains_at_distance_one_only():
    sketch = (
        (array2_domain(num_columns=1, nan=False, T=float), dp.symmetric_distance())
        >> sim.then_quantize(bits=4, bounds=(0.0, 1.0))
        >> sim.then_distance_tree(levels=2, norm="linf")
    )
    chain = sketch >> dp.m.then_noisy_max(dp.max_divergence(), scale=4.0)
    assert chain.map(1) == 0.25
    with pytest.raises(dp.OpenDPException, match="OS206"):
        chain.map(2)


def test_counts_of_users_chain_at_every_distance_and_bound_the_moves():
    counts = sim.make_vote_counts(
        RECORDS, IdDistance("who"), item="word", items=tuple(range(8)), norm="linf"
    )
    left, right = (np.asarray(counts(data)) for data in BOTH_WAYS)
    assert sorted((right - left).tolist()) == [-1, 0, 0, 0, 0, 0, 0, 1]  # monotone: infinitely far
    assert counts.map(2) == 2
    chain = counts >> sim.then_peel(k=1, scale=3.0)
    for users in (1, 2, 5):
        assert chain.map(users) >= users**2 / (8 * 3.0**2)
    with pytest.raises(dp.OpenDPException):
        counts >> dp.m.then_noisy_max(dp.max_divergence(), scale=3.0)


@pytest.mark.parametrize("before", list(product((0, 1), repeat=3)))
def test_opendps_distance_is_never_below_the_number_of_users(before):
    """Where OpenDP's monotone distance is d, there are d users: maps in users hold for both."""
    for after in product((0, 1, 2), repeat=3):
        moves = np.array(after) - np.array(before)
        users = max(*moves, 0) + max(*-moves, 0)
        opendp = np.abs(moves).max() if (moves >= 0).all() or (moves <= 0).all() else np.inf
        assert users <= opendp
        step, at, taken = None, np.array(before), 0
        while (at != after).any():  # one user more or less each time
            step = (after > at).astype(int) if (after > at).any() else -(after < at).astype(int)
            at, taken = at + step, taken + 1
        assert taken == users


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=6), st.integers(-1, 1))
def test_no_integer_row_is_misjudged(row, off):
    square = sum(v * v for v in row)
    bound = max(0, math.isqrt(square) + off)
    assert any_longer(np.array([row], dtype=np.float64), bound) == (square > bound**2)


def test_squares_beyond_floats_are_decided_exactly():
    long, bound = 2**52 - 1, 2**52 - 1
    assert not any_longer(np.array([[long, 0.0]]), bound)
    assert any_longer(np.array([[long, 1.0]]), bound)
    assert not any_longer(np.empty((0, 2)), 0)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_norms_of_huge_rows_do_not_overflow_on_the_way(norm):
    row = np.array([[3e307, 4e307], [0.0, 0.0], [3.0, -4.0]])
    expected = {"l1": [7e307, 0.0, 7.0], "l2": [5e307, 0.0, 5.0], "linf": [4e307, 0.0, 4.0]}
    assert np.allclose(row_norms(row, norm), expected[norm], rtol=norm_slack(2) - 1, atol=0.0)
