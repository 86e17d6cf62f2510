"""What may draw beside a tape is met by no tape where it is rare: only a closed world is calculated alone."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import functools
import hashlib
import itertools
import math
import operator
import secrets
import string
import time
import typing
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
import scipy.stats

from opendp_sim.audit import audit
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.audit.state.snapshot import held_now, own_of
from opendp_sim.audit.trace.deterministic import stands_alone
from opendp_sim.audit.trace.purity import World, known_call, known_type, roots_of
from tests.audit.opaque.kit import PURE, SYMMETRIC, opaque, whole
from tests.audit.test_sound_programs import BRIEF

NOISE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)
FAIR = dp.m.make_randomized_response_bool(prob=0.99)
COUNTED = dp.t.make_count_by(whole(), SYMMETRIC)
LISTED = dp.new_function(lambda d: list(d)[0], TO=int)  # noqa: RUF015 - it is given a mapping
RNG = np.random.default_rng()
SHORT = replace(BRIEF, trace_seconds=2.0, seconds=2.0, witness_seconds=0.1, total=2.2)
DEVICE = Path("/dev/urandom")
needs_device = pytest.mark.skipif(not DEVICE.exists(), reason="no device")


def alone(coin: Callable[[list[int]], Any]) -> bool:
    def function(rows: list[int]) -> Any:
        return NOISE(len(rows)) + (coin(rows) is None)

    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, [function, coin, *functions_of(coin)]):
        tracer = SimpleNamespace(
            tape=tape, function=function, apart=None, subject=SimpleNamespace(run=None)
        )
        return stands_alone(tracer, Pair([], [1], 1))


class Counted(dict[int, int]):
    def __missing__(self, key: int) -> int:
        return int(DEVICE.open("rb").read(1)[0]) + key


class Annotated:
    x: "time.time()"  # noqa: UP037


class Kept:
    last = 0

    @property
    def coin(self) -> int:
        return time.time_ns()


@functools.lru_cache
def cached(key: int) -> int:
    return key


def written() -> Callable[[Any], Any]:
    state = 0

    def coin(_: Any) -> int:
        nonlocal state
        state += 1
        return state

    return coin


def kept(value: Any) -> Callable[[Any], Any]:
    """Return a function that keeps a value in a cell."""
    return lambda _: value


def used(value: Any, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that calls another with what it keeps."""
    return lambda _: function(value)


def pops(values: list[int]) -> int:
    return values.pop()


def marks(values: Any) -> None:
    values.last += 1


def counts(holder: Any) -> None:
    holder.calls = calls_of(holder) + 1


def calls_of(holder: Any) -> int:
    try:
        return int(holder.calls)
    except AttributeError:
        return 0


COINS: dict[str, Callable[[Any], Any]] = {
    "a device": lambda _: open("/dev/urandom", "rb").read(4),  # noqa: PTH123, SIM115
    "a device by its path": lambda _: DEVICE.read_bytes(),
    "a file that is open": kept(Path(__file__).open("rb")),  # noqa: SIM115
    "numpy's file": lambda _: np.fromfile("/dev/urandom", count=1),
    "numpy's array in a file": lambda _: np.load(__file__),
    "a map": kept(map(RNG.integers, itertools.repeat(4096))),
    "an iterator of calls": kept(iter(functools.partial(RNG.integers, 4096), -1)),
    "a filter": kept(filter(RNG.integers, itertools.repeat(4096))),
    "a counter": kept(itertools.count()),
    "a pool": kept(iter([secrets.randbelow(4096) for _ in range(9)])),
    "a generator": kept(i for i in range(9)),
    "a date": lambda _: dt.datetime.now().microsecond,  # noqa: DTZ005
    "a date's method": kept(dt.datetime.now),
    "a clock": lambda _: time.time(),
    "a clock that is a key": lambda rows: sorted(rows, key=lambda _: time.time_ns()),
    "a clock that is a factory": kept(collections.defaultdict(time.time_ns)),
    "a missing key": used(Counted(), lambda d: d[1]),
    "a property": used(Kept(), lambda k: k.coin),
    "a raw generator": lambda _: RNG.bit_generator.random_raw(),
    "a child of a generator": lambda _: RNG.spawn(1)[0].integers(4096),
    "a name put together": lambda _: getattr(RNG, "bit" + "_generator"),
    "a place in memory": lambda _: id([]),
    "a hash": lambda _: hash("a"),
    "a number of a process": lambda _: __import__("os").getpid(),
    "a module that is imported": lambda _: _imports(),
    "a reference": kept(weakref.ref(Kept)),
    "a cache": lambda _: cached(1),
    "a method by its name": kept(operator.methodcaller("integers", 4096)),
    "a function without notice": kept(np.frompyfunc(lambda _: time.time(), 1, 1)),
    "noise of OpenDP's below its call": lambda _: FAIR.function(False),
    "state in a cell": written(),
    "state in a list": used(list(range(10**4)), pops),
    "state in an object": used(Kept(), marks),
    "a module's mapping": lambda _: next(map(np.__dict__["random"].bytes, (2,))),
    "a module's function for names": lambda _: np.__getattr__("random").bytes(2),
    "a builtin's module": lambda _: next(map(len.__self__.eval, ("__import__('time').time()",))),
    "an annotation": lambda _: typing.get_type_hints(Annotated),
    "an attribute by its name": lambda _: string.Formatter().get_field("0.spawn", (RNG,), {}),
    "numpy's clock": lambda _: int(np.array("now", dtype="M8[s]").astype(int)),
    "a uuid": lambda _: __import__("uuid").uuid1(),
    "state on a measurement": used(FAIR, counts),
    "state on a partial call": used(functools.partial(math.fsum), counts),
    "state on a Counter": used(collections.Counter(), counts),
    "state on a class of OpenDP's": used(type(FAIR), counts),
    "state of decimal numbers": lambda _: decimal.getcontext().prec,
    "the order of a map": lambda _: next(iter(COUNTED([1, 2, 3]))),
    "the order of a map that it hands on": lambda _: LISTED({1: 1, 2: 2, 3: 3}),
    "state of numpy": lambda _: np.seterrcall(np.geterrcall()),
}


