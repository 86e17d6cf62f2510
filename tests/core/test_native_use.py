"""Native use: chains, composition, adaptive composition, odometers, filters and the Context."""

from __future__ import annotations

import math
import signal
import weakref

import numpy as np
import opendp.prelude as dp
import pytest
from opendp.extras.numpy import array2_domain

import opendp_sim.prelude as sim
from opendp_sim.core import interrupts
from opendp_sim.core.bridge import prepared
from opendp_sim.core.errors import ParameterError
from tests.cases import cases

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


@pytest.mark.parametrize("mask", [False, [[0, 0], [0, 1]]])
def test_a_masked_array_is_refused_by_its_type_whatever_is_masked(mask):
    """OpenDP's array domain takes it; a masked row raised, and an unmasked one was answered."""
    domain = array2_domain(num_columns=2, nan=False, T=float)
    chain = (domain, dp.symmetric_distance()) >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
    with pytest.raises(dp.OpenDPException, match="OS602"):
        chain(np.ma.array(np.full((2, 2), 0.1), mask=mask))


def _context(**loss):
    sim.register()
    return dp.Context.compositor(
        data=ROWS,
        domain=_space()[0],
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(**loss),
        split_evenly_over=1,
    )


SKETCH = {
    "repetitions": 16,
    "buckets": 32,
    "family": {"p_stable_l2": {"width": 1.0}},
    "seed": 11,
    "count_weight": 4,
}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("loss", "norm", "noise"),
    [
        ({"epsilon": 1.0}, "l1", "laplace"),
        ({"rho": 0.5}, "l1", "laplace"),
        ({"rho": 0.5}, "l2", "gaussian"),
        ({"epsilon": 1.0, "delta": 1e-6}, "l1", "laplace"),
        ({"epsilon": 1.0, "delta": 1e-6}, "l2", "gaussian"),
    ],
)
def test_the_context_solves_our_scale_as_it_solves_its_own(loss, norm, noise):
    query = _context(**loss).query().sim_quantize(bits=12, bounds=(-4.0, 4.0))
    query = query.sim_race_sketch(**SKETCH, norm=norm)
    ours, native = getattr(query, f"sim_{noise}")(), getattr(query, noise)()
    found, other = ours.resolve(), native.resolve()
    assert getattr(found, "param", None) == getattr(other, "param", None)
    assert (found.map(1), found.map(3)) == (other.map(1), other.map(3))
    assert dp.deserialize(dp.serialize(found)).map(3) == found.map(3)
    assert len(ours.release()) == 16 * 32 + 1


NUMBERS = ("scale", "rho", "epsilon")
SOLVED = sorted(
    key
    for key, case in cases().items()
    if case.mechanism.room == "measurements"
    and any(
        name in type(case.mechanism).model_fields
        and type(case.mechanism).model_fields[name].is_required()
        for name in NUMBERS
    )
)


@pytest.mark.few(3)
@pytest.mark.parametrize("key", SOLVED)
def test_the_missing_number_of_any_measurement_is_solved(key, monkeypatch):
    """The loss of the case is asked for: what is found costs no more, and is the case's.

    Three were refused: their least number is refused, as no sampler holds such noise. And a search by
    name took a thousand constructions and more to the last bit of that.
    """
    sim.register()
    case = cases()[key]
    mechanism = case.mechanism
    name = next(name for name in NUMBERS if name in type(mechanism).model_fields)
    made = getattr(sim, f"make_{mechanism.key}")(case.domain, case.metric, **dict(mechanism))
    loss = made.map(1)
    if callable(loss):
        pytest.skip("a curve is no number that a search could compare")
    others = {n: value for n, value in mechanism if n != name}
    query = dp.Query(made.input_space, made.output_measure, d_in=1, d_out=loss)
    constructed, bind = [], type(mechanism).bind
    monkeypatch.setattr(
        type(mechanism), "bind", lambda *space: [bind(*space), constructed.append(1)][0]
    )
    found = getattr(query, f"sim_{mechanism.key}")(**others).resolve()
    assert found.map(1) <= loss
    assert found.param == pytest.approx(getattr(mechanism, name), rel=1e-6)
    assert len(constructed) < 150

    constructed.clear()
    then = getattr(sim, f"then_{mechanism.key}")
    within = dp.binary_search(
        lambda value: (made.input_space >> then(**others, **{name: value})).map(1) <= loss
    )
    assert within == found.param
    assert len(constructed) < 150


def test_a_missing_delta_is_refused_by_its_name_and_at_once():
    """The loss that OpenDP compares has no delta: it searched on below 0, or for eight seconds."""
    sim.register()
    refused = set()
    for key, case in cases().items():
        kind = type(case.mechanism)
        delta = kind.model_fields.get("delta")
        if kind.room != "measurements" or delta is None or not delta.is_required():
            continue
        others = {name: value for name, value in case.mechanism if name != "delta"}
        make = getattr(sim, f"make_{kind.key}")
        made = make(case.domain, case.metric, **dict(case.mechanism))
        query = dp.Query(made.input_space, made.output_measure, d_in=1, d_out=(1.0, 1e-6))
        with pytest.raises(
            ParameterError, match=rf"OS101 {kind.key}\.delta: expected delta by name"
        ):
            getattr(query, f"sim_{kind.key}")(**others).resolve()
        refused.add(key)
    assert {"private_knn", "top_stable", "noise_threshold"} <= refused


