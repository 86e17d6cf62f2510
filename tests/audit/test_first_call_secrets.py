"""First calls of sound objects that draw ahead, hold a key, or cannot be read: they are left alone."""

from __future__ import annotations

import collections
import functools
import hashlib
import os
import random
import secrets
import types

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.instrument.reset_state import Kept
from opendp_sim.audit.state.public_values import Public, seeded_state
from opendp_sim.audit.state.reachable import functions_of

_SPACE = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
_NOISE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)
_DATA = [1, 0, 1]
LEVELS = [1, 0, 1, 1, 0, 1, 0, 0]


def _kept(function) -> Kept:
    return Kept(
        functions_of(dp.m.make_user_measurement(*_SPACE, dp.max_divergence(), function, float))
    )


def _coin() -> bool:
    return secrets.randbelow(4) == 0


class Ahead:
    """What ``draw`` gives is kept for the next call; a second answer has noise of its own."""

    def __init__(self, draw, first):
        self.draw, self.next = draw, first

    def __call__(self, rows):
        now, self.next = self.next, self.draw()
        return str(now), len(rows) + _NOISE(0)


class Coin:
    def __init__(self):
        self.lie = _coin()


def _many_coins():
    return [_coin() for _ in range(3)]


def _array_of_coins():
    return np.array(_many_coins())


def _word():
    return "rough" if secrets.randbelow(10) else "fine"


def _deep():
    return {"a": (types.SimpleNamespace(next=collections.deque([_coin()])), {_coin()})}


@pytest.mark.parametrize("draw", [_coin, _many_coins, _array_of_coins, _word, _deep, Coin, _NOISE])
def test_what_is_drawn_for_the_next_call_is_not_put_back(draw) -> None:
    """Lists, arrays, words, attributes: a false alarm has probability under 1e-9."""
    first = draw(0) if draw is _NOISE else draw()
    made = Ahead(functools.partial(_NOISE, 0) if draw is _NOISE else draw, first)
    kept = _kept(made)
    assert kept.unknown or not kept.fresh(made, _DATA)


def test_noise_that_is_used_up_is_not_put_back() -> None:
    made = Ahead(lambda: None, 0)
    kept = _kept(made)
    assert not kept.unknown
    assert not kept.fresh(made, _DATA)


def _counted(take):
    count = 0

    def release(rows):
        nonlocal count
        count += 1
        return len(rows) + take(count), _NOISE(sum(rows))

    return release


class Table:
    def __init__(self):
        self.pool = [_NOISE(0) * 10**6 + 345671 for _ in range(9)]

    def __call__(self, spot):
        return self.pool[spot]


class OfTable:
    table = Table()

    def __init__(self):
        self.spot = 0

    def __call__(self, rows):
        self.spot += 1
        return len(rows) + type(self).table(self.spot)


class Shared(random.Random):
    ready = False


_FORK = hashlib.blake2b(key=os.urandom(32)).copy


@functools.lru_cache
def _once(count):
    return count


_once(3)


@pytest.mark.parametrize(
    "made",
    [
        _counted({i: i * 7919 for i in range(9)}.get),
        _counted(lambda n: _FORK),
        _counted(([1, 0, 0, 1] * 3).__getitem__),
        _counted(np.frompyfunc(lambda n: n, 1, 1)),
        _counted(Shared(0).random),
        _counted(_once),
        _counted(np.random.SeedSequence().generate_state),
        _counted(lambda n: np.random.default_rng().bit_generator.jumped(n + 1)),
        _counted(lambda n: open(str(n))),  # noqa: PTH123, SIM115
        _counted(lambda n: globals()["POOL"][n]),
        _counted(iter([1]).__next__),
        _counted(bytearray(os.urandom(8)).pop),
        OfTable(),
    ],
    ids=lambda made: "",
)
def test_what_is_not_followed_is_unknown(made) -> None:
    assert _kept(made).unknown


def test_attributes_of_another_module_are_followed() -> None:
    pools = types.ModuleType("pools_of_noise")
    exec("POOL = []\ndef at(n):\n    POOL.append(n)\n    return POOL[-1]", vars(pools))  # noqa: S102
    made = _counted(lambda n: pools.at(n))  # noqa: PLW0108
    kept = _kept(made)
    assert not kept.unknown, kept.unknown
    made(_DATA)
    kept.restore()
    assert pools.POOL == []
    pools.POOL += [17931 * 3, 29761 * 7]
    assert _kept(made).unknown


def test_values_together_are_public_as_written_only() -> None:
    for bits in (
        [0, 1, 1, 0, 1, 1],
        [True, False] * 3,
        np.array([0, 1, 1, 0, 1, 0]),
        (1, 0, 0, 0, 1),
    ):
        assert _kept(_counted(lambda n, kept=[*bits, 1, 1]: n)).unknown
    for levels in (list(LEVELS), np.array(LEVELS), [0] * 50, [1, 0], np.zeros((9, 9))):
        assert not _kept(_counted(lambda n, kept=levels: n)).unknown
    halves = [[1, 0], [0, 1], [1, 1], [0, 0], [1, 0]]
    assert _kept(_counted(lambda n, kept=[*halves, [0, 1]]: n)).unknown


def test_a_generator_counts_as_public_near_its_seed_only() -> None:
    seeds = Public([_counted]).seeds
    for advanced in (1 << 40, 1 << 100):
        far = np.random.default_rng(0)
        far.bit_generator.advance(advanced)
        assert seeded_state(far, seeds) == ()
    odd = np.random.PCG64(0)
    odd.state = {**odd.state, "has_uint32": 1, "uinteger": 12345}
    moved = np.random.RandomState(3)
    moved.normal()
    assert seeded_state(odd, seeds) == seeded_state(moved, seeds) == seeded_state(Shared(0), seeds)
    used = random.Random(0)  # noqa: S311
    used.random()
    new = np.random.PCG64DXSM(4)
    new.random_raw(70)
    for known in (used, new, np.random.SFC64(3), np.random.Philox(2)):
        assert seeded_state(known, seeds)


def test_attributes_of_a_generator_are_put_back() -> None:
    rng = random.Random(0)  # noqa: S311

    def release(rows):
        if not hasattr(rng, "ready"):
            rng.seed(os.urandom(32))
            rng.ready = True
        return len(rows) + rng.random()

    kept = _kept(release)
    release(_DATA)
    kept.restore()
    assert not hasattr(rng, "ready")
    assert not kept.fresh(release, _DATA)  # what it leaves behind is drawn anew
    rng.ready = True
    assert _kept(release).unknown


def test_a_generator_that_does_not_move_may_be_a_key() -> None:
    made = _counted(functools.partial(lambda rng, n: n, np.random.default_rng()))
    kept = _kept(made)
    assert not kept.unknown
    assert not kept.fresh(made, _DATA)
