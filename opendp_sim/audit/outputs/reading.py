"""Read outputs as plain Python values.

Somebody who is given an object has all of it, not only what it prints. So attributes and slots are
read, the cells and constants of functions, what classes keep that no module has, and of objects written
in C the parts that a copy is made from (``__reduce_ex__``). What is not read is recorded by name.
"""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import decimal
import enum
import fractions
import functools
import pathlib
import sys
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any

import numpy as np

from opendp_sim.audit.generators.copies import is_released_frame
from opendp_sim.audit.outputs.encoding import Raised, without_addresses
from opendp_sim.audit.state.reachable import is_users, is_written, plain_member
from opendp_sim.audit.work import charge, metered

_DEEPEST, _LONGEST, _BITS, _MOST_NAMES = 5, 300, 13_000, 4
"""Levels that are read, values of an iterator, bits of a number that is written in decimals, and names in
a note."""
_COLLECTED = 1e-3
"""Nominal seconds of collecting a frame: a plan that runs in C has few lines."""
_ALL_PLAIN = frozenset({bool, int, float, str, bytes, type(None)})
_AS_THEY_ARE = frozenset({bytearray, range, np.float64, np.int64, np.bool_, *_ALL_PLAIN})
_TOLD = (dt.date, dt.time, dt.timedelta, dt.tzinfo, uuid.UUID, pathlib.PurePath)
_INNER = frozenset({"__dict__", "__weakref__", "__orig_class__", "__notes__", "__opendp_dict__"})
"""Attributes of Python and of OpenDP, which are no part of an output."""
_OF_RECORDS = frozenset({"_fields", "_field_defaults"})
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__pos__),
    (float, float.__pos__),
    (str, str.__str__),
    (bytes, lambda value: bytes.__getitem__(value, slice(None))),
    (bytearray, lambda value: bytes(memoryview(value))),
)
_OF_FUNCTIONS = frozenset({"function", "defaults", "constants"})
_PROPERTIES = (property, functools.cached_property)
_LARGEST = 2**53
"""The largest whole number up to which floats tell all of them apart."""


