"""First calls of objects that cannot be read or written: no exception, and nothing is left behind."""

from __future__ import annotations

import collections
import dataclasses
import functools
import logging
import os
import random
import secrets
import sys
import threading
import types

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.reset_state import Kept, Unreadable, first_call, left_behind
from opendp_sim.audit.layers import _first_calls
from opendp_sim.audit.state.graph import Followed, Places, container_slot
from opendp_sim.audit.state.library_calls import harmless, is_library, is_plain, reads_of
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.audit.state.slots import own_dict

_SPACE = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
_NOISE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)
_DATA = [1, 0, 1]
LEVELS = [1, 0, 1, 1, 0, 1, 0, 0]


def _kept(function) -> Kept:
    return Kept(
        functions_of(dp.m.make_user_measurement(*_SPACE, dp.max_divergence(), function, float))
    )


def _counted(take):
    count = 0

    def release(rows):
        nonlocal count
        count += 1
        return len(rows) + take(count), _NOISE(sum(rows))

    return release


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    low: int = 0


class Entries:
    def __init__(self):
        self.__dict__["_d"] = {"low": 0}

    def __getattr__(self, name):
        return self.__dict__["_d"][name]


class Endless:
    def __getattr__(self, name):
        return getattr(self.inner, name)


class Grows:
    __slots__ = ("n",)

    def __init__(self):
        object.__setattr__(self, "n", 0)

    def __setattr__(self, name, value):
        raise ValueError("it only grows")

    def __eq__(self, other):
        raise TypeError("no comparing")

    __hash__ = object.__hash__

    def __repr__(self):
        raise RuntimeError("no words")


class Closed:
    @property
    def __dict__(self):
        raise RuntimeError("closed")


class Meta(type):
    def __setattr__(cls, name, value):
        raise AttributeError("closed")


class OfMeta(metaclass=Meta):
    level = 1


class Only(dict):
    def clear(self):
        raise TypeError("it only grows")


def _read_only():
    out = np.array([0, 1])
    out.setflags(write=False)
    return out


@pytest.mark.parametrize(
    "held",
    [
        *(Frozen(), Entries(), Endless(), Grows(), {Grows(): 1}, Closed(), OfMeta(), Only(a=1)),
        *(_read_only(), np.broadcast_to(np.array([1]), (3,)), np.zeros(3, "i4,f8"), [Grows()] * 3),
    ],
    ids=lambda held: type(held).__name__,
)
def test_nothing_that_a_class_forbids_ends_an_audit(held) -> None:
    made = _counted(lambda n: 0 * n if held is not None else n)
    kept = _kept(made)
    made(_DATA)
    kept.changed()
    kept.restore()
    kept.fresh(made, _DATA)
    first_call(dp.m.make_user_measurement(*_SPACE, dp.max_divergence(), made, float))(_DATA)


def test_what_cannot_be_put_back_stays_as_it_was() -> None:
    count, array = [0], np.zeros(2)

    def release(rows):
        count[0] += 1
        array[0] = count[0]

    kept = _kept(release)
    assert not kept.unknown
    release(_DATA)
    array.setflags(write=False)
    kept.restore()
    assert kept.unknown
    assert (count, array[0]) == ([1], 1)


class Pool:
    """Coins that are used once each, from a public place on."""

    def __init__(self):
        self.spot, self.coins = 0, functools.partial(_NOISE, 0)

    def __call__(self, rows):
        self.spot += 1
        return self.spot, self.coins()


def test_an_object_is_not_behind_its_own_use_after_first_calls() -> None:
    made = Pool()
    space = types.SimpleNamespace(draw=lambda _: Pair([], [1], 1))
    case = types.SimpleNamespace(space=space, rng=None, subject=types.SimpleNamespace(run=made))
    case.kept = _kept(made)
    for _ in range(7):
        made(_DATA)
    with case.kept.lent():
        case.kept.restore()
        assert made([])[0] == 1
    assert made.spot == 7
    assert case.kept.fresh(made, _DATA)
    assert made.spot == 7
    made.coins = lambda: 0  # it repeats itself
    case.kept = _kept(made)
    made([])
    assert list(_first_calls(case, 1e-4, 1.0)) == []
    assert made.spot > 7


@functools.lru_cache
def _once(count):
    return count


