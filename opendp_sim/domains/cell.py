"""Convert a cell to its one canonical plain value.

Identity, numbering, hashing and releases use this value and nothing else. Two cells are one value
exactly when their canonical values are equal *and* of one type. A value is a plain ``str``, ``int`` or
``float``, never a subclass: ``np.str_``, an enumeration, ``np.int64`` or a ``bool`` carry the same
value under another type, and what Python's ``==``, ``repr`` and ``hash`` make of those differs. Every
function here looks at one cell at a time, so what a cell becomes depends on that cell alone. Lemma 4
of ``io/ingest.md``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

MISSING = -(2**63)
"""Stands in an integer column for a cell that cannot be read."""
LONGEST_TEXT = 2**16
"""Characters of a text: a longer one is missing, wherever it comes from."""
DIGITS = 400
"""Characters of a number written as text; the longest float in plain digits has 327."""
_LARGE = 10**DIGITS
_FLAT = frozenset((str, int, float, bool, type(None)))
"""Types of which numpy makes one cell each."""
_LAST = 0x10FFFF
"""The last code point; numpy's fixed-width texts may hold any 32 bits."""


def canonical_cell(cell: object) -> str | int | float | None:
    """Return a cell's canonical value; None for a cell that has none.

    Args:
        cell: any object. Text (subclasses too) is text without the blanks around it; truth values and
            integers of Python and numpy are ``int``; floats are ``float``; a ``Decimal`` is an ``int``
            if it is whole, else a ``float``. Empty text, text of more than ``LONGEST_TEXT`` characters,
            NaN, None, bytes, dates, spans of time and everything else have no value.
    """
    if isinstance(cell, str):
        found = str.__str__(cell).strip()  # exact: a subclass's own `__str__` is not asked
        return found if 0 < len(found) <= LONGEST_TEXT else None
    if isinstance(cell, np.timedelta64):  # a subclass of numpy's integers
        return None
    if isinstance(cell, bool | np.bool_ | np.integer):
        return int(cell)
    if isinstance(cell, int):
        return int.__int__(cell)
    if isinstance(cell, float):
        value = float.__float__(cell)
    elif isinstance(cell, np.floating):
        value = float(cell)
    elif isinstance(cell, Decimal):
        return _of_decimal(cell)
    else:
        return None
    return None if math.isnan(value) else value


def tagged(value: str | int) -> bytes:
    """Return the bytes to hash of a canonical value, with its type."""
    if isinstance(value, str):
        return b"s" + str.encode(value, "utf-8", "surrogatepass")
    return b"i" + str(int(value)).encode()


def hashes(values: Iterable[str | int], seed: int = 0) -> NDArray[np.uint64]:
    """Return a public hash of each canonical value, in any process, (n,)."""
    salt = seed.to_bytes(8, "little")
    told, hashed = list(values), hashlib.blake2b
    plain_integers = set(map(type, told)) <= {int}  # the usual case, in two thirds of the time
    content: Iterable[bytes] = map(tagged, told)
    if plain_integers:
        content = [b"i%d" % v for v in cast("list[int]", told)]
    raw = [hashed(one, digest_size=8, salt=salt).digest() for one in content]
    return np.frombuffer(b"".join(raw), dtype="<u8").astype(np.uint64)


def exact(values: list[Any]) -> list[Any]:
    """Return values in canonical form, None for a cell without one."""
    return values if set(map(type, values)) <= {str, int} else [canonical_cell(v) for v in values]


# --- one cell of a column of a declared kind ------------------------------------------------------


def text(cell: object) -> str:
    """Return the text of a cell, empty if it has none.

    A whole number is its decimal digits: libraries make numbers of some cells of a text column and
    leave the others (``pandas.read_csv`` does so by blocks). A truth value has no text.
    """
    value = canonical_cell(cell)
    if isinstance(value, str):
        return value
    number = None if isinstance(cell, bool | np.bool_) else _meant(value)
    return "" if number is None or abs(number) >= _LARGE else str(number)


def integer_cell(cell: object) -> int:
    """Return the integer of a cell, or ``MISSING``.

    ``MISSING`` stands for a cell that has no integer of 64 bits. Text is read as a decimal number:
    ``"517"`` and ``"517.0"`` are 517. A float counts where it is certainly the number that was meant:
    whole, and below 2**53.
    """
    value = canonical_cell(cell)
    value = _read_whole(value) if isinstance(value, str) else _meant(value)
    return value if value is not None and -(2**63) <= value < 2**63 else MISSING


def real(cell: object) -> float:
    """Return the number of a real cell, NaN if it has none."""
    value = canonical_cell(cell)
    if isinstance(value, str):
        try:
            return float(_signed(value)) if len(value) <= DIGITS else math.nan
        except ValueError:
            return math.nan
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def _signed(cell: str) -> str:
    """Return a number's text with the typographic minus as the plain one."""
    return "-" + cell[1:] if cell.startswith("\u2212") else cell


def _meant(value: float | None) -> int | None:
    """Return the whole number that a number certainly is."""
    if isinstance(value, float):
        return int(value) if abs(value) < 2.0**53 and value.is_integer() else None
    return value