class Reader:
    """Read outputs, and record unread names and object state."""

    def __init__(self) -> None:
        self.unread: dict[str, None] = {}
        self.kept: dict[str, str] = {}
        """Attributes and cells that were read, with what keeps them."""

    def reading(self, run: Callable[[Any], Any], *, bits: bool = False) -> Callable[[Any], Any]:
        """Return the run with its outputs read, bit vectors as bits."""
        under = metered(as_chosen(run))

        def reads(data: Any) -> Any:
            out = self.read(written(under(data)))
            return np.unpackbits(np.frombuffer(out, np.uint8)).tolist() if bits and out else out

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
            self._tell(f"{_name_of(value)} (reading it raised {type(error).__name__})")
            return Raised.of(error)

    def _opened(self, value: Any, kind: type, depth: int) -> Any:
        home = str(kind.__module__).split(".")[0]
        if is_released_frame(value):
            return self._once(value.collect(), depth)
        if home == "opendp":
            return self._named(value)
        if isinstance(value, (complex, np.complexfloating)):
            return {"real": float(value.real), "imag": float(value.imag)}
        if home == "opendp_sim" or isinstance(value, np.generic):
            return value
        for known, reads in self._readers():
            if isinstance(value, known):
                return reads(value, depth)
        if _frame_home(kind):
            return self._frame(value, depth)
        if isinstance(value, _TOLD) and not is_users(kind):
            return value
        return self._object(value, kind, depth)

    def _readers(self) -> tuple[tuple[Any, Callable[[Any, int], Any]], ...]:
        """Return the readers of known kinds."""
        native = (types.BuiltinFunctionType, types.MethodWrapperType)
        return (
            (np.ndarray, self._array),
            ((decimal.Decimal, fractions.Fraction), _number),
            (enum.Enum, lambda v, _: v),
            (types.FunctionType, self._function),
            (types.MethodType, lambda v, d: self._parts(_method(v.__func__, v), d)),
            (native, self._native),
            (type, self._class),
            (types.ModuleType, lambda v, _: self._named(v)),
            (_VIEWS, lambda v, d: self._parts({"view": [*v], "of": dict(v.mapping)}, d)),
            (memoryview, self._memory),
        )

    def _object(self, value: Any, kind: type, depth: int) -> Any:
        """Return attributes with a base class's value or a copy's parts."""
        kept = self._parts({**class_state(kind), **state_of(value)}, depth, kind.__name__)
        if is_users(kind) and any(_is_property(part) for k in kind.__mro__ for part in _vars(k)):
            self._tell(f"{kind.__module__}.{kind.__name__} (its properties were not computed)")
        if kept and isinstance(value, Iterator):  # what it keeps may change while it yields
            with contextlib.suppress(Exception):
                kept = copy.deepcopy(kept)
        found = self._held(value, kind, depth)
        if found is not _NOTHING:
            return {"value": found, "attributes": kept} if kept else found
        if not kept:
            return self._named(value)
        if not is_users(kind) and _copied_from(value) is None:
            self._tell(f"{_name_of(value)} (its attributes were read, not its state in C)")
        text = _own_text(value)
        return {**kept, "repr": text} if text else kept

    def _held(self, value: Any, kind: type, depth: int) -> Any:
        """Return a base class's value, or the parts of a copy."""
        if isinstance(value, BaseException):
            return self._exception(value)
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, (list, tuple)):
            return self._sequence(value, depth)
        if isinstance(value, (set, frozenset)):
            parts = [self.read(part, depth + 1) for part in value]
            same = all(mine is part for mine, part in zip(parts, value, strict=True))
            return value if same else {"members": sorted(parts, key=repr)}
        for base, plain in _BASES:
            if isinstance(value, base):
                return plain(value)
        if isinstance(value, _TOLD):
            return repr(value)
        if isinstance(value, Iterator) and (is_users(kind) or _copied_from(value) is None):
            return self._yielded(value, depth)
        return _NOTHING if is_users(kind) else self._copied(value, depth)

    def _copied(self, value: Any, depth: int) -> Any:
        """Return the parts that a copy of an object is made from."""
        made = _copied_from(value)
        if made is None:
            return _NOTHING
        _, args, state, items, pairs = (*made, None, None, None)[:5]
        state = state if isinstance(state, tuple) else () if isinstance(state, dict) else (state,)
        held = [_without_inner(part) if isinstance(part, dict) else part for part in state]
        given = [part for part in args if not isinstance(part, type)]
        parts = [
            *given,
            *(part for part in held if part is not None),
            *(items or ()),
            *(pairs or ()),
        ]
        if not parts:
            return _NOTHING
        read = [self.read(part, depth + 1) for part in parts]
        return read[0] if len(read) == 1 else read

    def _array(self, value: Any, _depth: int) -> Any:
        if value.base is not None and getattr(value.base, "nbytes", 0) > value.nbytes:
            self._tell("numpy.ndarray (the larger array that it is a view of)")
        plain, dtype = np.asarray(value), value.dtype
        out: Any = plain
        if dtype.kind == "c":
            out = {"real": plain.real.copy(), "imag": plain.imag.copy()}
        elif dtype.kind not in "fiub" or dtype.itemsize > 8 or not _exact(plain):
            out = self.read(plain.tolist(), 1)
        if isinstance(value, np.ma.MaskedArray):
            fill = np.asarray(value.fill_value).tolist()
            out = {"data": out, "mask": np.ma.getmaskarray(value).tolist(), "fill": fill}
        more = {"metadata": dict(dtype.metadata)} if dtype.metadata else {}
        if type(value) not in (np.ndarray, np.ma.MaskedArray):
            own = {**class_state(type(value)), **getattr(value, "__dict__", {})}
            more |= self._parts(_without_inner(own), 1, "array")
        return {"array": out, **more} if more else out

    def _class(self, value: type, depth: int) -> Any:
        name, parts = self._named(value), class_state(value)
        return {"class": name, **self._parts(parts, depth, value.__name__)} if parts else name

    def _function(self, value: Any, depth: int) -> Any:
        self._tell("function (what it keeps was read; it was not called)")
        parts = {"function": value.__name__, **_cells_and_defaults(value)}
        constants = [c for c in value.__code__.co_consts if type(c) in _ALL_PLAIN and c is not None]
        parts |= {"constants": constants} if constants else {}
        if marks := _without_inner(vars(value)):
            parts["attributes"] = marks
        return self._parts(parts, depth, "function")

    def _native(self, value: Any, depth: int) -> Any:
        owner = getattr(value, "__self__", None)
        if owner is None or isinstance(owner, types.ModuleType):
            return f"<{getattr(value, '__qualname__', _name_of(value))}>"
        return self._parts(_method(value.__name__, value), depth)

    def _memory(self, value: memoryview, _depth: int) -> bytes:
        if memoryview(value.obj).nbytes > value.nbytes:
            self._tell("memoryview (of more than it shows)")
        return value.tobytes()

    def _exception(self, value: BaseException) -> Any:
        if value.__traceback__ is not None:
            self._tell("traceback of an exception (its frames)")
        text = Raised.of(value).text
        if all(type(part) in _ALL_PLAIN and str(part) in text for part in value.args):
            return text
        return {"exception": text, "args": self.read(value.args, 1)}

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

    def _yielded(self, value: Iterator[Any], depth: int) -> Any:
        if not is_users(type(value)):
            self._tell(f"{_name_of(value)} (what it yields was read, not what it keeps)")
        out = [self.read(part, depth + 1) for part in islice(value, _LONGEST + 1)]
        if len(out) > _LONGEST:
            self._tell(f"{_name_of(value)} beyond {_LONGEST} values")
        return out[:_LONGEST]

    def _frame(self, value: Any, depth: int) -> Any:
        """Return the cells, types, categories and names of a frame or series."""
        if hasattr(value, "collect"):
            self._tell(f"{_name_of(value)} (what it collects was read, not its plan)")
            value = value.collect()
        if hasattr(value, "categories") and not hasattr(value, "to_frame"):
            return {"values": value.tolist(), "categories": value.categories.tolist()}
        if hasattr(value, "to_frame"):
            value = value.to_frame()
        if not hasattr(value, "to_dict"):
            return self._named(value)
        polars = hasattr(value, "get_columns")
        cells = value.to_dict(as_series=False) if polars else value.to_dict(orient="tight")
        kinds = [[str(d), *getattr(d, "categories", ())] for d in [*value.dtypes]]
        return self._parts({**cells, "dtypes": kinds, **getattr(value, "attrs", {})}, depth)

    def _once(self, frame: Any, depth: int) -> Any:
        """Return the cells of a released frame by its keys.

        The order of its rows is not released.
        """
        charge(_COLLECTED)
        keys = [name for name, dtype in frame.schema.items() if not dtype.is_numeric()]
        if not keys and frame.height == 1:
            return self.read(list(frame.row(0)), depth + 1)
        keys = keys or frame.columns[: frame.width > 1]
        cells: dict[str, Any] = {}
        for row in sorted(frame.rows(named=True), key=repr):
            numbers = [v for name, v in row.items() if name not in keys]
            cells.setdefault(repr([row[name] for name in keys]), []).extend(numbers)
        return self._parts(dict(sorted(cells.items())), depth)

    def _parts(self, parts: Mapping[str, Any], depth: int, owner: str = "") -> dict[str, Any]:
        if owner and len(self.kept) < _LONGEST:
            self.kept.update(dict.fromkeys(parts, owner))
        return {name: self.read(part, depth + 1) for name, part in parts.items()}

    def _tell(self, name: str) -> None:
        self.unread[name] = None

    def _named(self, value: Any) -> str:
        """Return a placeholder for an unread value, and record its name."""
        self._tell(name := _name_of(value))
        return f"<{name}>"


