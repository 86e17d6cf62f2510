"""Find the place of a cell among public keys of its type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.domains.cell import MISSING, canonical_cell, integer_cell, listed

TEXTS = "OUT"
"""Kinds of array that may hold text."""


def key_indices(raw: NDArray[Any], keys: tuple[str | int, ...]) -> NDArray[np.int64]:
    """Return each key's index in the public ``keys``, shape (n,).

    -1 stands for a value that is none of them.

    Numbers are compared with the keys that are numbers, and then, but for truth values, by their
    decimal digits with those that are text. Text without the blanks around it is compared with the keys
    that are text, and then, read as a number, with those that are numbers.
    """
    if raw.ndim != 1:
        return np.full(len(raw), -1, dtype=np.int64)
    kind = raw.dtype.kind
    if kind in "biuf":
        return _numbered(keys, written=kind != "b").of(int64_of(raw))
    places = {key: at for at, key in enumerate(keys)}
    if kind == "S":
        raw = np.char.decode(raw, "utf-8", "surrogateescape")
    cells = listed(raw)
    kinds = set(map(type, cells))
    known: dict[Any, int] = {  # each text is stripped and looked up once
        cell: _place(cell.strip(), places)
        for cell in set(cells if kinds <= {str} else filter(_is_text, cells))
    }
    if kinds <= {str, type(None)}:
        known[None] = -1
        return np.fromiter(map(known.__getitem__, cells), np.int64, len(cells))
    found = (
        known[c] if _is_text(c) else _place(str.strip(c) if isinstance(c, str) else c, places)
        for c in cells
    )
    return np.fromiter(found, np.int64, len(cells))


def _is_text(cell: object) -> bool:
    return type(cell) is str


def _place(cell: object, places: dict[str | int, int]) -> int:
    value = canonical_cell(cell)
    if isinstance(cell, str):
        known = places.get(str.__str__(cell), -1)
        if known >= 0:
            return known
    number = integer_cell(value)
    if number == MISSING:
        return -1
    written = not isinstance(cell, str | bool | np.bool_)
    return places.get(number, places.get(str(number), -1) if written else -1)


_DENSE = 2**16
"""Numbers between the least and the largest key of which each has a place in a table, at least."""


class NumberPlaces:
    """Find the places of distinct 64-bit numbers, -1 for any other number.

    Args:
        places: a place by number, without ``MISSING``.
    """

    def __init__(self, places: Mapping[int, int]) -> None:
        numbers = np.array(sorted(places), dtype=np.int64)
        at = np.array([places[number] for number in numbers.tolist()], dtype=np.int64)
        self._low = numbers[:1]
        span = int(numbers[-1]) - int(numbers[0]) + 1 if len(numbers) else 0
        self._dense = span <= max(_DENSE, 4 * len(numbers))
        self._numbers, self._at = numbers, np.append(at, -1)
        if self._dense and span:
            self._at = np.full(span + 1, -1, dtype=np.int64)
            self._at[numbers - numbers[0]] = at

    def of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return each number's place, shape (n,)."""
        last = len(self._at) - 1
        if not last:
            return np.full(len(numbers), -1, dtype=np.int64)
        if self._dense:  # a number below the least one wraps to one above all
            beyond = np.minimum((numbers - self._low).view(np.uint64), np.uint64(last))
            return self._at.take(beyond.view(np.int64))
        found = np.minimum(np.searchsorted(self._numbers, numbers), last - 1)
        return self._at[np.where(self._numbers[found] == numbers, found, last)]


@lru_cache(maxsize=32)
def _numbered(keys: tuple[str | int, ...], *, written: bool) -> NumberPlaces:
    """Return the public keys that equal 64-bit numbers, ``written`` ones included."""
    places, found = {key: at for at, key in enumerate(keys)}, {}
    for key, at in places.items():
        number = key if isinstance(key, int) else integer_cell(key)
        if isinstance(key, int) or (written and key == str(number)):
            found[number] = places.get(number, at)
    return NumberPlaces({number: at for number, at in found.items() if MISSING < number < 2**63})


def int64_of(raw: NDArray[Any]) -> NDArray[np.int64]:
    """Return numbers as int64, ``MISSING`` where that is not exact."""
    if raw.dtype.kind == "f":
        with np.errstate(all="ignore"):
            good = (np.abs(raw) < 2.0**53) & (np.trunc(raw) == raw)
        return np.where(good, np.where(good, raw, 0).astype(np.int64), MISSING)
    if raw.dtype.kind == "u" and raw.dtype.itemsize == 8:
        good = raw < 2**63
        return np.where(good, np.where(good, raw, 0).astype(np.int64), MISSING)
    return raw.astype(np.int64)