def test_what_is_left_behind_is_read_whole_or_not() -> None:
    loop = [1]
    loop.append(loop)
    shared = types.SimpleNamespace(a={1, 2}, b=(frozenset("xy"), _once, bytearray(b"k")))
    again = types.SimpleNamespace(a={2, 1}, b=(frozenset("yx"), _once, bytearray(b"k")))
    values = [loop, Frozen(), _counted(_once), 1.5]
    known = {id(_NOISE), id(np.float64)}
    told = left_behind([*values, shared, _NOISE, np.random.default_rng()], known)
    assert told == left_behind([*values, again, _NOISE, np.random.default_rng()], known)
    assert left_behind([True], ()) != left_behind([1], ())
    for unknown in (iter([1]), collections.UserDict, os):
        with pytest.raises(Unreadable):
            left_behind([unknown], ())


def test_libraries_are_told_from_a_users_code() -> None:
    assert harmless("numpy.random")
    assert not harmless("pools")
    assert is_plain(Pool)
    assert not is_plain(Only)
    assert reads_of((lambda: eval("1")).__code__).beyond == "eval"  # noqa: S307
    assert issubclass(Followed, Places)
    assert Followed([_counted(abs)]).unknown == ""
    assert own_dict(Frozen()) is None
    assert container_slot((1,)) is None


@dataclasses.dataclass
class Learns:
    most: int | None = None
    low: float = 0.0
    lock: object = dataclasses.field(default_factory=threading.Lock)

    def __call__(self, rows):
        with self.lock:
            if self.most is None:
                self.most = max([1, *rows])
        return float(np.sum(np.clip(rows, self.low, self.most))) + np.random.laplace(0, self.most)

    def later(self, rows):
        if not hasattr(self, "first"):
            self.first = len(rows)
        return self.first + random.gauss(0, 3)


def _keeps(source, seen):
    def release(rows):
        seen.extend(rows)
        return len(seen) + source.normal(0, 3)

    return release


def _unset():
    def release(rows):
        global FIRST  # noqa: PLW0603 - the fault
        try:
            FIRST  # noqa: B018
        except NameError:
            FIRST = len(rows)
        return FIRST + int.from_bytes(os.urandom(1), "big")

    return release


@pytest.mark.parametrize(
    "made",
    [
        *(Learns(), Learns().later, _keeps(np.random.default_rng(), []), _unset()),
        _keeps(np.random.default_rng(20240101), collections.deque()),
    ],
    ids=["learns", "later", "keeps", "unset", "seeded"],
)
def test_what_is_public_is_put_back_beside_noise_that_goes_on(made) -> None:
    kept = _kept(made)
    assert not kept.unknown, kept.unknown
    made(_DATA)
    assert kept.changed()
    assert any(kept.fresh(made, _DATA) for _ in range(20)), kept.unknown  # a machine may be slow
    kept.restore()
    assert not kept.changed()


def test_what_a_library_writes_out_is_no_constant_of_the_code() -> None:
    assert is_library(os)
    assert is_library(np)
    assert not is_library(sys.modules[__name__])
    made = _counted(lambda n: os.urandom(3)[n % 3])
    assert not _kept(made).unknown
    made = _counted(lambda n: np.load(str(n)))
    assert _kept(made).unknown


def _padded(read, write):
    """SOUND: a pad of 24 secret bits, drawn anew at every call but kept where ``read`` finds it."""
    used = False

    def release(rows):
        nonlocal used
        if used or not read():
            write(secrets.randbits(24) | 1)
        used = True
        return (len(rows) * 1234567 + read()) % (1 << 24), _NOISE(len(rows))

    return release


def _of_a_measurement():
    held = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 2.0)
    held.pad = None

    def write(value):
        held.pad = value

    return _padded(lambda: held.pad, write)


def _of_a_logger():
    log = logging.getLogger("tests.audit.mechanism")
    log.pad = None

    def write(value):
        log.pad = value

    return _padded(lambda: log.pad, write)


def _of_the_memory_around_a_view():
    view = np.zeros(5, dtype=np.int64)[:1]

    def write(value):
        view.base[4] = value

    return _padded(lambda: int(view.base[4]), write)


def _of_numpy():
    np.my_pad = None

    def write(value):
        np.my_pad = value

    return _padded(lambda: np.my_pad, write)


@pytest.mark.parametrize(
    "made", [_of_a_measurement, _of_a_logger, _of_the_memory_around_a_view, _of_numpy]
)
def test_a_pad_beside_what_is_usually_followed_is_put_back_or_ends_it(made) -> None:
    """A counter was put back and the pad was not: the same pad came again with every first call."""
    release = made()
    kept = _kept(release)
    heard = set()
    try:
        for _ in range(20):
            kept.restore()
            heard.add(release(_DATA)[0])
        assert kept.unknown or len(heard) > 1
    finally:
        vars(np).pop("my_pad", None)
