"""Who a record belongs to: identifiers are integers or texts, and two that differ stay two.

Numpy's fixed-width texts drop trailing NULs, and text of an integer is the integer's namesake. So
identifiers are compared and kept as plain values, never as what ``astype`` makes of them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError

__all__ = ["boxed", "packed", "persons", "unpacked"]


def persons(ids: Any) -> list[Any]:
    """Return identifiers as plain values, all of them ``int`` or all of them ``str``.

    Args:
        ids: shape (n,); an array of integers or texts, or a sequence of either.

    Raises:
        DataError (OS602): another shape or type, a missing identifier, or both kinds.
    """
    array = ids if isinstance(ids, np.ndarray) else boxed(ids)
    kind = array.dtype.kind
    if array.ndim != 1 or kind not in "iuUOT":
        raise _refuse()
    found = array.tolist()
    if kind in "iuU":
        return found  # type: ignore[no-any-return]
    if all(isinstance(one, str) for one in found):
        return [str(one) for one in found]
    if all(isinstance(one, int | np.integer) and not isinstance(one, bool) for one in found):
        return [int(one) for one in found]
    raise _refuse()


def boxed(ids: Any) -> NDArray[Any]:
    """Return a sequence as an array of the very objects in it, shape (n,).

    Raises:
        DataError (OS602): no sequence of identifiers.
    """
    if not isinstance(ids, list | tuple):
        raise _refuse()
    out = np.empty(len(ids), dtype=object)
    for place, one in enumerate(ids):
        out[place] = one
    return out


def packed(ids: Any) -> NDArray[np.uint8]:
    """Return identifiers as bytes from which ``unpacked`` has them back, each as it was."""
    return np.frombuffer(json.dumps(persons(ids)).encode(), dtype=np.uint8)


def unpacked(kept: NDArray[np.uint8]) -> NDArray[Any]:
    """Return what was packed, shape (n,)."""
    return boxed(json.loads(kept.tobytes()))


def _refuse() -> DataError:
    return DataError(
        "OS602", "ids", expected="one integer or one text a record, all of one kind",
        got="another shape, type or a missing one",
        hint="declare the person's column int64, str or category, and drop records without one.",
    )  # fmt: skip
