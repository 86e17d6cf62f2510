"""Constructors give one object for one call, in runs only, and never for what may differ unseen."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.instrument.memoize import Constructors, places
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.core.randomness import public_generator

dp.enable_features("contrib", "honest-but-curious")
ALWAYS = Constructors()


def _each_a_run(real: Any, kept: Constructors = ALWAYS) -> Any:
    """Return a constructor whose every call is the first one of a run."""
    make = kept.kept(real, lambda: True)

    def first(*args: Any, **options: Any) -> Any:
        kept.begin()
        return make(*args, **options)

    return first


ATOM, METRIC = _each_a_run(dp.atom_domain), _each_a_run(dp.absolute_distance)
LAPLACE = _each_a_run(dp.m.make_laplace)


def test_other_calls_give_other_objects() -> None:
    ints, floats = ATOM(bounds=(0, 1)), ATOM(bounds=(0.0, 1.0))
    assert (ints.carrier_type, floats.carrier_type) == ("i32", "f64")
    space = ATOM(T=int), METRIC(T=int)
    scales = [1, 1.0, True, 2.0, np.nextafter(1.0, 2.0)]
    assert len({id(LAPLACE(*space, scale)) for scale in scales}) == len(scales)
    assert LAPLACE(ATOM(T="i64"), METRIC(T="i64"), 1.0).input_domain.carrier_type == "i64"


def test_what_may_differ_unseen_is_made_anew() -> None:
    shown = _each_a_run(dp.t.make_user_transformation)
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    first, second = (shown(*space, *space, lambda rows: rows, int) for _ in range(2))
    assert first is not second  # two functions, whatever they do
    own = dp.atom_domain(T=int), dp.absolute_distance(T=int)  # made elsewhere, and the same
    assert LAPLACE(*own, 1.0) is LAPLACE(*own, 1.0)
    space = ATOM(T=int), METRIC(T=int)
    first = LAPLACE(*space, 3.0)
    first.used = 1
    assert LAPLACE(*space, 3.0) is not first
    for _ in range(2):
        with pytest.raises(dp.OpenDPException):
            LAPLACE(*space, -1.0)


def test_constructors_are_the_librarys_own_outside_of_runs() -> None:
    tape, real = Tape(None, public_generator(0, "test")), [dp.m.make_laplace, dp.atom_domain]
    made: list[Any] = []

    def function(rows: list[int]) -> int:
        noise = (dp.atom_domain(T=int), dp.absolute_distance(T=int)) >> dp.m.then_laplace(1.0)
        made.append(noise)
        return int(noise(len(rows)))

    with tapped(tape, [function]):
        function([])
        function([])
        for _ in range(3):
            tape.run(function, [], "record")
        assert dp.m.make_laplace.__name__ == "make_laplace"
    assert made[0] is not made[1]
    assert made[2] is made[3] is made[4]
    assert [dp.m.make_laplace, dp.atom_domain] == real


def test_constructors_that_keep_something_are_left_alone() -> None:
    """A user's function behind an object may keep what it likes, and so may a queryable."""
    names = {name for _, name in places()}
    assert not {
        n for n in names if "user" in n or "queryable" in n or "adaptive" in n or "sequential" in n
    }
    assert {"make_laplace", "atom_domain", "symmetric_distance", "make_chain_mt"} <= names


def _in_runs(function: Any, runs: int = 3) -> list[Any]:
    """Return what runs on a tape give."""
    tape = Tape(None, public_generator(0, "test"))
    with tapped(tape, [function]):
        return [tape.run(function, [], "zero")[0] for _ in range(runs)]


def test_what_a_run_does_to_an_object_is_not_there_in_the_next() -> None:
    ended: list[int] = []

    def release(_: list[int]) -> tuple[int, int, int]:
        noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 10.0)
        before = len(vars(noise)), len(noise.__opendp_dict__), weakref.getweakrefcount(noise)
        noise.mark = 1
        noise.__opendp_dict__["mark"] = 1
        weakref.finalize(noise, ended.append, 1)
        return before

    assert _in_runs(release) == [(1, 3, 0)] * 3


def test_a_constructor_in_whose_place_is_another_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = dp.m.make_laplace

    def inner(*args: Any) -> Any:
        return real(*args)

    assert ALWAYS.kept(inner, lambda: True) is inner
    bound = functools.partial(real)
    assert ALWAYS.kept(bound, lambda: True) is bound
    monkeypatch.setattr(dp.m, "make_laplace", inner)

    def release(_: list[int]) -> bool:
        return dp.m.make_laplace is inner

    assert _in_runs(release) == [True] * 3


def test_the_loss_of_opendps_noise_is_asked_once_and_others_each_time() -> None:
    asked: list[Any] = []

    def real(measurement: Any, d_in: Any) -> Any:
        asked.append(d_in)
        return type(measurement).map(measurement, d_in)

    loss = Constructors().mapped(real, lambda: True)
    noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 2.0)
    assert [loss(noise, 1), loss(noise, 1), loss(noise, 2)] == [0.5, 0.5, 1.0]
    assert asked == [1, 2]
    other = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 4.0)
    assert loss(other, 1) == 0.25
    own = dp.m.make_user_measurement(
        dp.atom_domain(T=int), dp.absolute_distance(T=int), dp.max_divergence(), int, float
    )
    asked.clear()
    assert [loss(own, 1), loss(own, 1)] == [1.0, 1.0]
    assert asked == [1, 1]  # the map is the user's, and may count
    with pytest.raises(dp.OpenDPException):
        loss(noise, -1)
    asked.clear()
    Constructors().mapped(real, lambda: False)(noise, 1)
    assert asked == [1]
    before = dp.Measurement.map
    with tapped(Tape(None, public_generator(0, "test")), []):
        assert dp.Measurement.map is not before
    assert dp.Measurement.map is before