def read(value: Any) -> Any:
    """Return the whole content of an output as plain values."""
    return Reader().read(value)


def written(value: Any) -> Any:
    """Return a very long whole number in hexadecimals, other values unchanged."""
    return hex(value) if type(value) is int and value.bit_length() > _BITS else value


def kept_words(kept: dict[str, str], event: str | None) -> str:
    """Return a note that the object's holder can read a finding."""
    told = {name: owner for name, owner in kept.items() if name not in _OF_FUNCTIONS}
    if event is not None:
        told = {name: owner for name, owner in told.items() if repr(name) in event}
    if not told:
        return ""
    names = ", ".join(f"`{name}`" for name in list(told)[:_MOST_NAMES])
    owner = next(iter(told.values()))
    return (
        f"; the output keeps {names} ({owner}), which whoever is handed it can read: what only "
        "answers questions is a queryable (`dp.new_queryable`)"
    )


# --------------------------------------------------------------------------------------------------

_NOTHING: Any = object()
"""Stands for no value."""


def state_of(value: Any) -> dict[str, Any]:
    """Return an instance's attributes and slots, whatever its class says of copies."""
    held = object.__getstate__(value)
    parts = [part for part in (held if isinstance(held, tuple) else (held,)) if part]
    return _without_inner({str(k): v for part in parts for k, v in dict(part).items()})


