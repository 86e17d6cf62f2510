"""Native use: chains, composition, adaptive composition, odometers, filters and the Context."""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
import pytest
from opendp.extras.numpy import array2_domain

import opendp_sim.prelude as sim
from opendp_sim.core.errors import ParameterError, SpaceError

dp.enable_features("contrib")

ROWS = np.random.default_rng(5).normal(size=(300, 6))


def _space():
    return array2_domain(num_columns=6, nan=False, T=float), dp.symmetric_distance()


def _sketch(norm="l1"):
    return (
        _space()
        >> sim.then_quantize(bits=12, bounds=(-4.0, 4.0))
        >> sim.then_race_sketch(
            repetitions=16,
            buckets=32,
            family={"p_stable_l2": {"width": 1.0}},
            seed=11,
            count_weight=4,
            norm=norm,
        )
    )


def test_the_chain_of_the_readme_runs_for_a_plain_opendp_user():
    chain = (
        _space()
        >> sim.then_quantize(bits=12, bounds=(-4.0, 4.0))
        >> sim.then_jl_projection(dimension=4, seed=3)
        >> sim.then_race_sketch(
            repetitions=64,
            buckets=128,
            family={"p_stable_l2": {"width": 1.0}},
            seed=11,
            count_weight=2,
        )
        >> dp.m.then_laplace(66.0)
    )
    assert chain.map(1) == pytest.approx(1.0)
    assert chain.map(3) == pytest.approx(3.0)
    assert len(chain(ROWS)) == 64 * 128 + 1


def test_a_misspelt_argument_is_named_before_what_is_missing_without_it():
    for build in (
        lambda: sim.then_quantize(bit=12, bounds=(-4.0, 4.0)),
        lambda: sim.make_quantize(*_space(), bit=12, bounds=(-4.0, 4.0)),
    ):
        with pytest.raises(ParameterError) as caught:
            build()
        assert caught.value.got == "bit"
        assert "did you mean 'bits'?" in str(caught.value)


def test_a_composition_adds_the_losses_of_its_parts():
    laplace = _sketch() >> dp.m.then_laplace(40.0)
    both = dp.c.make_composition([laplace, laplace])
    assert both.map(1) == pytest.approx(2 * laplace.map(1))
    first, second = both(ROWS)
    assert len(first) == len(second) == 16 * 32 + 1


def test_adaptive_composition_takes_our_chains():
    gaussian = _sketch("l2") >> dp.m.then_gaussian(40.0)
    rho = gaussian.map(1)
    session = dp.c.make_adaptive_composition(
        *_space(), dp.zero_concentrated_divergence(), d_in=1, d_mids=[rho, rho]
    )
    assert session.map(1) == pytest.approx(2 * rho)
    queryable = session(ROWS)
    assert len(queryable(gaussian)) == 16 * 32 + 1
    assert len(queryable(gaussian)) == 16 * 32 + 1
    with pytest.raises(dp.OpenDPException):
        queryable(gaussian)


def test_an_odometer_sums_and_a_filter_stops():
    gaussian = _sketch("l2") >> dp.m.then_gaussian(40.0)
    rho = gaussian.map(1)
    odometer = dp.c.make_fully_adaptive_composition(*_space(), dp.zero_concentrated_divergence())
    counted = odometer(ROWS)
    counted(gaussian)
    counted(gaussian)
    assert counted.privacy_loss(1) == pytest.approx(2 * rho)
    guarded = dp.c.make_privacy_filter(odometer, d_in=1, d_out=1.5 * rho)
    assert guarded.map(1) == pytest.approx(1.5 * rho)
    queryable = guarded(ROWS)
    queryable(gaussian)
    with pytest.raises(dp.OpenDPException):
        queryable(gaussian)


def test_register_is_idempotent_and_the_context_answers():
    names = sim.register()
    assert sim.register() == names
    assert "sim_race_sketch" in names
    assert all(name.startswith("sim_") for name in names)
    assert not any(name == "sim_density" for name in names)
    context = dp.Context.compositor(
        data=ROWS,
        domain=_space()[0],
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=0.5),
        split_evenly_over=2,
    )
    query = (
        context.query()
        .sim_quantize(bits=12, bounds=(-4.0, 4.0))
        .sim_race_sketch(
            repetitions=16,
            buckets=32,
            family={"p_stable_l2": {"width": 1.0}},
            seed=11,
            count_weight=4,
            norm="l2",
        )
        .gaussian()
    )
    # The missing scale is solved from the share: rho = (16 + 16) / (2 s^2) = 0.25.
    assert query.param() == pytest.approx(8.0, rel=1e-6)
    released = query.release()
    assert len(released) == 16 * 32 + 1


def test_frames_of_the_context_are_refused_at_once_with_what_to_do():
    """Before any data: Polars' frames have another domain, of which nothing here is proved."""
    sim.register()
    frames = dp.lazyframe_domain([dp.series_domain("x", dp.atom_domain(T=float))])
    with pytest.raises(SpaceError, match="OS201") as refused:
        sim.make_quantize(frames, dp.symmetric_distance(), bits=12, bounds=(0.0, 1.0))
    assert "to_numpy()" in refused.value.hint
    assert "sim.density" in refused.value.hint
    context = dp.Context.compositor(
        data=ROWS,
        domain=_space()[0],
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0),
        split_evenly_over=1,
    )
    query = (
        context.query()
        .sim_quantize(bits=12, bounds=(-4.0, 4.0))
        .sim_race_sketch(repetitions=4, buckets=8, family={"p_stable_l2": {"width": 1.0}}, seed=1)
    )
    assert len(query.laplace().release()) == 4 * 8 + 1


@pytest.mark.parametrize("mask", [False, [[0, 0], [0, 1]]])
def test_a_masked_array_is_refused_by_its_type_whatever_is_masked(mask):
    """OpenDP's array domain takes it; a masked row raised, and an unmasked one was answered."""
    domain = array2_domain(num_columns=2, nan=False, T=float)
    chain = (domain, dp.symmetric_distance()) >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
    with pytest.raises(dp.OpenDPException, match="OS602"):
        chain(np.ma.array(np.full((2, 2), 0.1), mask=mask))
