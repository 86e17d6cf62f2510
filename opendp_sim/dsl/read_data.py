"""The ``data`` section: sources, declared columns, ingest, ledgers."""

from __future__ import annotations

from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.budget import Budget, MeasureName
from opendp_sim.core.errors import SimError, SpecError
from opendp_sim.dsl.diagnostic import Notes, Path, nearest
from opendp_sim.dsl.fields import (
    HOLE,
    Fields,
    boolean,
    choice,
    listing,
    mapping,
    number,
    shown,
    text,
)
from opendp_sim.dsl.ir import DataEntry, LedgerRef, SourceRef
from opendp_sim.dsl.read_steps import hole_in
from opendp_sim.sources.builtin import BUILTINS
from opendp_sim.sources.opening import KINDS
from opendp_sim.sources.place import read_place
from opendp_sim.spaces.records import Column, Records

__all__ = ["SOURCE_KINDS", "read_budget", "read_data", "read_source"]

SOURCE_KINDS = (*KINDS, "memory")
"""What a spec can name, and arrays handed over in Python."""


def read_data(section: Any, notes: Notes) -> dict[str, DataEntry | None]:
    """Return the data entries by name; None stands for one that is wrong (reported)."""
    path: Path = ("data",)
    if not isinstance(section, dict) or not section:
        if section is not HOLE:
            notes.error("OS304", "`data` must name at least one dataset", path,
                        label=f"got {shown(section)}",
                        help="write `data: {name: {source: ..., columns: ...}}`.")  # fmt: skip
        return {}
    return {name: _entry(name, value, (*path, name), notes) for name, value in section.items()}


def _entry(name: str, value: Any, path: Path, notes: Notes) -> DataEntry | None:
    before = len(notes.findings)
    fields = Fields(value, path, notes, ("source", "columns", "ingest", "ledger", "public"))
    source = read_source(fields.take("source", mapping), (*path, "source"), notes)
    columns = _columns(fields.take("columns", mapping), (*path, "columns"), notes)
    ingest = fields.take("ingest", choice("refuse", "enforce", "assume"), "refuse")
    public = fields.take("public", boolean, default=False)
    ledger = fields.take("ledger", mapping, None)
    reference = None if ledger is None else _ledger(ledger, (*path, "ledger"), notes)
    if len(notes.findings) > before or HOLE in (source, ingest, public) or columns is None:
        return None
    if source is None or (ledger is not None and reference is None):
        return None
    if public and ledger is not None:
        notes.error("OS304", "a public dataset has no ledger", (*path, "ledger"), part="key",
                    label="charges nothing", help="leave `ledger` or `public` out.")  # fmt: skip
        return None
    return DataEntry(name, source, Records(columns), ingest, reference, public)


def read_source(value: Any, path: Path, notes: Notes) -> SourceRef | None:
    """Return ``{kind: argument}``."""
    if value is HOLE:
        return None
    if not isinstance(value, dict) or len(value) != 1:
        notes.error("OS304", "a source is one kind with its argument", path,
                    label=f"got {shown(value)}",
                    help="write for example {builtin: digits} or {npz: data/rows.npz}.")  # fmt: skip
        return None
    ((kind, argument),) = value.items()
    if kind not in SOURCE_KINDS:
        notes.unknown(kind, SOURCE_KINDS, (*path, kind), "kind of source")
        return None
    if argument is HOLE:
        return None
    if kind in KINDS and kind != "builtin" and isinstance(argument, dict):
        return _file_with_options(kind, argument, (*path, kind), notes)
    if not isinstance(argument, str) or not argument:
        notes.error("OS304", f"`{kind}` takes a name or a path", (*path, kind),
                    label=f"got {shown(argument)}", help="write it as text.")  # fmt: skip
        return None
    return SourceRef(kind, argument) if _known(kind, argument, (*path, kind), notes) else None


def _file_with_options(
    kind: str, argument: dict[str, Any], path: Path, notes: Notes
) -> SourceRef | None:
    if hole_in(argument):
        return None
    try:
        read_place(argument, File(), f"source.{kind}")
    except SimError as error:
        word = error.got if isinstance(error.got, str) and error.got in argument else None
        notes.from_error(error, (*path, word) if word else path, "key" if word else "value")
        return None
    return SourceRef(kind, argument)


def _known(kind: str, argument: str, path: Path, notes: Notes) -> bool:
    """Say whether a built-in data set exists; files are looked for when data is opened."""
    if kind != "builtin" or argument in BUILTINS:
        return True
    notes.error("OS303", f"no built-in dataset is called `{argument}`", path, label="not known",
                help=nearest(argument, BUILTINS) or f"use one of {', '.join(BUILTINS)}.")  # fmt: skip
    return False


