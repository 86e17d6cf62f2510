"""Find the place of a cell among public keys of its type."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.domains.cell import MISSING, canonical_cell, integer_cell, listed, object_array

TEXTS = "OUT"
"""Kinds of array that may hold text."""


def key_indices(raw: NDArray[Any], keys: tuple[str | int, ...]) -> NDArray[np.int64]:
    """Return each key's index in the public ``keys``, shape (n,).

    -1 stands for a value that is none of them.

    Numbers are compared with the keys that are numbers, and then, but for truth values, by their
    decimal digits with those that are text. Text is compared with the keys that are text, and then,
    read as a number, with those that are numbers.
    """
    if raw.ndim != 1:
        return np.full(len(raw), -1, dtype=np.int64)
    places = {key: at for at, key in enumerate(keys)}
    kind = raw.dtype.kind
    if kind in "biuf":
        return _number_places(raw, _numbered(places, written=kind != "b"))
    if kind == "S":
        raw = np.char.decode(raw, "utf-8", "surrogateescape")
    cells = listed(raw)
    kinds = set(map(type, cells))
    known: dict[Any, int] = {
        cell: _place(cell, places)
        for cell in set(cells if kinds <= {str} else filter(_is_text, cells))
    }
    if kinds <= {str, type(None)}:
        known[None] = -1
        return np.fromiter(map(known.__getitem__, cells), np.int64, len(cells))
    found = (known[c] if _is_text(c) else _place(c, places) for c in cells)
    return np.fromiter(found, np.int64, len(cells))


def stripped(array: NDArray[Any]) -> NDArray[Any]:
    """Return cells with their texts stripped as ``plain`` strips them."""
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "surrogateescape")
    if array.dtype.kind not in TEXTS:
        return array
    cells = listed(array)
    if set(map(type, cells)) <= {str}:
        return object_array(list(map(str.strip, cells)))
    return object_array([str.strip(cell) if isinstance(cell, str) else cell for cell in cells])


def _is_text(cell: object) -> bool:
    return type(cell) is str


def _is_storable(key: int) -> bool:
    """Return whether a cell may contain this number."""
    return MISSING < key < 2**63


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


def _numbered(places: dict[str | int, int], *, written: bool) -> dict[int, int]:
    """Return the keys that equal 64-bit numbers, ``written`` ones included."""
    found: dict[int, int] = {}
    for key, at in places.items():
        number = key if isinstance(key, int) else integer_cell(key)
        if isinstance(key, int) or (written and key == str(number)):
            found[number] = places.get(number, at)
    return {number: at for number, at in found.items() if _is_storable(number)}


def _number_places(raw: NDArray[Any], places: dict[int, int]) -> NDArray[np.int64]:
    if not places or not len(raw):
        return np.full(len(raw), -1, dtype=np.int64)
    numbers = int64_of(raw)
    table = np.array(sorted(places), dtype=np.int64)
    at = np.minimum(np.searchsorted(table, numbers), len(table) - 1)
    place = np.array([places[key] for key in table.tolist()], dtype=np.int64)
    return np.where((table[at] == numbers) & (numbers != MISSING), place[at], -1)


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
