"""First calls: what code keeps is put back before each of them, and what they show is priced."""

from __future__ import annotations

import collections
import functools
import random
import types
from dataclasses import replace

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit, first_call
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.reset_state import Kept, public_state, seeds_of
from opendp_sim.audit.layers import _first_calls
from opendp_sim.audit.state.reachable import functions_of
from tests.audit.test_sound_programs import BRIEF

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


@pytest.mark.long
def test_what_a_first_call_shows_is_priced() -> None:
    """The state may be secret, so draws refute nothing: the assumption is said. Not at every seed."""
    reports = (audit(_measurement(Clipper()), 1, "quick", seed=seed) for seed in (1, 2, 0))
    report = next(one for one in reports if one.verdict == "priced")
    text = str(report)
    assert "priced by LT first calls: on a first call" in text
    assert "if what its code keeps before any call is public" in text


RNG = np.random.default_rng(42)


def of_module(rows):
    return len(rows) + round(RNG.normal(0, 20))


@pytest.mark.parametrize(
    "made",
    [pytest.param(of_module, marks=pytest.mark.long), Seeded(np.random.default_rng(20240101))],
)
def test_a_public_seed_is_refuted_on_first_calls(made: object) -> None:
    """The seed stands in the module: whoever reads it knows the noise."""
    budget = replace(BRIEF, seconds=2.0, trace_seconds=0.05, total=3.0)
    report = audit(_measurement(made), 1, budget)
    assert report.verdict == "refuted"
    assert "on a first call" in str(report)
    assert "M = first_call(M)" in str(report)


def test_generators_of_public_seeds_are_known() -> None:
    seeds = seeds_of([Clipper.__call__])
    assert {20240101, 0, 99} <= set(seeds)  # this module names the first
    far = np.random.default_rng(20240101)
    far.normal(size=1000)
    made = (np.random.default_rng(7), np.random.RandomState(3), random.Random(20240101))  # noqa: S311
    for public in (far, *made, np.random.Generator(np.random.MT19937(5))):
        read, write = public_state(public, seeds)
        before = read()
        public.random()
        assert read() != before
        write(before)
        assert read() == before
    for fresh in (np.random.default_rng(), np.random.RandomState(), random.Random()):  # noqa: S311
        assert public_state(fresh, seeds) is None
    assert public_state(random.SystemRandom(), seeds) is None


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


def test_noise_of_another_seed_goes_on() -> None:
    """A generator that the system seeded is not put back: its noise would come again."""
    made = Seeded(np.random.default_rng())
    first = first_call(_measurement(made))
    assert len({first([]) for _ in range(40)}) > 5
    kept = _kept(made)
    made([])
    assert not kept.changed()


def test_a_cache_is_emptied_and_alone_no_reason_to_look() -> None:
    kept = _kept(caches)
    caches([1])
    assert not kept.changed()
    kept.restore()
    assert _cached.cache_info().currsize == 0


class Refusing:
    def __init__(self):
        self.rows = [1]

    @property
    def __dict__(self):
        raise RuntimeError


def test_what_cannot_be_read_ends_no_audit() -> None:
    made = Refusing()
    kept = _kept(lambda rows: made.rows)
    assert kept.unknown == "RuntimeError"
    assert not kept.changed()


def test_all_noise_that_is_put_back_shows_nothing() -> None:
    class Ahead:
        """Draws the noise of the next call ahead: sound."""

        next = 0

        def __call__(self, rows):
            now, self.next = self.next, _NOISE(0)
            return len(rows) + now

    assert not _kept(made := Ahead()).fresh(made, [1])
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
    assert list(_first_calls(case, 1e-4)) == []