def _imports() -> Any:
    import tempfile

    return tempfile.gettempprefix()


@needs_device
@pytest.mark.parametrize("name", COINS)
def test_what_may_draw_beside_the_tape_speaks_against_a_calculation(name: str) -> None:
    assert not alone(COINS[name])


class Plain:
    scale = 2.0

    def __init__(self) -> None:
        self.keys = {"a": [1, 2], "b": (3, 4)}

    def total(self, rows: list[int]) -> float:
        return math.fsum(min(max(r, 0), 10) for r in rows) * self.scale + len(self.keys)


QUIET: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda rows: int(np.clip(np.asarray(rows, dtype=float), 0, 1).sum()),
    "a key": lambda rows: sorted(set(rows), key=lambda r: (-r, str(r))),
    "counts": lambda rows: collections.Counter(r % 3 for r in rows).most_common(1),
    "a method": Plain().total,
    "a hash of text": lambda rows: hashlib.sha256(repr(rows).encode()).hexdigest(),
    "a map in the run": lambda rows: list(map(operator.add, rows, itertools.repeat(1))),
    "a partial call": functools.partial(np.sum, axis=0),
    "a drawn coin": lambda _: secrets.randbelow(2),
    "a drawn array": lambda _: RNG.normal(0, 1, 3),
    "a law": lambda _: scipy.stats.norm.ppf(0.3),
    "a class in the run": lambda rows: type("T", (), {"n": len(rows)}).__name__,
}


def _with_inner(rows: list[int]) -> int:
    seen = 0

    def add(r: int) -> None:
        nonlocal seen
        seen += r

    for r in rows:
        add(r)
    return seen


QUIET["a variable of the run"] = _with_inner


@pytest.mark.parametrize("name", QUIET)
def test_what_is_a_function_of_dataset_and_tape_may_be_calculated(name: str) -> None:
    assert alone(QUIET[name])


def total(rows: list[int]) -> int:
    return min(max(sum(min(max(r, 0), 20) for r in rows), 0), 20)


def with_coin(coins: Iterator[int], values: Iterator[int]) -> Any:
    """One call in 4096 is uniform on 201 values, so that no output is rarer than e^-13 of another."""

    def function(rows: list[int]) -> int:
        value = min(max(NOISE(total(rows)), -100), 100)
        return int(next(values)) if next(coins) == 0 else value

    return opaque(whole(), SYMMETRIC, PURE, function, lambda d: 13.0 * d)


@pytest.mark.long
def test_a_rare_coin_that_no_tape_sees_is_not_accused() -> None:
    """The claim rests on the coin; equal tapes met it in none of 200."""
    coins: Any = map(RNG.integers, itertools.repeat(0), itertools.repeat(4096))
    values: Any = map(RNG.integers, itertools.repeat(-100), itertools.repeat(101))
    sound = with_coin(coins, values)
    assert audit(sound, 1, budget=SHORT, seed=0).verdict == "not refuted"


def test_an_object_is_followed_through_what_is_around_its_function() -> None:
    inner = opaque(whole(), SYMMETRIC, PURE, len, lambda d: 1.0 * d)
    outer = dp.t.make_cast_default(whole(), SYMMETRIC, TOA=int) >> inner
    assert World().take(roots_of(inner))
    assert World().take(roots_of(outer))
    assert not World().take(roots_of(NOISE))


def test_a_wrapper_does_not_pass_for_what_it_wraps() -> None:
    @functools.wraps(math.floor)
    def floor(_: Any) -> float:
        return time.time()

    assert known_call(math.floor)
    assert not known_call(floor)
    assert not known_call(cached)
    assert known_type(collections.Counter)
    assert not known_type(np.datetime64)


def test_what_is_held_is_compared_by_identity() -> None:
    kept = Kept()
    before, values = list(held_now(kept)), [1, "a"]
    listed = list(held_now(values))
    assert list(held_now(kept)) == before
    kept.last = 1
    assert own_of(kept) == [1]
    assert list(held_now(kept)) != before
    values[0] = 2
    assert list(held_now(values)) != listed
