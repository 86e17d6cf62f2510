"""Describe a column by name, type and public facts on its values."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.core.space import Descriptor
from opendp_sim.domains.cell import LONGEST_TEXT, MISSING, canonical_cell, is_int64
from opendp_sim.domains.encoded import ENCODED

_ARRAY = re.compile(r"array\[\s*(f32|f64|i32|i64|u8)\s*,\s*([1-9]\d{0,6})\s*\]")
_NUMPY = {"f32": "f4", "f64": "f8", "i32": "i4", "i64": "i8", "u8": "u1"}
_SCALARS = ("category", "int64", "float64", "str", *ENCODED)
DTYPES = ("array", *_SCALARS)
_MOST_KEY = 10**1000


@dataclass(frozen=True)
class Column(Descriptor):
    """Describe one column.

    It is a vector, a category with public keys, a number or a text.

    Args:
        name: column name.
        dtype: ``array[f32, d]`` (f32, f64, i32, i64, u8), ``category``, ``int64``, ``float64``, ``str``,
            ``bool`` (0 and 1), ``date`` (days since 1970-01-01).
        bounds: public ``(lower, upper)`` of a numeric column, or empty; of a ``bool`` always (0, 1).
        keys: public keys of a category, in label order.
        role: ``privacy_id`` for the column that names the person, else None.
    """

    name: str
    dtype: str
    bounds: tuple[float, float] | tuple[()] = ()
    keys: tuple[str | int, ...] = ()
    role: Literal["privacy_id"] | None = None

    def __post_init__(self) -> None:
        """Refuse a dtype, bounds or keys that cannot be meant."""
        if self.dtype not in _SCALARS and not _ARRAY.fullmatch(self.dtype):
            raise self._refuse(f"dtype array[f32, d] or {', '.join(_SCALARS)}", self.dtype)
        if self.dtype == "bool" and self.bounds not in ((), (0, 1)):
            raise self._refuse("no bounds of a bool, which are 0 and 1", self.bounds)
        if self.dtype == "bool":
            object.__setattr__(self, "bounds", (0.0, 1.0))
        if self.bounds:
            self._check_bounds(*self.bounds)
        if (self.dtype == "category") != bool(self.keys):
            raise self._refuse("public keys exactly for a category", self.keys)
        keys = tuple("" if key == "" else canonical_cell(key) for key in self.keys)
        if keys != tuple(self.keys) or not all(isinstance(key, str | int) for key in self.keys):
            raise self._refuse(
                "keys that are whole numbers, or texts without blanks around", self.keys
            )
        if any(isinstance(key, int) and abs(key) >= _MOST_KEY for key in self.keys):
            raise self._refuse("keys of at most 1,000 digits", "a longer one")
        object.__setattr__(self, "keys", keys)
        if len(set(self.keys)) != len(self.keys):
            raise self._refuse("each key once", self.keys)
        if self.role and self.dtype not in ("int64", "str", "category"):
            raise self._refuse("dtype int64, str or category, where it names persons", self.dtype)

    def _check_bounds(self, low: float, high: float) -> None:
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise self._refuse("finite bounds with lower < upper", self.bounds)
        if self.numpy_dtype.kind not in "iu":
            return
        kind = np.iinfo(self.numpy_dtype)
        if max(math.ceil(low), int(kind.min)) > min(math.floor(high), int(kind.max)):
            raise self._refuse(f"bounds that hold an integer of {self.dtype}", self.bounds)

    def _refuse(self, expected: str, got: object) -> SpecError:
        return SpecError(
            "OS304", f"columns.{self.name}", expected=expected, got=got,
            hint="for example {dtype: 'array[f32, 64]', bounds: [0, 16]} "
            "or {dtype: category, keys: [a, b]}.",
        )  # fmt: skip

    @property
    def width(self) -> int:
        """Return the entries a record, d for a vector and 1 otherwise."""
        found = _ARRAY.fullmatch(self.dtype)
        return int(found[2]) if found else 1

    @property
    def is_vector(self) -> bool:
        """Whether the column is an array column."""
        return self.dtype not in _SCALARS

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """Return the dtype of the column in memory, with keys as indices."""
        found = _ARRAY.fullmatch(self.dtype)
        if found:
            return np.dtype(_NUMPY[found[1]])
        return np.dtype({"float64": "f8", "str": "O"}.get(self.dtype, "i8"))

    def check(self, values: NDArray[Any], count: int) -> None:
        """Raise a ``DataError`` of constant text unless ``values`` fits the declaration."""
        shape = (count, self.width) if self.is_vector else (count,)
        if values.shape != shape:
            raise self._bad("OS602", f"shape (n, {self.width})", "another shape")
        if (
            values.dtype.kind
            not in {"f": "fiu", "i": "iu", "u": "iu", "O": "OUT"}[self.numpy_dtype.kind]
        ):
            raise self._bad("OS602", f"dtype {self.dtype}", "another dtype")
        self._check_entries(values)
        if self.keys and values.size and not (0 <= values.min() <= values.max() < len(self.keys)):
            raise self._bad("OS604", "labels among the public keys", "another label")
        limited = self.bounds or self.numpy_dtype.kind in "iu"
        if limited and values.size and not self._inside(values):
            raise self._bad("OS605", self._range, "a value outside")

    def _inside(self, values: NDArray[Any]) -> bool:
        """Return whether all values have the dtype and lie within bounds."""
        least, most = values.min(), values.max()
        if self.numpy_dtype.kind in "iu":
            kind = np.iinfo(self.numpy_dtype)
            if not (kind.min <= int(least) and int(most) <= kind.max):
                return False
        return not self.bounds or bool(self.bounds[0] <= least and most <= self.bounds[1])

    @property
    def _range(self) -> str:
        """Return the refusal of a value outside the range."""
        if self.numpy_dtype.kind not in "iu":
            return "values within the declared bounds"
        return f"integers of {self.dtype}" + " within the declared bounds" * bool(self.bounds)

    def _check_entries(self, values: NDArray[Any]) -> None:
        """Refuse cells that hold no value of the column's kind."""
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise self._bad("OS603", "finite numbers", _NO_NUMBER)
        if self.dtype == "str" and not texts_there(values).all():
            raise self._bad("OS603", "a text in every cell", "a missing entry, or no plain text")
        if not self.keys and is_int64(values) and (values == MISSING).any():
            raise self._bad("OS603", "an integer in every cell", "a missing entry")

    def _bad(self, code: str, expected: str, got: str) -> DataError:
        hint = _OTHER_DTYPE if got == "another dtype" else _CLEAN
        return DataError(code, f"column {self.name}", expected=expected, got=got, hint=hint)


_NO_NUMBER = "NaN, infinity, a text that is no number, or a line with another number of cells"
_CLEAN = (
    "clean the data, mend the declaration, or use `ingest: enforce` (clamp to the bounds, drop records "
    "with NaN or foreign labels)."
)
_OTHER_DTYPE = (
    "convert the column, or declare it as what it is: dates by bounds that are dates, "
    "a text or a category as a label with `keys`."
)


def texts_there(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which cells of a text column are plain ``str``, shape (n,)."""
    cells = values.tolist()
    if not set(map(type, cells)) <= {str}:
        cells = [cell if type(cell) is str else "" for cell in cells]
    lengths = np.fromiter(map(len, map(str.strip, cells)), np.int64, len(cells))
    return (lengths > 0) & (lengths <= LONGEST_TEXT)