def class_state(kind: type) -> dict[str, Any]:
    """Return what an instance's classes of the run keep.

    A class that stands in no module was made in the run. Of its methods it keeps what functions keep.
    """
    out: dict[str, Any] = {}
    for base in filter(_is_of_a_run, reversed(kind.__mro__)):
        for name, member in vars(base).items():
            part = plain_member(member)
            if isinstance(part, types.FunctionType):
                held = _cells_and_defaults(part) if is_written(base, part) else {}
                out |= {name: held} if held else {}
            elif not (name.startswith("__") or name in _OF_RECORDS or hasattr(part, "__get__")):
                out[name] = part
    return out


def _is_of_a_run(kind: type) -> bool:
    """Return whether a user's class does not stand in its module."""
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not kind and is_users(kind)


def _without_inner(parts: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: part for name, part in parts.items() if name not in _INNER}


def _copied_from(value: Any) -> tuple[Any, ...] | None:
    """Return what Python makes a copy from, or None."""
    try:
        made = value.__reduce_ex__(4)
    except Exception:  # noqa: BLE001 - it has no copies
        return None
    return made if isinstance(made, tuple) else None


def _cells_and_defaults(function: types.FunctionType) -> dict[str, Any]:
    """Return a function's variables of closures, and its defaults."""
    out: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not filled
            if name != "__class__":
                out[name] = cell.cell_contents
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return {**out, "defaults": defaults} if defaults else out


def _method(name: Any, value: Any) -> dict[str, Any]:
    return {"method": name, "self": value.__self__}


def _number(value: Any, _depth: int) -> Any:
    """Return an exact number as a float and as a text."""
    try:
        return {"near": float(value), "text": str(value)}
    except OverflowError:
        return {"text": str(value)}


def _exact(value: Any) -> bool:
    """Return whether all whole numbers of an array are floats."""
    small = value.dtype.kind not in "iu" or value.dtype.itemsize < 8 or not value.size
    return small or bool(int(value.min()) >= -_LARGEST and int(value.max()) <= _LARGEST)


def _frame_home(kind: type) -> str:
    """Return the package of a frame, series or index, or nothing."""
    homes = [str(base.__module__).split(".")[0] for base in kind.__mro__]
    return next((home for home in homes if home in ("pandas", "polars")), "")


def _is_property(part: Any) -> bool:
    return isinstance(part, _PROPERTIES)


def _vars(kind: type) -> list[Any]:
    return list(vars(kind).values()) if is_users(kind) else []


def _own_text(value: Any) -> str:
    """Return an object's own class text, or nothing."""
    held: Any = type(value).__repr__
    if held is object.__repr__ or hasattr(value, "__dataclass_fields__"):
        return ""
    text = repr(value)
    return "" if "object at 0x" in text else without_addresses(text)


def _name_of(value: Any) -> str:
    """Return the name of a value's class, with its module."""
    home = type(value).__module__
    return type(value).__name__ if home == "builtins" else f"{home}.{type(value).__name__}"


# --------------------------------------------------------------------------------------------------
# numpy's handling of floating-point errors: the caller's choice for audited runs, for what they raise
# is an output; numpy's default for the auditor's own arithmetic.


_CHOSEN: ContextVar[dict[str, Any]] = ContextVar("chosen", default={})  # noqa: B039 - never written to


@contextmanager
def numpys_own() -> Iterator[None]:
    """Set numpy's default error handling, and remember the caller's."""
    token = _CHOSEN.set(dict(np.geterr()))
    try:
        with np.errstate(all="warn", under="ignore"):
            yield
    finally:
        _CHOSEN.reset(token)


def as_chosen(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a run under the caller's error handling."""
    chosen = _CHOSEN.get()

    def under(data: Any) -> Any:
        with np.errstate(**chosen):
            return run(data)

    return under
