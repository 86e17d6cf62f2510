"""First calls: what is public is put back before each of them, what may be secret is left alone."""

from __future__ import annotations

import collections
import functools
import random
import types
from dataclasses import replace

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import first_call
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.reset_state import Kept
from opendp_sim.audit.layers import _first_calls
from opendp_sim.audit.state.public_values import Public, seeded_state
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.audit.state.snapshot import cached, held_now
from tests.audit.growing import refuted

_SPACE = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
_NOISE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)
LEARNT: list[int] = []
TIMES = 0


def _measurement(function):
    return dp.m.make_user_measurement(*_SPACE, dp.max_divergence(), function, float)


class Clipper:
    """Clips at the largest value of the first dataset, unless one was given."""

    def __init__(self, most=None):
        self.most = most

    def __call__(self, rows):
        if self.most is None:
            self.most = max([1, *rows])
        rng = np.random.default_rng()
        return sum(min(max(r, 0), self.most) for r in rows) + round(rng.laplace(0, self.most))


class Seeded:
    def __init__(self, source):
        self.source = source

    def __call__(self, rows):
        return len(rows) + round(self.source.normal(0, 20))


def remembers(rows, before=[]):  # noqa: B006 - the fault
    before.extend(rows)
    return _NOISE(min(len(rows), 1)) + 10 * len(before)


def learns(rows):
    global TIMES  # noqa: PLW0603 - the fault
    TIMES += 1
    LEARNT.append(len(rows))
    return TIMES, len(LEARNT), _NOISE(len(rows))


class Slots:
    __slots__ = ("seen",)

    def __init__(self):
        self.seen = None

    def __call__(self, rows):
        self.seen = self.seen or len(rows)
        return self.seen


def _nonlocal():
    count = 0
    held = {"sets": set(), "deque": collections.deque([1]), "array": np.zeros(2, int)}

    def release(rows):
        nonlocal count
        count += 1
        held["sets"].add(count)
        held["deque"].append(len(rows))
        held["array"][0] += 1
        held["new"] = 1
        kept = len(held), len(held["sets"]), len(held["deque"]), int(held["array"][0])
        return count, kept, len(rows)

    return release


@functools.lru_cache
def _cached(count):
    return random.random()  # noqa: S311


def caches(rows):
    return _cached(len(rows))


@pytest.mark.parametrize(
    "made",
    [pytest.param(Clipper(), marks=pytest.mark.long), Seeded(np.random.default_rng(20240101))],
)
def test_what_a_first_call_shows_is_refuted(made: object) -> None:
    budget = replace(
        Effort.of("quick"), seconds=25.0, witness_seconds=0.1
    )  # a slow machine may need it
    report = refuted(_measurement(made), 1, budget)
    assert report.verdict == "refuted"
    assert "on a first call" in str(report)
    assert "M = first_call(M)" in str(report)


@pytest.mark.parametrize(
    "make", [lambda: learns, Slots, _nonlocal, lambda: remembers, lambda: functools.partial(learns)]
)
def test_every_call_is_a_first_one(make) -> None:
    first = first_call(_measurement(make()))
    outputs = [first([1, 2]) for _ in range(4)]
    kept = [str(out[:-1]) if isinstance(out, tuple) else "" for out in outputs]
    assert len(set(kept)) == 1
    assert first([]) != first([1, 2, 3] * 9)
    assert first.map(1) == 1.0


def _kept(function) -> Kept:
    return Kept(functions_of(_measurement(function)))


def test_what_runs_change_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TIMES", 0)
    LEARNT.clear()
    remembers.__defaults__[0].clear()
    for made in (Clipper(), learns, _nonlocal(), Slots(), remembers):
        kept = _kept(made)
        assert not kept.unknown, kept.unknown
        assert not kept.changed()
        made([1, 2, 3])
        assert kept.changed()
        kept.restore()
        assert not kept.changed()
    steady = Clipper(1)
    kept = _kept(steady)
    steady([4])
    assert not kept.changed()


