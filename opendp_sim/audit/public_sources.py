"""Generators whose state whoever knows the code knows: a few steps from that of a seed of the code."""

from __future__ import annotations

import random  # noqa: TID251 - states are compared, nothing is drawn
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

__all__ = ["seeded_state", "state_of"]

_STEPS = 1 << 12
"""Draws that a generator may have made before it is handed over."""
_WHOLE = (1 << 128) - 1
_SOURCES: tuple[type, ...] = (
    *(random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator),
    *(random.SystemRandom, np.random.SeedSequence),
)
_BITS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")

State = tuple[Callable[[], Any], Callable[[Any], None]]


def state_of(value: Any) -> State | None:
    """Return how to read and write a generator's state; nothing for what is none, or has none."""
    kind = type(value)
    if kind is random.Random:
        return value.getstate, value.setstate
    if kind is np.random.RandomState:
        return value.get_state, value.set_state
    if kind is np.random.Generator:
        value, kind = value.bit_generator, type(value.bit_generator)
    if issubclass(kind, np.random.BitGenerator):
        return lambda: value.state, lambda state: setattr(value, "state", state)
    return None


def seeded_state(value: Any, seeds: Iterable[Any]) -> State | tuple[()] | None:
    """Return how to read and write a generator's state if its seed is public, ``()`` if it is not.

    ``None`` is for what is no generator.
    """
    kind = type(value)
    if not issubclass(kind, _SOURCES):
        return None
    seeds = list(seeds)
    public = False
    if kind is random.Random:
        public = any(_of_random(value, seed) for seed in seeds)
    elif kind is np.random.RandomState:
        whole = [s for s in seeds if isinstance(s, int) and 0 <= s < 1 << 32]
        public = any(_of_legacy(value, seed) for seed in whole)
    elif kind is np.random.Generator:
        return seeded_state(value.bit_generator, seeds)
    elif kind.__name__ in _BITS and kind is getattr(np.random, kind.__name__):
        public = any(_of_bits(value, seed) for seed in seeds if isinstance(seed, int))
    found = state_of(value)
    return found if public and found is not None else ()


def _of_random(value: random.Random, seed: Any) -> bool:
    """Say whether a generator is new, or in the first 624 words of its seed."""
    now, made = value.getstate(), random.Random(seed)  # noqa: S311
    if now == made.getstate():
        return True
    made.getrandbits(32)
    return now[1][:-1] == made.getstate()[1][:-1] and now[2] is None


def _of_legacy(value: np.random.RandomState, seed: int) -> bool:
    now: Any = value.get_state()
    made = np.random.RandomState(seed)
    fresh: Any = made.get_state()
    if np.array_equal(now[1], fresh[1]):
        return bool(now[2:] == fresh[2:])
    made.bytes(4)
    moved: Any = made.get_state()
    return np.array_equal(now[1], moved[1]) and not now[3]


def _of_bits(value: np.random.BitGenerator, seed: int) -> bool:
    made: Any = type(value)(seed)
    now: Any = value.state
    fresh = made.state
    if repr(now) == repr(fresh):
        return True
    if "pos" in now["state"]:
        made.random_raw()
        return np.array_equal(now["state"]["key"], made.state["state"]["key"])
    if "inc" not in now["state"] or now["state"]["inc"] != fresh["state"]["inc"]:
        return False
    return _in_steps(now, made)


def _in_steps(now: Any, made: Any) -> bool:
    """Say whether a generator of PCG's gets to a state in a few steps; it may keep half a word."""
    words = set[int]()
    for _ in range(_STEPS):
        if made.state["state"] == now["state"]:
            return not now["has_uint32"] or now["uinteger"] in words
        words.add(int(made.random_raw()) >> 32)
    return False
