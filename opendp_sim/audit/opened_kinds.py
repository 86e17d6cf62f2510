"""Values of known kinds in plain Python: numbers, arrays, frames, and what stands beside their values."""

from __future__ import annotations

import array
import decimal
import fractions
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "NOTHING",
    "VIEWS",
    "base_value",
    "frame_home",
    "frame_parts",
    "name_of",
    "numeric_parts",
    "plain_array",
    "shows_part",
    "written",
    "yields_all_of",
]

NOTHING: Any = object()
"""Stands for no value."""
VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__pos__),
    (float, float.__pos__),
    (str, str.__str__),
    (bytes, lambda value: bytes.__getitem__(value, slice(None))),
    (bytearray, lambda value: bytes(memoryview(value))),
    (array.array, array.array.tolist),
)
_SEQUENCES: tuple[type, ...] = (
    type(iter([])),
    type(iter(())),
    type(iter("")),
    type(iter("\u0101")),
    type(iter(b"")),
)
_DIGITS, _BITS = 4000, 13_000
"""Of a decimal number that is taken as a fraction, and of a whole number that is written in decimals."""
_BARE: tuple[type, ...] = (
    *(type(iter(range(1))), type(iter({})), type(iter(set())), type(iter(bytearray()))),
    *(type(iter({}.values())), type(iter({}.items()))),
)


def base_value(value: Any) -> Any:
    """Return a number or a text of somebody's own class as what Python has of the kind."""
    for base, plain in _BASES:
        if isinstance(value, base):
            return plain(value)
    return NOTHING


def yields_all_of(iterator: Any) -> Any:
    """Return what a sequence's iterator has passed by already, as the sequence; ``None`` if nothing.

    ``NOTHING`` is returned for iterators that keep more than they yield.
    """
    if type(iterator) in _SEQUENCES:
        _, (whole, *_), *at = iterator.__reduce__()
        return whole if at and at[0] else None
    return None if type(iterator) in _BARE else NOTHING


def name_of(value: Any) -> str:
    """Return the name of a value's class, with its module."""
    home = type(value).__module__
    return type(value).__name__ if home == "builtins" else f"{home}.{type(value).__name__}"


def written(value: Any) -> Any:
    """Return a whole number that Python does not write in decimals in hexadecimals; all else as it is."""
    return hex(value) if type(value) is int and value.bit_length() > _BITS else value


def numeric_parts(value: Any) -> Any:
    """Return a number or an array as plain parts; a plain array as it is."""
    if isinstance(value, np.ndarray):
        out = _masked(value) if isinstance(value, np.ma.MaskedArray) else _array(np.asarray(value))
        if value.dtype.metadata:
            return {"array": out, "metadata": dict(value.dtype.metadata)}
        return out
    if isinstance(value, (complex, np.complexfloating)):
        return {"real": float(value.real), "imag": float(value.imag)}
    if isinstance(value, decimal.Decimal) and not value.is_finite():
        return str(value)
    if isinstance(value, decimal.Decimal) and abs(value.adjusted()) > _DIGITS:
        return {"text": str(value)}  # as a fraction it may have a milliard digits
    exact = fractions.Fraction(value)
    whole = exact.numerator // exact.denominator
    return {"whole": whole, "rest": float(exact - whole), "text": str(value)}


def _masked(value: Any) -> dict[str, Any]:
    told = {"data": value.data.tolist(), "mask": np.ma.getmaskarray(value).tolist()}
    return told | {"fill": np.asarray(value.fill_value).tolist()}


def plain_array(value: Any) -> bool:
    """Say whether an array is read as it is: of numbers that floats hold, and the whole of its memory."""
    dtype = value.dtype
    if dtype.kind not in "fiub" or dtype.metadata or value.base is not None:
        return False
    return dtype.itemsize <= 8 and (dtype.kind not in "iu" or dtype.itemsize < 8 or _exact(value))