class Holder:
    def __init__(self, what):
        self.what = what

    def __call__(self, rows):
        return len(rows)


@pytest.mark.parametrize(
    "secret",
    [
        8392 * 71,  # the constructor may have drawn it
        0.7291 / 3,
        b"\x03" * 2,
        "9f86d081".upper() * 2,
        [7391 * 3, 2],
        {"key": 7391 * 7},
        np.array([0.25 / 7]),
        collections.deque([bytearray(b"k" * 3)]),
        iter([1]),
        types.SimpleNamespace(level=31 * 77),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_be_secret_is_not_put_back(secret: object) -> None:
    assert _kept(Holder(secret)).unknown


def test_generators_of_public_seeds_are_known() -> None:
    seeds = Public([Clipper.__call__]).seeds
    assert 20240101 in seeds  # this module names it
    far = np.random.default_rng(20240101)
    far.normal(size=1000)
    for public in (
        *(far, np.random.default_rng(7), np.random.RandomState(3), random.Random(20240101)),  # noqa: S311
        np.random.Generator(np.random.MT19937(5)),
    ):
        assert seeded_state(public, seeds)
    for fresh in (np.random.default_rng(), random.Random(), random.SystemRandom()):  # noqa: S311
        assert seeded_state(fresh, seeds) == ()
    assert seeded_state(3, seeds) is None


def test_noise_of_another_seed_goes_on() -> None:
    """A generator that the system seeded is not put back: its noise would come again."""
    made = Seeded(np.random.default_rng())
    first = first_call(_measurement(made))
    assert len({first([]) for _ in range(40)}) > 5
    kept = _kept(made)
    made([])
    assert not kept.changed()


def test_what_a_cache_keeps_is_read() -> None:
    for cache in (functools.lru_cache(lambda x, y=1: [x, y]), functools.lru_cache(None)(max)):
        before = list(held_now(cache))
        kept = [cache(3, 4), cache(5, 2)]
        assert all(any(part is one for part in cached(cache)) for one in kept)
        assert list(held_now(cache)) != before
        again = list(held_now(cache))
        cache(3, 4)
        assert list(held_now(cache)) == again


def test_a_cache_is_emptied_and_alone_no_reason_to_look() -> None:
    kept = _kept(caches)
    caches([1])
    assert not kept.changed()
    kept.restore()
    assert _cached.cache_info().currsize == 0


class Ahead:
    """Draws the noise of the next call ahead, and meets a constant: sound."""

    def __init__(self, beside=lambda: 0):
        self.next, self.beside = 0, beside

    def __call__(self, rows):
        now, self.next = self.next, _NOISE(0)
        return len(rows) + now + self.beside()


@pytest.mark.parametrize("made", [Ahead(), Ahead(lambda: _NOISE(0))], ids=["ahead", "beside"])
def test_noise_that_was_drawn_ahead_is_not_put_back(made) -> None:
    kept = _kept(made)
    while not kept.changed():  # the noise may be the same again
        made([])
    assert not kept.unknown
    assert not kept.fresh(made, [1])


def test_what_is_learnt_or_seeded_is_no_noise() -> None:
    for made in (Clipper(), Seeded(np.random.default_rng(7))):
        assert _kept(made).fresh(made, [1, 2])


class Once:
    """Answers once, with noise that was drawn when it was made: sound, and its noise may be a 1."""

    def __init__(self):
        self.noise = 1
        self.used = False

    def __call__(self, rows):
        if self.used:
            raise RuntimeError("used")
        self.used = True
        return len(rows) + self.noise


def test_an_object_that_answers_once_is_left_alone() -> None:
    once = Once()
    space = types.SimpleNamespace(draw=lambda _: Pair([], [1], 1))
    case = types.SimpleNamespace(space=space, rng=None, subject=types.SimpleNamespace(run=once))
    case.kept = _kept(once)
    once([])
    assert case.kept.changed()
    assert not case.kept.unknown
    assert list(_first_calls(case, 1e-4, 1.0)) == []