def _columns(value: Any, path: Path, notes: Notes) -> tuple[Column, ...] | None:
    if value is HOLE or not isinstance(value, dict):
        return None
    columns = [_column(name, entry, (*path, name), notes) for name, entry in value.items()]
    if not columns:
        notes.error("OS305", "`columns` is empty", path, label="no column",
                    help="declare each column that is used.")  # fmt: skip
        return None
    identifiers = [c for c in columns if c is not None and c.role == "privacy_id"]
    for extra in identifiers[1:]:
        notes.error("OS304", "only one column names the person", (*path, extra.name, "role"),
                    label="a second `privacy_id`", help="keep one of them.")  # fmt: skip
    good = tuple(column for column in columns if column is not None)
    return good if len(good) == len(columns) else None


def _column(name: str, entry: Any, path: Path, notes: Notes) -> Column | None:
    before = len(notes.findings)
    if isinstance(entry, str):
        entry = {"dtype": entry}
    fields = Fields(entry, path, notes, ("dtype", "bounds", "keys", "role"))
    dtype = fields.take("dtype", text)
    bounds = fields.take("bounds", listing, [])
    keys = fields.take("keys", listing, [])
    role = fields.take("role", choice("privacy_id"), None)
    if bounds is not HOLE and not hole_in(bounds):
        bounds = _bounds(bounds, (*path, "bounds"), notes)
    for place, key in enumerate(keys if keys is not HOLE else ()):
        if key is not HOLE and (isinstance(key, bool) or not isinstance(key, int | str)):
            notes.error("OS304", "a key is a word or a whole number", (*path, "keys", place),
                        label=f"got {shown(key)}", help="put it in quotes.")  # fmt: skip
    unusable = any(v is HOLE or hole_in(v) for v in (dtype, bounds, keys, role))
    if unusable or len(notes.findings) > before:
        return None
    try:
        return Column(name, dtype, bounds, tuple(keys), role)
    except SimError as error:
        part = (
            "bounds"
            if "bounds" in error.expected
            else "keys"
            if "key" in error.expected
            else "dtype"
        )
        if part == "dtype" and dtype in _MEANT:
            advice = f"did you mean `{_MEANT[dtype]}`? A column of vectors is `array[{dtype}, 8]`."
            error = SpecError(
                error.code, error.where, expected=error.expected, got=error.got, hint=advice
            )
        notes.from_error(error, (*path, part) if part in entry else path)
        return None


_MEANT = {"f32": "float64", "f64": "float64", "i32": "int64", "i64": "int64", "u8": "int64"}
"""Scalars that were written with an entry's name of an array."""


def _bounds(bounds: Any, path: Path, notes: Notes) -> tuple[float, float] | tuple[()]:
    if not bounds:
        return ()
    numbers = [float(v) for v in bounds if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) != 2 or len(bounds) != 2:
        notes.error("OS304", "`bounds` is [lower, upper]", path, label="another list",
                    help="write for example bounds: [0.0, 16.0]")  # fmt: skip
        return ()
    return numbers[0], numbers[1]


def _ledger(value: Any, path: Path, notes: Notes) -> LedgerRef | None:
    fields = Fields(value, path, notes, ("file", "limit"))
    file = fields.take("file", text)
    limit = read_budget(fields.take("limit", mapping), (*path, "limit"), notes, None)
    return None if file is HOLE or limit is None else LedgerRef(file, limit)


def read_budget(value: Any, path: Path, notes: Notes, measure: MeasureName | None) -> Budget | None:
    """Return a budget; checked against ``measure`` when that is known."""
    if value is HOLE or not isinstance(value, dict):
        return None
    before = len(notes.findings)
    fields = Fields(value, path, notes, ("epsilon", "delta", "rho", "reserve"))
    given = {name: fields.take(name, number, None) for name in ("epsilon", "delta", "rho")}
    reserve = fields.take("reserve", mapping, None)
    mechanisms = None
    if isinstance(reserve, dict):
        inside = Fields(reserve, (*path, "reserve"), notes, ("mechanisms", "conversion"))
        mechanisms = inside.take("mechanisms", number)
        conversion = inside.take("conversion", number, None)
        delta = given["delta"]
        if HOLE not in (mechanisms, conversion, delta) and None not in (conversion, delta):
            _reserve_fits(mechanisms, conversion, delta, path, notes)
    if len(notes.findings) > before or HOLE in (*given.values(), reserve, mechanisms):
        return None
    as_float = {name: None if v is None else float(v) for name, v in given.items()}
    budget = Budget(
        **as_float, reserve_mechanisms=None if mechanisms is None else float(mechanisms)
    )
    try:
        budget.check(measure)
    except SimError as error:
        word = error.got.split(" ")[0] if isinstance(error.got, str) else ""
        notes.from_error(error, (*path, word) if word in value else path)
        return None
    return budget


def _reserve_fits(
    mechanisms: float, conversion: float, delta: float, path: Path, notes: Notes
) -> None:
    if mechanisms + conversion > delta * (1 + 1e-12):
        notes.error("OS401", "the reserves exceed delta", (*path, "reserve"),
                    label=f"{mechanisms:g} + {conversion:g} > {delta:g}",
                    help="split delta between `mechanisms` and `conversion`.")  # fmt: skip
