"""Constructors give one object for one call, in runs only, and never for what may differ unseen."""

from __future__ import annotations

from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.constructors import Constructors, places
from opendp_sim.audit.primitives import tapped
from opendp_sim.audit.tape import Tape
from opendp_sim.core.randomness import public_generator

dp.enable_features("contrib", "honest-but-curious")
ALWAYS = Constructors()
ATOM = ALWAYS.kept(dp.atom_domain, lambda: True)
METRIC = ALWAYS.kept(dp.absolute_distance, lambda: True)
LAPLACE = ALWAYS.kept(dp.m.make_laplace, lambda: True)


def test_one_call_gives_one_object() -> None:
    assert ATOM(T=int) is ATOM(T=int)
    assert ATOM(bounds=(0, 5)) is ATOM(bounds=(0, 5))
    space = ATOM(T=int), METRIC(T=int)
    assert LAPLACE(*space, 2.0) is LAPLACE(*space, 2.0)
    assert LAPLACE(*space, scale=2.0) is LAPLACE(*space, scale=2.0)
    assert LAPLACE(*space, np.float64(2.0)).map(1) == 0.5


def test_other_calls_give_other_objects() -> None:
    ints, floats = ATOM(bounds=(0, 1)), ATOM(bounds=(0.0, 1.0))
    assert (ints.carrier_type, floats.carrier_type) == ("i32", "f64")
    space = ATOM(T=int), METRIC(T=int)
    scales = [1, 1.0, True, 2.0, np.nextafter(1.0, 2.0)]
    assert len({id(LAPLACE(*space, scale)) for scale in scales}) == len(scales)
    assert LAPLACE(ATOM(T="i64"), METRIC(T="i64"), 1.0).input_domain.carrier_type == "i64"


def test_what_may_differ_unseen_is_made_anew() -> None:
    shown = ALWAYS.kept(dp.t.make_user_transformation, lambda: True)
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


def test_no_more_is_kept_than_a_bound() -> None:
    few = Constructors()
    make = few.kept(dp.m.make_laplace, lambda: True)
    space = (
        few.kept(dp.atom_domain, lambda: True)(T=int),
        few.kept(dp.absolute_distance, lambda: True)(T=int),
    )
    for number in range(600):
        make(*space, 1.0 + number)
    assert make(*space, 1.0) is make(*space, 1.0)
    assert make(*space, 600.0) is not make(*space, 600.0)


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
