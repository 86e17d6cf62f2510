"""Read the identifiers of records' owners.

They are integers or texts, and two that differ stay different. Numpy's fixed-width texts drop trailing
NULs, and text of an integer is the integer's namesake. So identifiers are compared and kept as plain
values, never as what ``astype`` makes of them. Blanks around a text are gone, and empty texts refused,
where records come in (``normal``); here texts stay as they are.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError
from opendp_sim.domains.cell import (
    canonical_cell,
    exact,
    listed,
    object_array as boxed_cells,
    tagged,
)
from opendp_sim.domains.normalise import unmasked


def persons(ids: Any) -> list[Any]:
    """Return identifiers as plain values, all ``int`` or all ``str``.

    Args:
        ids: shape (n,); an array of integers or texts, or a sequence of either.

    Raises:
        DataError (OS602): another shape or type, a missing identifier, both kinds, or an integer that
            64 bits do not hold.
    """
    array, holes = unmasked(ids if isinstance(ids, np.ndarray) else id_array(ids))
    kind = array.dtype.kind
    if array.ndim != 1 or kind not in "iuUOT" or (holes is not None and holes.any()):
        raise _refuse()
    given = listed(array)
    if kind in "iu":
        return given  # of 64 bits, as numpy's integers are
    if set(map(type, given)) <= {str}:  # plain texts, as nearly always: nothing to make of them
        return given
    if any(isinstance(one, bool | np.bool_ | float | np.floating) for one in given):
        raise _refuse()
    found: list[Any] = [str.__str__(v) if isinstance(v, str) else canonical_cell(v) for v in given]
    if set(map(type, found)) not in ({str}, {int}, set()):
        raise _refuse()
    if found and isinstance(found[0], int) and not -(2**63) <= min(found) <= max(found) < 2**64:
        raise _refuse()
    return found


def id_array(ids: Any) -> NDArray[Any]:
    """Return identifiers as an array (n,) of their own objects (OS602)."""
    if not isinstance(ids, list | tuple):
        raise _refuse()
    return boxed_cells(ids)


def stored_ids(ids: Any) -> NDArray[Any]:
    """Return identifiers as int64 or as plain texts."""
    if are_numbers(ids) and ids.dtype.kind == "i":
        return np.asarray(ids.astype(np.int64, copy=False))
    found = persons(ids)
    whole = set(map(type, found)) == {int} or (not found and np.asarray(ids).dtype.kind in "iu")
    if whole and all(-(2**63) <= one < 2**63 for one in found):
        return np.array(found, dtype=np.int64)
    return id_array(found)


def are_numbers(ids: Any) -> bool:
    """Return whether identifiers are numbers by dtype, so none is read."""
    bare = isinstance(ids, np.ndarray) and not isinstance(ids, np.ma.MaskedArray)
    return bare and ids.ndim == 1 and ids.dtype.kind in "iu"


def pack_ids(ids: Any) -> NDArray[np.uint8]:
    """Return identifiers as bytes, which ``unpack_ids`` reads back exactly.

    JSON's escapes would join two halves of a character, which stand side by side in some texts, into that
    character: another person.
    """
    found = persons(ids)
    whole = not found or isinstance(found[0], int)
    text = repr(found) if whole else json.dumps(found, ensure_ascii=False)  # the same for integers
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)


def unpack_ids(kept: NDArray[np.uint8]) -> NDArray[Any]:
    """Return what was packed, shape (n,).

    Raises:
        DataError (OS602): no identifiers that ``pack_ids`` writes; the text quotes none of it.
    """
    try:
        found = json.loads(kept.tobytes())
    except (ValueError, RecursionError):  # a number of too many digits is a ValueError
        found = None
    if not isinstance(found, list):
        _refuse().alone()
    return id_array(persons(found))


def partition_of(persons: NDArray[Any], parts: int) -> NDArray[np.int64]:
    """Return each person's part by a public hash, equal in every process."""
    if persons.dtype.kind in "iu":
        word = persons.astype(np.uint64)
        return (mix_hashes(word, np.zeros_like(word)) % np.uint64(parts)).astype(np.int64)
    found = (zlib.crc32(tagged(person)) % parts for person in exact(persons.tolist()))
    return np.fromiter(found, np.int64, len(persons))


def mix_hashes(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix two hashes into one (the finaliser of splitmix64)."""
    word = left + right * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
    return word ^ (word >> np.uint64(31))


def _refuse() -> DataError:
    return DataError(
        "OS602", "ids", expected="one integer or one text a record, all of one kind",
        got="another shape, type or a missing one",
        hint="declare the person's column int64, str or category, and drop records without one.",
    )  # fmt: skip