@pytest.mark.few(3)
@pytest.mark.parametrize("key", SOLVED)
def test_at_zero_a_measurement_has_the_limit_of_its_loss_and_is_not_written(key):
    case = cases()[key]
    name = next(name for name in NUMBERS if name in type(case.mechanism).model_fields)
    values = dict(case.mechanism) | {name: 0}
    made = getattr(sim, f"make_{case.mechanism.key}")(case.domain, case.metric, **values)
    limit = math.inf if name == "scale" else 0.0
    profile = made.output_measure == dp.smoothed_max_divergence()
    loss = made.map(1).delta(2.0) if profile else made.map(1)
    loss = loss(2.0) if callable(loss) else loss
    capped = min(limit, 1.0)
    assert loss == (capped if profile else (limit, capped) if isinstance(loss, tuple) else limit)
    with pytest.raises(ParameterError, match="OS101 serialize"):
        dp.serialize(getattr(sim, f"then_{case.mechanism.key}")(**values))


def test_one_value_without_a_name_is_the_only_one_that_is_missing():
    named = sim.then_race_sketch(**SKETCH).sim_note
    others = {name: value for name, value in SKETCH.items() if name != "buckets"}
    assert sim.then_race_sketch(32, **others).sim_note == named
    assert sim.then_laplace(2.0).sim_note == sim.then_laplace(scale=2.0).sim_note
    for build in (
        lambda: sim.then_race_sketch(16, 32, family=SKETCH["family"], seed=1),
        lambda: sim.then_laplace(2.0, 3.0),
        lambda: sim.then_laplace(2.0, scale=2.0),
        lambda: sim.then_rescale(2.0),
    ):
        with pytest.raises(ParameterError, match="without a name"):
            build()


@pytest.mark.long
def test_a_context_of_frames_and_one_of_ours_run_side_by_side():
    """In one environment: OpenDP reads plans of one version of Polars only, which the extra names."""
    pl = pytest.importorskip("polars")
    frame = pl.LazyFrame({"kind": ["a", "b", "a", "a"] * 50, "x": [1.0, 2.0, 3.0, 4.0] * 50})
    context = dp.Context.compositor(
        data=frame,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=2.0),
        split_evenly_over=2,
        margins=[dp.polars.Margin(max_length=1000)],
    )
    assert abs(context.query().select(dp.len(signed=True)).release().collect().item() - 200) < 100
    keys = pl.LazyFrame({"kind": ["a", "b"]})
    by_kind = context.query().group_by("kind").agg(dp.len(signed=True)).with_keys(keys)
    assert sorted(by_kind.release().collect()["kind"]) == ["a", "b"]
    query = _context(epsilon=1.0).query().sim_quantize(bits=12, bounds=(-4.0, 4.0))
    assert len(query.sim_race_sketch(**SKETCH).sim_laplace().release()) == 16 * 32 + 1


_WHOLE = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()


def _user(function):
    dp.enable_features("honest-but-curious")
    return dp.m.make_user_measurement(*_WHOLE, dp.max_divergence(), function, lambda d: 0.0)


@pytest.mark.parametrize(
    "made",
    [
        _WHOLE >> dp.t.then_count() >> dp.m.then_laplace(0.0),
        dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), 0.0),
        _user(lambda rows: {"rows": sorted(rows), "none": None}),
        _user(lambda rows: "text"),
        _user(lambda rows: 1 / len(rows)),
    ],
)
def test_prepared_releases_are_those_of_calls(made):
    release = prepared(made)
    datasets = [[4, 5], [], [7], [4, 5], ["no number"], [2**40], [4, 5]]
    for data in [*datasets, *datasets]:
        found = []
        for run in (made, release):
            try:
                found.append(run(data))
            except Exception as error:  # noqa: BLE001 - errors are compared too
                found.append((type(error), str(error).splitlines()[-1]))
        assert found[0] == found[1]
        assert type(found[0]) is type(found[1])


def test_a_prepared_release_keeps_no_dataset_but_the_last_ones():
    class Rows(list):
        pass

    release, rows = prepared(_WHOLE >> dp.t.then_count() >> dp.m.then_laplace(0.0)), Rows([1])
    gone = weakref.ref(rows)
    assert release(rows) == 1
    del rows
    release([]), release([1, 2])
    assert gone() is None


def test_an_interrupt_in_a_prepared_release_goes_on_outside():
    def stopped(rows):
        raise KeyboardInterrupt

    release = prepared(_user(stopped))
    with pytest.raises((KeyboardInterrupt, dp.OpenDPException)):
        release([1])
    assert interrupts._here.depth == 0
    assert signal.getsignal(signal.SIGINT) is not interrupts._remember
