"""Sound programs that an attacker wrote: they are not refuted, and nothing of theirs ends an audit."""

from __future__ import annotations

import array
import collections
import math
import random
import secrets
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.outputs.reading import read, written
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.core.randomness import public_generator
from tests.audit.test_sound_programs import BRIEF

BITS = dp.vector_domain(dp.atom_domain(T=int, bounds=(0, 1))), dp.symmetric_distance()
NOISE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)
HASTE = replace(BRIEF, trace_seconds=1.0, seconds=0.5)


def measurement(function: Callable[[Any], Any], space: Any = BITS, epsilon: float = 1.0001) -> Any:
    return dp.m.make_user_measurement(*space, dp.max_divergence(), function, lambda d: epsilon * d)


def two_sided(source: Any) -> int:
    if isinstance(source, (random.Random, types.ModuleType)):
        return int(-math.log(1 - source.random())) - int(-math.log(1 - source.random()))
    p = 1 - math.exp(-1)
    return int(source.geometric(p) - source.geometric(p))


def the_same_noise_again(source: Any) -> Callable[[list[int]], Any]:
    """SOUND: the state is put back, so the second number is the first."""
    names = ("get_state", "set_state") if hasattr(source, "get_state") else ("getstate", "setstate")

    def release(rows: list[int]) -> Any:
        total, state = sum(rows), getattr(source, names[0])()
        first = total + two_sided(source)
        getattr(source, names[1])(state)
        return first, total + two_sided(source)

    return release


def by_chance_shuffled(kind: Callable[[list[int]], Any]) -> Callable[[list[int]], Any]:
    """SOUND: a sum does not know in which order its numbers come."""

    def release(rows: list[int]) -> int:
        kept = kind(list(rows))
        if len(kept) > 1 and secrets.randbelow(10) == 0:
            random.shuffle(kept)
        return int(NOISE(sum(kept)))

    return release


def refused_sample(rows: list[int]) -> int:
    """SOUND: Python's ``sample`` takes no array, so nothing is added."""
    try:
        extra = random.sample(np.array([10 * sum(rows)] * 2), 1)[0]  # type: ignore[arg-type]
    except TypeError:
        extra = 0
    return int(NOISE(sum(rows) + extra))


def method_of_the_class(rows: list[int]) -> int:
    """SOUND: what its generator draws is not used."""
    generator = np.random.default_rng()
    if sum(rows) and secrets.randbelow(10) == 0:
        type(generator).random(generator)
    return int(NOISE(sum(rows)))


SOUND = {
    "legacy": lambda: the_same_noise_again(np.random.RandomState()),
    "python": lambda: the_same_noise_again(random.Random()),  # noqa: S311
    "module": lambda: the_same_noise_again(random),
    "deque": lambda: by_chance_shuffled(collections.deque),
    "array": lambda: by_chance_shuffled(lambda rows: array.array("i", rows)),
    "sample": lambda: refused_sample,
    "class": lambda: method_of_the_class,
}


@pytest.mark.long
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_program_that_knows_the_libraries_well_is_not_refuted(name: str) -> None:
    assert audit(measurement(SOUND[name]()), 1, budget=HASTE).verdict == "not refuted"


@pytest.mark.parametrize("name", ["legacy", "python", "module"])
@pytest.mark.parametrize("mode", ["record", "bulk"])
def test_noise_that_is_drawn_again_is_the_same_with_stand_ins(name: str, mode: Any) -> None:
    obj = measurement(SOUND[name]())
    tape = Tape(obj, public_generator(0, "test"))
    function = functions_of(obj)[0]
    with tapped(tape, functions_of(obj)):
        for _ in range(40):
            if mode == "record":
                out, _ = tape.run(function, [1, 1], "record")
            else:
                out = tape.live(function, mode)([1, 1])
            assert out[0] == out[1]


@pytest.mark.parametrize("kind", [list, collections.deque, np.array, lambda r: array.array("i", r)])
def test_a_shuffle_keeps_all_rows_of_any_sequence(kind: Any) -> None:
    seen: list[list[int]] = []

    def release(rows: list[int]) -> int:
        kept = kind(list(rows))
        random.shuffle(kept)
        seen.append(sorted(kept))
        return 0

    obj = measurement(release)
    tape = Tape(obj, public_generator(0, "test"))
    with tapped(tape, functions_of(obj)):
        tape.run(release, [3, 1, 2], "record")
        tape.live(release, "bulk")([3, 1, 2])
    assert seen == [[1, 2, 3]] * 2


def test_a_run_is_made_under_the_errors_that_its_process_chose() -> None:
    """It answers for an overflow, which would be infinite otherwise, and tell the datasets apart."""

    def release(rows: list[int]) -> int:
        try:
            large = np.float64(1e308) * (1 + 9 * sum(rows))
        except FloatingPointError:
            large = 0.0
        return int(NOISE(sum(rows))) + int(1e6 if np.isinf(large) else 0)

    with np.errstate(all="raise"):
        assert audit(measurement(release), 1, budget=HASTE).verdict == "not refuted"


def test_what_is_no_exception_of_a_users_function_is_an_opendp_error() -> None:
    """OpenDP let it out of its trampoline, and the process ended in SIGSEGV."""
    code = """
import opendp.prelude as dp, opendp_sim.audit, sys
dp.enable_features("contrib", "honest-but-curious")
space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
def release(rows): sys.exit("no rows") if not rows else 0
made = dp.m.make_user_measurement(*space, dp.max_divergence(), release, float)
try: made([])
except dp.OpenDPException as error: print("SystemExit: no rows" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr[-500:]


@pytest.mark.long
def test_one_of_an_audited_function_is_an_output() -> None:
    def release(rows: list[int]) -> int:
        if (noisy := int(NOISE(sum(rows)))) > 3:
            sys.exit("enough")
        return noisy

    assert audit(measurement(release), 1, budget=HASTE).verdict == "not refuted"


def test_numbers_that_python_does_not_write_are_outputs() -> None:
    assert written(7**20000) == hex(7**20000)
    assert written(7**2000) == 7**2000
    assert read(Decimal("1E+999999999"))["text"] == "1E+999999999"
    assert read(Decimal("2.5"))["near"] == 2.5
