"""The ``data`` section: where the records of each dataset are, and what is declared of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Annotated, Any, ClassVar, Literal

from pydantic import model_validator

from opendp_sim.core.errors import SimError
from opendp_sim.dsl.diagnostic import Notes, Path, nearest
from opendp_sim.dsl.grammar.budget import BudgetWords, LedgerRef
from opendp_sim.dsl.grammar.columns import COLUMNS, ColumnWords
from opendp_sim.dsl.grammar.reading import wrong
from opendp_sim.dsl.grammar.section import Reader, Section, hole_in, own, shown, word
from opendp_sim.sources.builtin import BUILTINS
from opendp_sim.sources.opening import KINDS
from opendp_sim.sources.place import read_place
from opendp_sim.spaces.records import Records

__all__ = ["SOURCE", "SOURCE_KINDS", "BudgetWords", "DataEntry", "LedgerRef", "SourceRef"]

SOURCE_KINDS = (*KINDS, "memory")
"""What a spec can name, and arrays handed over in Python."""


# --- sources --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceRef:
    """Where a dataset or queries are: {csv: trees.csv}, npz, npy, parquet, or {builtin: digits}.

    With options: {csv: {file: trees.csv, delimiter: ";", columns: {height: H}}}, what the file calls a
    column. A vector ``place`` of width 2 in a .csv or .parquet file is one column of lists such as
    "[1.5, 2]", or the columns place_0 and place_1, or those named by ``columns: {place: [lon, lat]}``.
    In .npz it is an array of shape (n, 2). Text files have no dtypes: a cell that is not a number is a
    missing entry of its column. A file is a path of this machine: addresses (s3://bucket/folder,
    https://, also file://) are refused before anything is charged, since what tells a file from one that
    replaced it, its size and time of change, is of a mounted file system.
    """

    kind: str
    argument: Any
    inside: ClassVar[tuple[str, ...]] = SOURCE_KINDS

    def plain(self) -> dict[str, Any]:
        """The spec's form."""
        return {self.kind: self.argument}


def _source(value: Any, path: Path, notes: Notes) -> SourceRef | None:
    """Return ``{kind: argument}``."""
    if not isinstance(value, dict):
        wrong(value, "mapping", path, notes)
        return None
    if len(value) != 1:
        notes.error("OS304", "a source is one kind with its argument", path,
                    label=f"got {shown(value)}",
                    help="write for example {builtin: digits} or {npz: data/rows.npz}.")  # fmt: skip
        return None
    ((kind, argument),) = value.items()
    place = (*path, kind)
    if kind not in SOURCE_KINDS:
        notes.unknown(kind, SOURCE_KINDS, place, "kind of source")
        return None
    if hole_in(argument):
        return None
    if isinstance(argument, dict) and kind not in ("builtin", "memory"):
        return SourceRef(kind, argument) if _options_fit(kind, argument, place, notes) else None
    if not isinstance(argument, str) or not argument:
        notes.error("OS304", f"`{kind}` takes a name or a path", place,
                    label=f"got {shown(argument)}", help="write it as text.")  # fmt: skip
        return None
    if kind == "builtin" and argument not in BUILTINS:  # files are looked for when data is opened
        notes.error("OS303", f"no built-in dataset is called `{argument}`", place, label="not known",
                    help=nearest(argument, BUILTINS) or f"use one of {', '.join(BUILTINS)}.")  # fmt: skip
        return None
    if kind not in ("builtin", "memory") and not _options_fit(kind, argument, place, notes):
        return None
    return SourceRef(kind, argument)


def _options_fit(kind: str, argument: Any, path: Path, notes: Notes) -> bool:
    try:
        read_place(argument, File(), f"source.{kind}")
    except SimError as error:
        known = argument if isinstance(argument, dict) else ()
        word = error.got if isinstance(error.got, str) and error.got in known else None
        notes.from_error(error, (*path, word) if word else path, "key" if word else "value")
        return False
    return True


def _source_schema() -> dict[str, Any]:
    options = {
        "file": {"type": "string"},
        "columns": {"type": "object"},
        "delimiter": {"type": "string", "minLength": 1, "maxLength": 1},
    }
    place: dict[str, Any] = {
        "type": "object",
        "properties": options,
        "required": ["file"],
        "additionalProperties": False,
    }
    name = {"type": "string", "minLength": 1}
    kinds: dict[str, Any] = {kind: {"anyOf": [name, place]} for kind in SOURCE_KINDS}
    kinds |= {"builtin": {"enum": sorted(BUILTINS)}, "memory": name}
    return {
        "type": "object",
        "properties": kinds,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


SOURCE = Reader(_source, _source_schema, SourceRef)


class DataEntry(Section):
    """Datasets by name: where each is, and what its columns hold.

    Nothing here may come from looking at data.
    """

    template: ClassVar[str] = """\
data:
  records:
    source: {npz: ???}                    # a path beside this file; or csv, npy, parquet, builtin
    columns:
      x: {dtype: "array[f64, 8]", bounds: [0.0, 1.0]}   # width and bounds from public knowledge;
                                          # in a .csv: columns x_0 to x_7, or one of lists
      # age: {dtype: float64, bounds: [0.0, 120.0]}     # single numbers, a line each
      # person: {dtype: int64, role: privacy_id}        # whom a record is about: see `unit` below
      # kind: {dtype: category, keys: [a, b]}           # a label: see `select` below
    ingest: refuse                        # or enforce: clamp to the bounds, drop NaN
    # ledger: {file: records.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}
"""
    name: str = own()
    source: Annotated[SourceRef, SOURCE] = word("Where the records are.")
    records: Annotated[Records, COLUMNS] = word(
        "What each column holds, by name.", spelled="columns"
    )
    ingest: Literal["refuse", "enforce", "assume"] = word(
        """\
What happens to records that break the declaration of their columns, before anything is released.
    refuse   the run ends, and says which kind of defect, never whose (the default). That it was
             refused is public; with a ledger, at most ten runs may be.
    enforce  numbers are clamped to their bounds; a record with a missing entry, NaN, a foreign label or
             a cell of another dtype is dropped. Nobody is told how many: a misspelt key or dtype can
             drop everybody, and then the answers are noise. Compare the released number of records
             with the one you expect, or try the declaration on data that is public.
    assume   nothing is looked at: the claim holds if the declaration does.""",
        "refuse",
    )
    ledger: LedgerRef | None = word("The file that adds up what this dataset has lost.", None)
    order: tuple[str, ...] | None = word(
        "The columns' names in their order, where they are not written in it: it says what the numbers "
        "of a plain array are, and which rows of a person are kept. `plan --yaml` writes it.",
        None,
    )
    public: bool = word(
        "`true`: public data; nothing is charged, and a release needs no noise.", False
    )

    def plain(self) -> dict[str, Any]:
        """The spec's form."""
        columns = {c.name: ColumnWords.of(c).plain() for c in self.records.columns}
        found = {**super().plain(), "columns": columns}
        return found if list(columns) == sorted(columns) else found | {"order": list(columns)}

    @model_validator(mode="before")
    @classmethod
    def _ordered(cls, given: Any) -> Any:
        """Put the columns in their stated order: sorted JSON gives the same program."""
        records, order = given.get("records"), given.get("order")
        if not isinstance(records, Records) or not isinstance(order, tuple) or not order:
            return given
        by_name = {column.name: column for column in records.columns}
        named = all(isinstance(name, str) for name in order)
        if not named or sorted(order) != sorted(by_name):
            return given  # which the words' own types or `rules` refuse
        columns = tuple(by_name[name] for name in order)
        return {**given, "records": replace(records, columns=columns), "order": None}

    def rules(self, notes: Notes, path: Path) -> None:
        """Public data loses nothing, and an order names every column once."""
        if self.order is not None:
            notes.error("OS304", "an order is a list of all columns", (*path, "order"),
                        label="another list", help="name every column once, or none.")  # fmt: skip
        if self.public and self.ledger is not None:
            notes.error("OS304", "a public dataset has no ledger", (*path, "ledger"), part="key",
                        label="charges nothing", help="leave `ledger` or `public` out.")  # fmt: skip
