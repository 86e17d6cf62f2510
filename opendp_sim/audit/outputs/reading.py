"""Read outputs as plain Python values.

Attributes, cells, and the items of iterators.

Somebody who is given an object has all of it, not only what it prints. What is not read is kept by name.
"""

from __future__ import annotations

import array
import collections
import contextlib
import copy
import datetime as dt
import decimal
import enum
import fractions
import functools
import io
import pathlib
import sys
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from opendp_sim.audit.outputs.attributes import (
    attributes_of,
    class_parts,
    function_parts,
    is_local,
    own_text,
    properties_of,
    state_in_c,
)
from opendp_sim.audit.outputs.errstate import as_chosen
from opendp_sim.audit.outputs.exceptions import Raised
from opendp_sim.audit.state.reachable import is_users
from opendp_sim.audit.work import metered

# --------------------------------------------------------------------------------------------------
# Values of known kinds in plain Python: numbers, arrays, frames, and what stands beside their values.

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
    """Return a number or text subclass's value in the base type."""
    for base, plain in _BASES:
        if isinstance(value, base):
            return plain(value)
    return NOTHING


def yields_all_of(iterator: Any) -> Any:
    """Return the sequence of an advanced iterator, or None.

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
    """Return a very long whole number in hexadecimals, other values unchanged."""
    return hex(value) if type(value) is int and value.bit_length() > _BITS else value


def numeric_parts(value: Any) -> Any:
    """Return a number or an array as plain parts."""
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
    """Return whether an array owns its floats' memory."""
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
    """Return whether a view is of larger, reachable memory."""
    base = view.obj if isinstance(view, memoryview) else view.base
    if base is None:
        return False
    size = getattr(base, "nbytes", None)
    try:
        return int(memoryview(base).nbytes if size is None else size) > int(view.nbytes)
    except TypeError:
        return True


def frame_home(kind: type) -> str:
    """Return the package of a frame, series or index, or nothing."""
    homes = [str(base.__module__).split(".")[0] for base in kind.__mro__]
    return next((home for home in homes if home in ("pandas", "polars")), "")


def frame_parts(value: Any, home: str) -> dict[str, Any] | None:
    """Return the contents of a frame, series or index, or None.

    Its types included; ``None`` of other values.
    """
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
    """Add a frame's attributes, and drop absent parts."""
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


# --------------------------------------------------------------------------------------------------