def _of_decimal(cell: Decimal) -> int | float | None:
    if cell.is_nan():
        return None
    small = cell.is_finite() and cell.adjusted() < 20  # before anything that a context could refuse
    if small and cell == cell.to_integral_value():
        return int(cell)
    return float(cell)


def _read_whole(cell: str) -> int | None:
    if len(cell) > DIGITS:
        return None
    cell = _signed(cell)
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        found = Decimal(cell)
    except InvalidOperation:
        return None
    value = None if found.is_nan() else _of_decimal(found)
    return value if isinstance(value, int) else None


# --- columns --------------------------------------------------------------------------------------


def texts(values: NDArray[Any] | Sequence[Any]) -> NDArray[Any]:
    """Return cells as canonical ``str``, shape (n,), empty where missing."""
    cells = listed(values)
    if _all_of(cells, str):
        cells = list(map(str.strip, cells))
        if max(map(len, cells), default=0) > LONGEST_TEXT:
            cells = [cell if len(cell) <= LONGEST_TEXT else "" for cell in cells]
    else:
        cells = [text(cell) for cell in cells]
    return np.array(cells, dtype=object)


def wholes(values: NDArray[Any] | Sequence[Any]) -> NDArray[np.int64]:
    """Return cells as int64, ``MISSING`` where there is none."""
    cells, shape = listed(values), _shape(values)
    read = int if _all_of(cells, int, bool) or _short(cells) else integer_cell
    try:
        found = np.fromiter(map(read, cells), np.int64, len(cells))
    except (ValueError, OverflowError):  # some cell is odd: the same values, at a slower pace
        found = np.fromiter(map(integer_cell, cells), np.int64, len(cells))
    return found.reshape(shape)


def reals(values: NDArray[Any] | Sequence[Any]) -> NDArray[np.float64]:
    """Return cells as floats, NaN where there is none."""
    cells, shape = listed(values), _shape(values)
    read = float if _all_of(cells, float, int, bool) or _short(cells) else real
    try:
        found = np.fromiter(map(read, cells), np.float64, len(cells))
    except (ValueError, OverflowError):
        found = np.fromiter(map(real, cells), np.float64, len(cells))
    return found.reshape(shape)


def object_array(cells: Sequence[Any]) -> NDArray[Any]:
    """Return a sequence as an array of its own objects, shape (n,)."""
    if set(map(type, cells)) <= _FLAT:  # numpy looks into nothing else
        return np.array(list(cells), dtype=object)
    out = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        out[place] = cell
    return out


def columned(cells: Any) -> NDArray[Any]:
    """Return texts and integers as an array of these objects, shape (n,).

    Values of other types become what numpy makes of them. int64 or fixed-width texts where these hold
    them; objects where texts and numbers are mixed (numpy would write the number 5 as the text), where
    a text ends in zero characters (numpy would drop them), and for numbers beyond 64 bits (numpy would
    round them).
    """
    kinds = set(map(type, cells)) if isinstance(cells, list | tuple) else {object}
    if not kinds <= {int, str}:
        return np.asarray(cells)
    if kinds == {int} and all(-(2**63) <= cell < 2**63 for cell in cells):
        return np.array(list(cells), dtype=np.int64)
    if kinds == {str} and not any(cell.endswith("\0") for cell in cells):
        return np.array(list(cells))
    return object_array(cells) if kinds else np.asarray(cells)


def of_one_type(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column of one type, mixed cells as JSON."""
    if column.dtype != object or len(set(map(type, column.tolist()))) < 2:
        return column
    return object_array([json.dumps(cell) for cell in column.tolist()])


def listed(values: NDArray[Any] | Sequence[Any]) -> list[Any]:
    """Return cells as a flat list, None for texts with odd characters."""
    if not isinstance(values, np.ndarray):
        return list(values)
    flat = values.ravel()
    if flat.dtype.kind != "U" or not flat.size or not flat.dtype.itemsize:
        return flat.tolist()
    points = np.ascontiguousarray(flat).view(flat.dtype.byteorder + "u4").reshape(len(flat), -1)
    bad = (points > _LAST).any(axis=1)
    if not bad.any():
        return flat.tolist()
    out = np.empty(len(flat), dtype=object)
    out[~bad] = flat[~bad].tolist()
    return out.tolist()


def _shape(values: NDArray[Any] | Sequence[Any]) -> tuple[int, ...]:
    return values.shape if isinstance(values, np.ndarray) else (len(values),)


def _all_of(cells: list[Any], *types: type) -> bool:
    return set(map(type, cells)) <= set(types)


def _short(cells: list[Any]) -> bool:
    """Return whether all cells are texts short enough to be numbers."""
    return _all_of(cells, str) and max(map(len, cells), default=0) <= DIGITS


def is_int64(values: NDArray[Any]) -> bool:
    """Return whether an array has signed 64 bits and so ``MISSING``."""
    return values.dtype.kind == "i" and values.dtype.itemsize == 8
