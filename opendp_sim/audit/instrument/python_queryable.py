"""Run a user's interactive release in Python.

Its queryable is the user's function. A question of OpenDP's queryable takes a millisecond or two, most
of it on the way between languages. Its answer is that of the user's transition function; a plain type
is handed on as it is (``layer.md``, A3).
"""

from __future__ import annotations

import inspect
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import opendp.core as native

from opendp_sim.audit.generators.copies import failed, own
from opendp_sim.audit.instrument.decompose_chain import TakenApart, handed_on, kind_of
from opendp_sim.core import dp

_PLAIN = (bool, int, float, str, type(None))


class Unfit(dp.OpenDPException):
    """Reject an answer that OpenDP might convert, which proves nothing."""


class Answering:
    """Stand in for a queryable.

    A question or an answer of a declared type goes through where OpenDP would hand it on unchanged, and a
    list is copied on the way. What has no declared type is handed on as the very object, as OpenDP does.
    """

    def __init__(
        self,
        transition: Callable[..., Any],
        kinds: tuple[str | None, str | None],
        tell: Callable[[], None],
    ) -> None:
        self._transition: Callable[[Any, bool], Any] = (
            transition if _takes_two(transition) else lambda query, _: transition(query)
        )
        self._kinds, self._tell = kinds, tell

    def __call__(self, query: Any) -> Any:
        """Return the answer; an exception is OpenDP's, as there."""
        query = self._passed(query, self._kinds[0])
        try:
            out = self._transition(query, False)
        except BaseException as error:  # noqa: BLE001 - whatever the user's function raises
            raise failed(error) from None
        if self._kinds[1] is None and not _is_plain(out):
            self._unfit()
        return self._passed(out, self._kinds[1])

    eval = __call__

    def _passed(self, value: Any, kind: str | None) -> Any:
        if kind is not None and not handed_on(value, kind):
            self._unfit()
        return own(value) if kind is not None else value

    def _unfit(self) -> None:
        self._tell()
        raise Unfit("FFI", "a question or an answer of another type")


def _takes_two(transition: Callable[..., Any]) -> bool:
    """Return whether a transition function has a second parameter."""
    return len(inspect.signature(transition).parameters) != 1


def _is_plain(out: Any) -> bool:
    """Return whether an untyped answer consists of plain values.

    OpenDP hands on the very object then; a queryable or an object of OpenDP's in it is another matter.
    """
    if type(out) is dict:
        return all(map(_is_plain, itertools.chain(out, out.values())))
    return type(out) in _PLAIN or (type(out) in (tuple, list) and all(map(_is_plain, out)))


def asked_directly(
    outer: Any, drive: Callable[[Any], Any], end: Callable[[], None]
) -> Callable[[Any], Any] | None:
    """Return an interactive release's conversation as a function."""
    parts = TakenApart()
    try:
        start = parts.measurement(outer)
    except (LookupError, TypeError, AttributeError):
        return None
    if not parts.users:
        return None
    places = _places(parts.functions)

    def run(data: Any) -> Any:
        with _answering(end, places) as made:
            out = drive(start(data))
        if any(one() is not None for one in made):
            end()  # the program keeps a stand-in, and would release it again
        return out

    return run


def _places(functions: list[Any]) -> list[tuple[dict[str, Any], str]]:
    """Return the places of OpenDP's queryable constructor."""
    modules = [vars(native), *(vars(m) for m in [sys.modules.get("opendp.prelude")] if m)]
    modules += [getattr(function, "__globals__", {}) for function in functions]
    distinct = {id(names): names for names in modules}.values()
    return [(names, k) for names in distinct for k, v in names.items() if v is native.new_queryable]


@contextmanager
def _answering(
    end: Callable[[], None], places: list[tuple[dict[str, Any], str]]
) -> Iterator[list[weakref.ref[Answering]]]:
    """Replace queryables by stand-ins inside the context."""
    real, all_made = native.new_queryable, list[weakref.ref[Answering]]()

    def made(transition: Callable[..., Any], Q: Any = None, A: Any = None) -> Answering:  # noqa: N803
        one = Answering(transition, (kind_of(Q), kind_of(A)), end)
        all_made.append(weakref.ref(one))
        return one

    try:
        for names, name in places:
            names[name] = made
        yield all_made
    finally:
        for names, name in places:
            names[name] = real