def _array(value: Any) -> Any:
    kind, wide = value.dtype.kind, value.dtype.itemsize
    if value.dtype.names is not None:
        return {name: value[name].copy() for name in value.dtype.names}
    if kind == "c":
        return {"real": value.real.copy(), "imag": value.imag.copy()}
    if kind in "mM":
        return {"values": value.astype(np.int64), "unit": str(value.dtype)}
    if kind == "f" and wide > 8:
        near = value.astype(float)
        return {"values": near, "rest": (value - near).astype(float)}
    if kind in "OSUV" or (kind in "iu" and wide == 8 and not _exact(value)):
        return value.tolist()  # as floats such numbers would lose their last digits
    return value


def _exact(value: Any) -> bool:
    return not value.size or bool(int(value.min()) >= -(2**53) and int(value.max()) <= 2**53)


def shows_part(view: Any) -> bool:
    """Say whether a view is of larger memory, which whoever holds the view can reach."""
    base = view.obj if isinstance(view, memoryview) else view.base
    if base is None:
        return False
    size = getattr(base, "nbytes", None)
    try:
        return int(memoryview(base).nbytes if size is None else size) > int(view.nbytes)
    except TypeError:
        return True


def frame_home(kind: type) -> str:
    """Return the package whose frame, series or index a class is, or nothing."""
    homes = [str(base.__module__).split(".")[0] for base in kind.__mro__]
    return next((home for home in homes if home in ("pandas", "polars")), "")


def frame_parts(value: Any, home: str) -> dict[str, Any] | None:
    """Return what a frame, a series or an index holds, its types included; ``None`` of others."""
    if home == "polars":
        return _polars(value)
    if type(value).__name__ == "Categorical":
        kinds = {"categories": value.categories.tolist(), "ordered": bool(value.ordered)}
        return {"values": value.tolist(), **kinds}
    if hasattr(value, "columns") and hasattr(value, "iloc") and hasattr(value, "attrs"):
        return _table(value)
    if not hasattr(value, "to_frame"):
        return None
    out: dict[str, Any] = {"values": value.tolist(), "dtype": _kind(value.dtype)}
    if hasattr(value, "index"):
        out["index"], out["index names"] = value.index.tolist(), list(value.index.names)
    else:
        out["names"] = list(value.names)
    out["name"] = value.name
    return _short(out, value)


def _table(value: Any) -> dict[str, Any]:
    columns = [value.iloc[:, i] for i in range(value.shape[1])]
    lists = [column.tolist() for column in columns]
    names = [name if isinstance(name, (str, int)) else str(name) for name in value.columns]
    unique = len(set(names)) == len(names)
    out: dict[str, Any] = {
        "columns": dict(zip(names, lists, strict=True)) if unique else lists,
        "index": value.index.tolist(),
        "dtypes": [_kind(column.dtype) for column in columns],
        "names": [] if unique and names == [*value.columns] else value.columns.tolist(),
        "index names": [*value.index.names, *value.columns.names],
    }
    return _short(out, value)


def _short(out: dict[str, Any], value: Any) -> dict[str, Any]:
    """Add the attributes of a frame, and leave out what is not there."""
    if getattr(value, "attrs", None):
        out["attrs"] = dict(value.attrs)
    named = ("index names", "name", "names")
    return {k: v for k, v in out.items() if k not in named or _any(v)}


def _any(value: Any) -> bool:
    return value is not None and (not isinstance(value, list) or any(v is not None for v in value))


def _kind(dtype: Any) -> Any:
    """Return the name of a type of cells, with its categories."""
    categories = getattr(dtype, "categories", None)
    if categories is None:
        return str(dtype)
    return [str(dtype), list(categories), bool(getattr(dtype, "ordered", False))]


def _polars(value: Any) -> dict[str, Any] | None:
    if hasattr(value, "collect"):
        value = value.collect()
    if hasattr(value, "get_columns"):
        columns = value.get_columns()
        cells: dict[str, Any] = {column.name: column.to_list() for column in columns}
        return cells | {"dtypes": [str(column.dtype) for column in columns]}
    if not hasattr(value, "to_list"):
        return None
    return {value.name: value.to_list(), "dtype": str(value.dtype)}
