"""First calls: what a measurement keeps is put back before each call, where nothing of it can be secret.

A claim is about every call, the first one, too. A function that learns a bound from the dataset of its
first call, or whose generator has a seed that its code names, answers a first call only once: later calls
say nothing of it. Where all that the functions keep is public (constants of their code, nothing yet,
generators with a public seed), whoever knows the code knows it: it may be put back (``trace.md``).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from opendp_sim.audit.after_calls import left_behind
from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.encoding import outcome
from opendp_sim.audit.followed import Followed
from opendp_sim.audit.reachable import functions_of

__all__ = ["FirstCall", "Kept", "first_call"]

_RUNS, _FEWEST, _SECONDS = 200, 120, 0.6
"""First calls on one dataset that have to leave the same behind, and CPU seconds that they get."""


class Kept:
    """What functions keep from call to call, as it is when this is made."""

    def __init__(self, functions: Iterable[types.FunctionType]) -> None:
        found = Followed(functions)
        self.unknown = found.unknown
        """What may be secret, or cannot be put back: then no first calls are looked at."""
        self._slots, self._seeded, self._loose = found.slots, found.seeded, found.loose
        self._known = found.seen

    def changed(self) -> bool:
        """Say whether calls have changed anything."""
        try:
            return any(slot.changed() for slot in self._slots)
        except Exception as error:  # noqa: BLE001 - whatever a user's class does when it is read
            self._stop(error)
            return False

    def restore(self) -> None:
        """Put everything back as it was; where that fails, leave it as it is now."""
        self._put([slot.before for slot in self._slots])

    def _stop(self, error: Exception) -> None:
        self.unknown = self.unknown or f"it cannot be put back ({type(error).__name__})"

    def _put(self, values: list[tuple[Any, ...]]) -> None:
        done: list[tuple[Any, tuple[Any, ...]]] = []
        try:
            for slot, value in zip(self._slots, values, strict=True):
                done.append((slot, slot.read()))
                slot.put(value)
        except Exception as error:  # noqa: BLE001
            self._stop(error)
            for slot, value in done:
                _tried(slot, value)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Leave everything as it is now in the end, whatever first calls put back meanwhile."""
        try:
            now = [slot.read() for slot in self._slots]
        except Exception as error:  # noqa: BLE001
            self._stop(error)
            yield
            return
        try:
            yield
        finally:
            self._put(now)

    def fresh(self, run: Callable[[Any], Any], data: Any) -> bool:
        """Say whether what is put back is no noise, as far as first calls on one dataset tell.

        Noise that was drawn before comes again: releases are then all alike, or what a call leaves behind
        is drawn anew by each. A generator whose seed is public may give the same noise each time.
        """
        with self.lent():
            try:
                return not self.unknown and self._steady(run, data) and not self.unknown
            except Exception as error:  # noqa: BLE001 - something that cannot be read
                self._stop(error)
                return False

    def _steady(self, run: Callable[[Any], Any], data: Any) -> bool:
        heard, first, seeded, runs = set[str](), None, False, 0
        end = cpu_seconds() + _SECONDS
        while runs < _RUNS and (runs < _FEWEST or cpu_seconds() < end):
            self.restore()
            if self.unknown or self.changed():
                return False
            before = [read() for read in self._loose]
            heard.add(repr(outcome(run, data)))
            if any(read() == was for read, was in zip(self._loose, before, strict=True)):
                return False
            after = [slot.read() for slot in self._slots]
            moved = enumerate(zip(self._slots, after, strict=True))
            told = left_behind([(n, v) for n, (s, v) in moved if s.differs(v)], self._known)
            if first is None and self._lost(after):
                return False
            first = told if first is None else first
            if told != first:
                return False
            seeded = seeded or any(slot.changed() for slot in self._seeded)
            runs += 1
            if runs < _FEWEST and cpu_seconds() > end:
                return False
        return seeded or len(heard) > 1

    def _lost(self, after: list[tuple[Any, ...]]) -> bool:
        """Say whether something that stood there is used up: there is nothing in its place."""
        for slot, now in zip(self._slots, after, strict=True):
            places = slot.items(now)
            for place, value in slot.items(slot.before).items():
                told = places.get(place)
                if value is not None and (told is None or _is_number(told) != _is_number(value)):
                    return True
        return False

    def first(self, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a run before which everything is put back."""

        @functools.wraps(run)
        def anew(data: Any) -> Any:
            self.restore()
            return run(data)

        return anew


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex))


def _tried(slot: Any, values: tuple[Any, ...]) -> None:
    with suppress(Exception):  # it stays as it is
        slot.put(values)


class FirstCall:
    """Releases as an object did when this was made; ``map`` is the object's."""

    def __init__(self, obj: Any) -> None:
        self._obj, self.map = obj, obj.map
        self._kept = Kept(functions_of(obj))

    def __call__(self, data: Any) -> Any:
        """Put back what the object keeps, and release."""
        self._kept.restore()
        return self._obj(data)


def first_call(obj: Any) -> FirstCall:
    """Return a measurement's releases, each of them a first one: what calls change is put back before.

    Make it of an object that has not been called yet. What runs change is put back whatever it is: noise
    that an object has drawn before comes again.
    """
    return FirstCall(obj)
