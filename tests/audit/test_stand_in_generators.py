"""Stand-ins for generators: copied, pickled, called by their class, told apart; and what bears them out."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.rng_proxies import Proxy
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.seeds.constants import Mined
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.audit.subject import read_subject
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.layer import contradicted, stand_ins_raise
from tests.audit.opaque.kit import APPROX, PURE, SYMMETRIC, opaque, whole
from tests.audit.test_sound_programs import BRIEF

CLASS = np.random.Generator
OF_NUMPY, OF_PYTHON = np.random.default_rng(), random.Random()  # noqa: S311
BUDGET = replace(Effort.of("quick"), trace_seconds=1.0)


@dataclasses.dataclass
class State:
    count: int
    source: Any


def kept(_: list[int]) -> float:
    return float(copy.deepcopy(OF_NUMPY).random())


def kept_of_python(_: list[int]) -> float:
    OF_PYTHON.random()
    return copy.copy(OF_PYTHON).random()


def fresh(_: list[int]) -> float:
    return float(copy.deepcopy(np.random.default_rng()).random())


def pickled(_: list[int]) -> float:
    return float(pickle.loads(pickle.dumps(np.random.default_rng())).random())  # noqa: S301


def pickled_of_python(_: list[int]) -> float:
    return pickle.loads(pickle.dumps(OF_PYTHON)).random()  # noqa: S301


def in_a_table(rows: list[int]) -> float:
    return float(dataclasses.asdict(State(len(rows), np.random.default_rng()))["source"].random())


def of_its_own_class(_: list[int]) -> float:
    class Own(random.Random):
        def twice(self) -> float:
            return self.random() + self.random()

    return Own().twice()


def spawned(_: list[int]) -> float:
    return float(np.random.default_rng().spawn(1)[0].random())


COPIES = (
    spawned,
    kept,
    kept_of_python,
    fresh,
    pickled,
    pickled_of_python,
    in_a_table,
    of_its_own_class,
)


@pytest.mark.parametrize("program", COPIES)
@pytest.mark.parametrize("mode", ["record", "bulk", "real"])
def test_copies_are_made_and_told(program: Callable[[Any], Any], mode: Any) -> None:
    """They raised; a copy draws what its original draws, so that no tape can follow it."""
    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, functions_of(program)):
        assert isinstance(tape.run(program, [], mode)[0], float)
    real = mode != "record" and program not in (kept, kept_of_python, pickled_of_python)
    assert tape.unseen or (real and program is not of_its_own_class)


@pytest.mark.parametrize("mode", ["record", "bulk", "real"])
def test_a_copy_goes_on_with_the_same_stream(mode: Any) -> None:
    def program(_: Any) -> list[float]:
        source = np.random.default_rng()
        source.random()
        one, two = copy.deepcopy(source), pickle.loads(pickle.dumps(source))  # noqa: S301
        return [float(s.random()) for s in (source, one, two)]

    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, functions_of(program)):
        first, second = (tape.run(program, [], mode)[0] for _ in range(2))
    assert len(set(first)) == len(set(second)) == 1
    assert first != second


def test_generators_are_different_objects_and_methods_of_their_class_are_drawn() -> None:
    def program(_: list[int]) -> list[Any]:
        sources = [np.random.default_rng() for _ in range(3)]
        assert len(set(sources)) == 3
        assert all(isinstance(source, np.random.Generator) for source in sources)
        return [CLASS.geometric(sources[0], 0.5), np.random.Generator.random(sources[1])]

    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, functions_of(program)):
        _, draws = tape.run(program, [], "record")
        assert [draw.what for draw in draws] == ["rng.geometric(0.5,)()", "rng.random()()"]
        for mode in ("bulk", "real"):
            assert isinstance(tape.run(program, [], mode)[0], list)
        assert not tape.unseen
        assert type(tape.run(lambda _: np.random.default_rng(), [], "bulk")[0]) is not Proxy


def test_a_generator_that_is_made_of_a_generator_is_that_one() -> None:
    """A function that takes a seed or a generator calls ``default_rng`` on it."""

    def program(_: list[int]) -> bool:
        source = np.random.default_rng()
        same = (
            np.random.default_rng(source) is source and np.random.default_rng(OF_NUMPY) is OF_NUMPY
        )
        return same and bool(np.random.default_rng(seed=source).random() < 1)

    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, functions_of(program)):
        for mode in ("record", "bulk", "real"):
            out = tape.run(program, [], mode)[0]
            assert out is True
    assert not tape.unseen


# --- what bears them out --------------------------------------------------------------------


def tracer_of(program: Callable[[Any], Any]) -> Tracer:
    obj = opaque(whole(), SYMMETRIC, PURE, program, float)
    subject = read_subject(obj, 1)
    space = space_of(obj.input_domain, obj.input_metric, 1)
    found = functions_of(program)
    rng = np.random.default_rng(0)
    return Tracer(subject, space, 1, BUDGET, rng, 1e-3, (), found, Mined())


def suspicious(rows: list[int]) -> int:
    source = np.random.default_rng()
    assert not rows or type(source) is CLASS
    return len(rows) + int(source.integers(0, 100))


def another_way(rows: list[int]) -> int:
    source = np.random.default_rng()
    return int(source.integers(0, 100)) + (50 * len(rows) if type(source) is not CLASS else 0)


def leaking(rows: list[int]) -> int:
    return int(np.random.default_rng().integers(0, 100)) + 60 * len(rows)


def test_runs_that_raise_by_their_stand_ins_are_no_runs_of_the_object() -> None:
    assert [stand_ins_raise(tracer_of(p)) for p in (suspicious, leaking)] == [True, False]


def test_what_releases_do_not_bear_out_is_dropped() -> None:
    pair = Pair([1], [], 1)
    for program, expected in ((another_way, True), (leaking, False)):
        tracer = tracer_of(program)
        with tracer.hooked():
            tracer.prepare()
        assert tracer.direct
        assert contradicted(tracer, pair) is expected
        assert not contradicted(tracer, None)


@pytest.mark.long
def test_a_program_that_sees_its_stand_in_is_not_refuted_by_that() -> None:
    for program in (suspicious, another_way):
        obj = opaque(whole(), SYMMETRIC, APPROX, program, lambda d: (0.0, 0.01 * d))
        report = audit(obj, 1, budget=BRIEF)
        assert report.verdict == "not refuted"
        assert program is another_way or "stand-ins" in str(report)
