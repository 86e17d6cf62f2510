"""What an output holds, in plain Python: attributes, cells, what an iterator yields.

Somebody who is given an object has all of it, not only what it prints. What is not read is kept by name.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import pathlib
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from opendp_sim.audit.encoding import Raised

__all__ = ["Reader", "read"]

_DEEPEST, _LONGEST = 5, 300
_AS_THEY_ARE = (bool, int, float, str, bytes, bytearray, type(None), np.generic, range, slice)
_TOLD = (dt.date, dt.time, dt.timedelta, dt.tzinfo, uuid.UUID, enum.Enum)
_NAMED = (types.ModuleType, type, types.BuiltinFunctionType, types.MethodDescriptorType)
_ALL_PLAIN = frozenset({bool, int, float, str, bytes, type(None)})


class Reader:
    """Reads outputs, and keeps the names of the types of which not all was read."""

    def __init__(self) -> None:
        self.unread: dict[str, None] = {}

    def reading(self, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the run with its outputs read."""

        def reads(data: Any) -> Any:
            return self.read(run(data))

        reads.raw, reads.reader = run, self  # type: ignore[attr-defined]
        return reads

    def read(self, value: Any, depth: int = 0) -> Any:
        """Return an output as numbers, texts, arrays, lists, tuples and mappings."""
        kind = type(value)
        if kind in _ALL_PLAIN or isinstance(value, _AS_THEY_ARE):
            return value
        if kind in (list, tuple) and _ALL_PLAIN.issuperset(map(type, value)):
            return value
        if depth >= _DEEPEST:
            return self._named(value)
        try:
            return self._opened(value, depth)
        except Exception as error:  # noqa: BLE001 - reading is a part of the output, too
            return Raised.of(error)

    def _opened(self, value: Any, depth: int) -> Any:
        if isinstance(value, (np.ndarray, decimal.Decimal, fractions.Fraction, complex)):
            return self._numeric(value, depth)
        home = type(value).__module__.split(".")[0]
        if isinstance(value, (*_TOLD, pathlib.PurePath)) or home == "opendp_sim":
            return value  # of this package: its text says what it holds
        if isinstance(value, Mapping):
            parts = {key: self.read(part, depth + 1) for key, part in value.items()}
            same = all(parts[key] is part for key, part in value.items())
            return value if same else parts
        if isinstance(value, (list, tuple)):
            return self._sequence(value, depth)
        if isinstance(value, (set, frozenset)):
            return value
        if isinstance(value, Iterator):
            return self._yielded(value, depth)
        if home in ("pandas", "polars"):
            return self._frame(value, home, depth)
        if isinstance(value, _NAMED) or home == "opendp":
            return self._named(value)
        if isinstance(value, types.FunctionType):
            return self._function(value, depth)
        return self._attributes(value, depth)

    def _sequence(self, value: Any, depth: int) -> Any:
        parts = [self.read(part, depth + 1) for part in value]
        if all(mine is part for mine, part in zip(parts, value, strict=True)):
            return value
        return tuple(parts) if isinstance(value, tuple) else parts

    def _numeric(self, value: Any, depth: int) -> Any:
        if isinstance(value, complex):
            return {"real": value.real, "imag": value.imag}
        if isinstance(value, (decimal.Decimal, fractions.Fraction)):
            if isinstance(value, decimal.Decimal) and not value.is_finite():
                return str(value)
            exact = fractions.Fraction(value)
            whole = exact.numerator // exact.denominator
            return {"whole": whole, "rest": float(exact - whole), "text": str(value)}
        if isinstance(value, np.ma.MaskedArray):
            return {"data": value.data.tolist(), "mask": np.ma.getmaskarray(value).tolist()}
        if value.dtype.names is not None:
            return {name: self.read(value[name], depth + 1) for name in value.dtype.names}
        if value.dtype == object:
            return self.read(value.tolist(), depth + 1)
        return value

    def _yielded(self, value: Iterator[Any], depth: int) -> list[Any]:
        out = [self.read(part, depth + 1) for part in islice(value, _LONGEST + 1)]
        if len(out) > _LONGEST:
            self.unread[f"{_name(value)} beyond {_LONGEST} values"] = None
        return out[:_LONGEST]

    def _frame(self, value: Any, home: str, depth: int) -> Any:
        if hasattr(value, "collect") and not hasattr(value, "to_dict"):
            value = value.collect()
        if home == "polars":
            named = hasattr(value, "get_columns")
            return value.to_dict(as_series=False) if named else {value.name: value.to_list()}
        if not hasattr(value, "columns") and not hasattr(value, "to_frame"):
            return self._named(value)
        columns = value.to_dict(orient="list") if hasattr(value, "columns") else value.tolist()
        out = {"columns" if hasattr(value, "columns") else "values": self.read(columns, depth + 1)}
        out["index"] = self.read(getattr(value, "index", value).tolist(), depth + 1)
        if getattr(value, "name", None) is not None:
            out["name"] = str(value.name)
        if getattr(value, "attrs", None):
            out["attrs"] = self.read(dict(value.attrs), depth + 1)
        return out

    def _function(self, value: types.FunctionType, depth: int) -> Any:
        """Read what a function keeps: free variables and defaults. It is not called."""
        self.unread["function (what it keeps was read; it was not called)"] = None
        out: dict[str, Any] = {"function": value.__name__}
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        out |= {name: self.read(cell.cell_contents, depth + 1) for name, cell in cells}
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        if defaults:
            out["defaults"] = self.read(list(defaults), depth + 1)
        return out

    def _attributes(self, value: Any, depth: int) -> Any:
        """Read an object's attributes, and its text where its class writes one."""
        if isinstance(value, Exception):
            return Raised.of(value).text
        names = list(getattr(value, "__dict__", {}))
        for base in type(value).__mro__:
            slots = base.__dict__.get("__slots__", ())
            names += [slots] if isinstance(slots, str) else list(slots)
        there = [name for name in names if hasattr(value, name) and not name.startswith("__")]
        if not there:
            return self._named(value)
        out = {name: self.read(getattr(value, name), depth + 1) for name in dict.fromkeys(there)}
        if "object at 0x" in repr(value) or hasattr(value, "__dataclass_fields__"):
            return out
        return {**out, "repr": repr(value)}

    def _named(self, value: Any) -> str:
        """Return what stands for a value that is not read, and keep its name."""
        if not isinstance(value, _NAMED):
            self.unread[_name(value)] = None
        return f"<{_name(value)}>"


def _name(value: Any) -> str:
    home = type(value).__module__
    return type(value).__name__ if home == "builtins" else f"{home}.{type(value).__name__}"


def read(value: Any) -> Any:
    """Return an output as numbers, texts, arrays, lists and mappings: all that it holds."""
    return Reader().read(value)