_DEEPEST, _LONGEST = 5, 300
_ALL_PLAIN = frozenset({bool, int, float, str, bytes, type(None)})
_AS_THEY_ARE = frozenset({bytearray, range, np.float64, np.int64, np.bool_, *_ALL_PLAIN})
_NUMBERS = (np.ndarray, decimal.Decimal, fractions.Fraction, complex, np.complexfloating)
_TOLD = (dt.date, dt.time, dt.timedelta, dt.tzinfo, uuid.UUID, pathlib.PurePath)
_NAMES = (
    *(types.ModuleType, type, types.BuiltinFunctionType, types.MethodDescriptorType),
    *(types.MethodWrapperType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
)


class Reader:
    """Read outputs, and record unread names and object state."""

    def __init__(self) -> None:
        self.unread: dict[str, None] = {}
        self.kept: dict[str, str] = {}
        """Attributes and cells that were read, with what keeps them."""

    def reading(self, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the run with its outputs read."""
        under = metered(as_chosen(run))

        def reads(data: Any) -> Any:
            return self.read(written(under(data)))

        reads.raw, reads.reader = run, self  # type: ignore[attr-defined]
        return reads

    def read(self, value: Any, depth: int = 0) -> Any:
        """Return an output as numbers, texts, arrays, lists, tuples and mappings."""
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if kind in (list, tuple) and _ALL_PLAIN.issuperset(map(type, value)):
            return value
        if kind is dict and _ALL_PLAIN.issuperset(map(type, (*value, *value.values()))):
            return value
        if depth >= _DEEPEST:
            return self._named(value)
        try:
            return self._opened(value, kind, depth)
        except Exception as error:  # noqa: BLE001 - reading is a part of the output, too
            self._tell(f"{name_of(value)} (reading it raised {type(error).__name__})")
            return Raised.of(error)

    def _opened(self, value: Any, kind: type, depth: int) -> Any:
        if kind in (list, tuple):
            return self._sequence(value, depth)
        if kind is dict:
            return self._mapping(value, depth)
        if kind is np.ndarray and plain_array(value):
            return value
        home = str(kind.__module__).split(".")[0]
        if home == "opendp_sim" or (isinstance(value, np.generic) and home == "numpy"):
            return self._numeric(value, depth) if kind.__name__.startswith("complex") else value
        if home == "opendp":
            return self._named(value)
        if isinstance(value, enum.Enum):
            return self._member(value, kind, depth)
        special = self._special(value, depth)
        if special is not NOTHING:
            return special
        kept = self._kept(value, kind, depth)
        if kept and isinstance(value, Iterator):  # what it keeps may change while it yields
            with contextlib.suppress(Exception):
                kept = copy.deepcopy(kept)
        if (found := self._held(value, kind, home, depth)) is NOTHING:
            return self._object(value, kept)
        return {"value": found, "attributes": kept} if kept else found

    def _special(self, value: Any, depth: int) -> Any:
        """Read functions, methods, classes, modules and views."""
        if isinstance(value, types.FunctionType):
            self._tell("function (what it keeps was read; it was not called)")
            return self._parts(function_parts(value), depth, "function")
        if isinstance(value, types.MethodType):
            return self._parts({"method": value.__func__, "self": value.__self__}, depth)
        if isinstance(value, _NAMES):
            return self._by_name(value, depth)
        if isinstance(value, functools.partial):
            parts = {"function": value.func, "arguments": value.args, **value.keywords}
            parts |= attributes_of(value)
            return self._parts(parts, depth, "partial")
        if isinstance(value, VIEWS):
            view: Any = value
            return self._parts({"view": list(view), "of": dict(view.mapping)}, depth)
        if isinstance(value, memoryview):
            if shows_part(value):
                self._tell("memoryview (of more than it shows)")
            return value.tobytes()
        if isinstance(value, slice):
            return self.read([value.start, value.stop, value.step], depth + 1)
        return NOTHING

    def _by_name(self, value: Any, depth: int) -> Any:
        """Return the name of a class, module or compiled function."""
        owner = getattr(value, "__self__", None)
        if isinstance(value, types.ModuleType):
            if sys.modules.get(value.__name__) is not value:
                return self._parts({k: v for k, v in vars(value).items() if k[:2] != "__"}, depth)
            self._tell("module")
            return f"<module {value.__name__}>"
        if isinstance(value, type):
            if is_local(value):
                parts = self._parts(class_parts(value), depth, f"class {value.__name__}")
                return {"class": value.__qualname__, **parts}
            self._tell("type")
            return f"<class {value.__module__}.{value.__qualname__}>"
        if owner is None or isinstance(owner, types.ModuleType):
            return f"<{getattr(value, '__qualname__', name_of(value))}>"
        return self._parts({"method": value.__name__, "self": owner}, depth)

    def _member(self, value: Any, kind: type, depth: int) -> Any:
        """Read an enumeration's member, with all members of local ones."""
        if not is_local(kind) or isinstance(value, int):
            return value
        members = {name: member.value for name, member in kind.__members__.items()}  # type: ignore[attr-defined]
        return {"member": value.name, "members": self.read(members, depth + 1)}

    def _kept(self, value: Any, kind: type, depth: int) -> dict[str, Any]:
        """Read attributes, and the state of a local class."""
        own = attributes_of(value)
        out = self._parts(own, depth, kind.__name__) if own else {}
        if is_users(kind):
            for what in properties_of(kind):
                self._tell(what)
            if parts := class_parts(kind):
                out["class"] = self._parts(parts, depth, f"class {kind.__name__}")
        return out

    def _parts(self, parts: dict[str, Any], depth: int, owner: str = "") -> dict[str, Any]:
        if owner and len(self.kept) < _LONGEST:
            self.kept.update(dict.fromkeys(parts, owner))
        return {name: self.read(part, depth + 1) for name, part in parts.items()}

    def _object(self, value: Any, kept: dict[str, Any]) -> Any:
        """Return an object's attributes, and its text where its class writes one."""
        if isinstance(value, BaseException):
            return self._exception(value, kept)
        if not kept:
            return self._named(value)
        if state_in_c(type(value)):
            self._tell(f"{name_of(value)} (its attributes were read, not its state in C)")
        text = own_text(value)
        return {**kept, "repr": text} if text else kept

    def _exception(self, value: BaseException, kept: dict[str, Any]) -> Any:
        if value.__traceback__ is not None:
            self._tell("traceback of an exception (its frames)")
        text = Raised.of(value).text
        if not kept and all(type(p) in _ALL_PLAIN and str(p) in text for p in value.args):
            return text
        return {"exception": text, "args": self.read(value.args, 1), **kept}

    def _held(self, value: Any, kind: type, home: str, depth: int) -> Any:
        if isinstance(value, _NUMBERS):
            return self._numeric(value, depth)
        if isinstance(value, _TOLD):
            if is_users(type(getattr(value, "tzinfo", None))):
                self._tell(f"{name_of(value)} (its time zone)")
            return repr(value) if is_users(kind) and home != "pandas" else value
        if isinstance(value, (Mapping, list, tuple, set, frozenset, collections.deque)):
            return self._collected(value, depth)
        if (plain := base_value(value)) is not NOTHING:
            return plain
        if isinstance(value, (io.StringIO, io.BytesIO)):
            whole, at = value.getvalue(), value.tell()
            return whole if at == len(whole) else {"text": whole, "at": at}
        if isinstance(value, Iterator):
            return self._yielded(value, kind, depth)
        if frame := frame_home(kind):
            return self._frame(value, frame, depth)
        return NOTHING

    def _collected(self, value: Any, depth: int) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, (list, tuple)):
            return self._sequence(value, depth)
        if isinstance(value, collections.deque):
            return self.read(list(collections.deque.__iter__(value)), depth)
        parts = [self.read(part, depth + 1) for part in value]
        if all(mine is part for mine, part in zip(parts, value, strict=True)):
            return value
        return {"members": sorted(parts, key=repr)}

    def _sequence(self, value: Any, depth: int) -> Any:
        held = (list if isinstance(value, list) else tuple).__getitem__(value, slice(None))
        parts = [self.read(part, depth + 1) for part in held]
        if all(mine is part for mine, part in zip(parts, held, strict=True)):
            return value if not is_users(type(value)) or hasattr(value, "_fields") else held
        return tuple(parts) if isinstance(value, tuple) else parts

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        items = dict.items(value) if isinstance(value, dict) else value.items()
        read = [(k, self.read(k, depth + 1), v, self.read(v, depth + 1)) for k, v in items]
        made, pairs = getattr(value, "default_factory", None), {}
        if made is not None and not isinstance(made, type):
            pairs = {"default": self.read(made, depth + 1)}
        if pairs or any(key is not mine for key, mine, _, _ in read):
            return {"items": sorted(([key, part] for _, key, _, part in read), key=repr), **pairs}
        known = isinstance(value, dict) and not is_users(type(value))
        if known and all(part is mine for _, _, part, mine in read):
            return value
        return {key: mine for key, _, _, mine in read}

    def _numeric(self, value: Any, depth: int) -> Any:
        if isinstance(value, np.ndarray) and shows_part(value):
            self._tell("numpy.ndarray (the larger array that it is a view of)")
        if type(parts := numeric_parts(value)) is np.ndarray:
            return parts
        return self.read(parts, depth if isinstance(parts, dict) else depth + 1)

    def _yielded(self, value: Iterator[Any], kind: type, depth: int) -> Any:
        whole = yields_all_of(value)
        if whole is NOTHING and not is_users(kind):
            self._tell(f"{name_of(value)} (what it yields was read, not what it keeps)")
        out = [self.read(part, depth + 1) for part in islice(value, _LONGEST + 1)]
        if len(out) > _LONGEST:
            self._tell(f"{name_of(value)} beyond {_LONGEST} values")
        if whole is NOTHING or whole is None:
            return out[:_LONGEST]
        return {"yields": out[:_LONGEST], "of": self.read(whole, depth + 1)}

    def _frame(self, value: Any, home: str, depth: int) -> Any:
        if home == "polars" and hasattr(value, "collect"):
            self._tell(f"{name_of(value)} (what it collects was read, not its plan)")
        parts = frame_parts(value, home)
        return self._named(value) if parts is None else self._parts(parts, depth)

    def _tell(self, name: str) -> None:
        self.unread[name] = None

    def _named(self, value: Any) -> str:
        """Return a placeholder for an unread value, and record its name."""
        self._tell(name := name_of(value))
        return f"<{name}>"


def read(value: Any) -> Any:
    """Return the whole content of an output as plain values."""
    return Reader().read(value)
