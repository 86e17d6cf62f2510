"""Declare the ``data`` section, places and declarations of records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Annotated, Any, ClassVar, Literal

from pydantic import model_validator

from opendp_sim.core.errors import SimError, SpecError
from opendp_sim.domains.cell import MISSING
from opendp_sim.domains.column import DTYPES
from opendp_sim.domains.encoded import day, day_text
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.grammar.budget import LedgerRef
from opendp_sim.dsl.grammar.parse import named_sections, wrong
from opendp_sim.dsl.grammar.section import (
    Refusal,
    Section,
    ValueReader,
    hole_in,
    not_a_word,
    value_text,
    word,
)
from opendp_sim.dsl.text.diagnostic import Notes, Path, suggest
from opendp_sim.io.builtin import BUILTINS
from opendp_sim.io.dialect import OPTIONS
from opendp_sim.io.file_spec import read_place
from opendp_sim.io.open import SOURCE_NAMES

# --------------------------------------------------------------------------------------------------
# The ``columns`` of a dataset: what each holds, declared from public knowledge.


class ColumnWords(Section):
    """Declare a column.

    `dtype: "array[f32, 8]"` (or f64, i32, i64, u8) is a vector of 8 numbers a record.
    """

    short: ClassVar[str] = "dtype"
    name: str = not_a_word()
    dtype: str = word(
        "array[f32, d], category, int64, float64, str, bool (0 and 1) or date (a number of days).",
        min_length=1,
    )
    bounds: tuple[float, float] | tuple[str, str] | None = word(
        "Public [lower, upper] of a numeric column, from knowledge and never from the data; of a date "
        "[2024-01-01, 2024-12-31].", None,
        refusal=Refusal("`bounds` is [lower, upper]", "write for example bounds: [0.0, 16.0]",
                        label="another list"),
    )  # fmt: skip
    keys: tuple[str | int, ...] = word(
        "Public keys of a category, in the order of its labels.",
        (),
        refusal=Refusal("a key is a word or a whole number", "put it in quotes.", within=True),
    )
    role: Literal["privacy_id"] | None = word("`privacy_id`: the column names the person.", None)

    @classmethod
    def of(cls, c: Column) -> ColumnWords:
        """The words that declare ``c``."""
        bounds: Any = c.bounds or None
        if c.dtype == "bool":
            bounds = None
        elif bounds and c.dtype == "date":
            bounds = tuple(map(day_text, bounds))
        return cls(name=c.name, dtype=c.dtype, bounds=bounds, keys=c.keys, role=c.role)

    def column(self) -> Column:
        """The column of the records; refuses what cannot be meant."""
        return Column(self.name, self.dtype, self._numbers(), self.keys, self.role)

    def _numbers(self) -> tuple[float, float] | tuple[()]:
        """Return the bounds as numbers, dates as days."""
        if self.bounds is None:
            return ()
        low, high = self.bounds
        dated = self.dtype == "date"
        if isinstance(low, str) != dated or isinstance(high, str) != dated:
            expected = "dates such as 2024-01-31" if dated else "numbers"
            raise self._bad_bounds(expected)
        found = (day(low), day(high)) if dated else (float(low), float(high))
        if dated and MISSING in found:
            raise self._bad_bounds("dates such as 2024-01-31")
        return found

    def _bad_bounds(self, expected: str) -> SpecError:
        return SpecError(
            "OS304", f"columns.{self.name}", expected=f"bounds that are {expected}", got="others",
            hint="bounds of a `date` are dates; of all other columns they are numbers.",
        )  # fmt: skip

    def rules(self, notes: Notes, path: Path) -> None:
        """What the column itself refuses, at the word it is about."""
        try:
            self.column()
        except SimError as error:
            about = (("bounds", "bounds"), ("key", "keys"))
            part = next((word for said, word in about if said in error.expected), "dtype")
            if part == "dtype" and self.dtype in _MEANT:
                meant = _MEANT[self.dtype]
                hint = f"did you mean `{meant}`? A column of vectors is `array[{self.dtype}, 8]`."
                error = error.restated(hint=hint)
            elif part == "dtype" and (near := suggest(self.dtype.partition("[")[0], DTYPES)):
                error = error.restated(hint=f"{near} {error.hint}")
            notes.from_error(error, (*path, part) if part in self.model_fields_set else path)


_MEANT = {"f32": "float64", "f64": "float64", "i32": "int64", "i64": "int64", "u8": "int64"}
"""Scalars that were written with an entry's name of an array."""
_NAMED = named_sections(ColumnWords, Refusal("`columns` is empty", "declare each column that is used.",
                                      code="OS305", label="no column"))  # fmt: skip


def _records(value: Any, path: Path, notes: Notes) -> Records | None:
    found = _NAMED.read(value, path, notes)
    if not found:
        return None
    columns = [None if words is None else words.column() for words in found.values()]
    persons = [c for c in columns if c is not None and c.role == "privacy_id"]
    for extra in persons[1:]:
        notes.error("OS304", "only one column names the person", (*path, extra.name, "role"),
                    label="a second `privacy_id`", help="keep one of them.")  # fmt: skip
    good = tuple(column for column in columns if column is not None)
    return Records(good) if len(good) == len(columns) else None


COLUMNS_READER = ValueReader(_records, _NAMED.schema, ColumnWords)


# --------------------------------------------------------------------------------------------------

SOURCE_KINDS = (*SOURCE_NAMES, "memory")
"""What a spec can name, and arrays handed over in Python."""


# --- sources --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceRef:
    """Declare the place of a dataset or of queries.

    As {csv: trees.csv}, jsonl, parquet, arrow, npz, npy, sql, or {builtin: digits}. With options:
    {csv: {file: trees.csv, delimiter: ";", columns: {height: H}}}, what the file calls a column. A
    vector ``place`` of width 2 is one column of lists such as "[1.5, 2]", or the columns place_0 and
    place_1, or those named by ``columns: {place: [lon, lat]}``, ``[g_0 .. g_764]`` or ``{prefix:
    gene_, count: 765}`` (in the order of the numbers in their names). In .npz it may be an array of
    shape (n, 2). In place of a file a folder or a pattern (``day-*.csv``) names several of one kind; a
    folder ``year=2026`` gives its files a column ``year``. A database of DuckDB or SQLite is {sql:
    {file: visits.duckdb, query: select age, stay from visits}}, or ``table: visits``; a server's is read
    by its client, and handed over as a table in memory (Arrow, pandas, Polars). Of a table of
    votes (worker, question, answer), {csv: {file: votes.csv, votes: {worker: who, question: task,
    answer: label, questions: [1, 2], answers: [cat, dog]}}} makes a record a worker, with columns
    ``who`` and one ``array[u8, 4]`` for `pate_labels`; `vote_counts` reads such a table as it is.

    ``columns: {when: {hour: time}}`` and ``{weekday: day}`` are places on a circle (of UTC), and
    ``{place: {km: [lat, lon], at: [48, 10]}}`` kilometres east and north of a public place: each is an
    ``array[f64, 2]``. Its bounds are of both numbers: ``[-3.82, 3.82]`` of ``hour`` (a circle with a
    circumference of 24), ``[-1.12, 1.12]`` of ``weekday`` (of 7), kilometres of ``km``.

    Text files have no dtypes: a cell that is not a number is a
    missing entry of its column, or is read as the file's dialect writes it:

        decimal: ","           the sign before a fraction; else a point
        thousands: "."         between groups of digits; a blank stands
                               for narrow ones too
        missing: [NULL, -200]  cells that are no value; of numbers in
                               whatever form (-200,0)
        strip: [$, EUR, "%"]   around a number, and no part of it
        skip: 2                lines before the header line; the first
                               line `sep=;` needs none
        encoding: utf-16       or latin-1, cp1252, ...; else UTF-8
        quote: none            or the sign around cells; else a double quote
        header: [a, b, c]      names in a file without a header line;
                               `none` with places; the keys of .jsonl
        ragged: true           a line may lack its last cells, or have
                               empty ones beyond the header
        columns: {x: {at: 3}}  the third cell of a line

    Each cell and line is read by itself. A carriage return alone is a letter of its cell, unless it ends
    the header line. JSON lines have no header: a misspelt column is missing in every record, unless
    `header` lists the keys, which are public then. `opendp-sim doctor` finds a file's dialect. Files
    may be compressed (.csv.gz, .csv.zst), and are of this machine: addresses (s3://bucket/folder,
    https://, also file://) are refused before anything is charged, since what tells a file from one that
    replaced it, its size and time of change, is of a mounted file system.
    """

    kind: str
    argument: Any
    inside: ClassVar[tuple[str, ...]] = (
        *SOURCE_KINDS,
        "delimiter",
        *OPTIONS,
        "query",
        "table",
        "votes",
    )

    def plain(self) -> dict[str, Any]:
        """The spec's form."""
        return {self.kind: self.argument}


def _source(value: Any, path: Path, notes: Notes) -> SourceRef | None:
    if not isinstance(value, dict):
        wrong(value, "mapping", path, notes)
        return None
    if len(value) != 1:
        notes.error("OS304", "a source is one kind with its argument", path,
                    label=f"got {value_text(value)}",
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
                    label=f"got {value_text(argument)}", help="write it as text.")  # fmt: skip
        return None
    if kind == "builtin" and argument not in BUILTINS:  # files are looked for when data is opened
        notes.error("OS303", f"no built-in dataset is called `{argument}`", place, label="not known",
                    help=suggest(argument, BUILTINS) or f"use one of {', '.join(BUILTINS)}.")  # fmt: skip
        return None
    if kind not in ("builtin", "memory") and not _options_fit(kind, argument, place, notes):
        return None
    return SourceRef(kind, argument)


def _options_fit(kind: str, argument: Any, path: Path, notes: Notes) -> bool:
    try:
        read_place(argument, File(), kind)
    except SimError as error:
        known = argument if isinstance(argument, dict) else ()
        word = error.got if isinstance(error.got, str) and error.got in known else None
        notes.from_error(error, (*path, word) if word else path, "key" if word else "value")
        return False
    return True


def _source_schema() -> dict[str, Any]:
    options = {"file": {"type": "string"}, "columns": {"type": "object"}}
    place: dict[str, Any] = {
        "type": "object",
        "properties": options,
        "required": ["file"],
        "additionalProperties": False,
    }
    sign = {"type": "string", "minLength": 1, "maxLength": 1}
    text = {"anyOf": [{"type": "string"}, {"type": "number"}]}
    words = {"type": "array", "items": text, "minItems": 1}
    dialect: dict[str, Any] = dict.fromkeys(("decimal", "thousands"), sign)
    dialect["delimiter"] = sign
    dialect |= dict.fromkeys(("missing", "strip"), words)
    dialect |= {
        "skip": {"type": "integer", "minimum": 0},
        "encoding": {"type": "string"},
        "quote": {"anyOf": [sign, {"const": "none"}]},
        "header": {"anyOf": [words, {"const": "none"}]},
        "ragged": {"type": "boolean"},
    }
    name = {"type": "string", "minLength": 1}
    kinds: dict[str, Any] = {kind: {"anyOf": [name, place]} for kind in SOURCE_KINDS}
    asked = {"query": name, "table": name}
    kinds["sql"] = place | {"properties": {n: options[n] for n in ("file", "columns")} | asked}
    votes = {"votes": {"type": "object"}}
    for kind in ("jsonl", "arrow", "parquet"):
        kinds[kind] = {"anyOf": [name, place | {"properties": options | votes}]}
    kinds["jsonl"]["anyOf"][1]["properties"] |= {"header": words}
    kinds["sql"]["properties"] |= votes
    kinds["csv"] = {"anyOf": [name, place | {"properties": options | dialect | votes}]}
    kinds |= {"builtin": {"enum": sorted(BUILTINS)}, "memory": name}
    return {
        "type": "object",
        "properties": kinds,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


SOURCE = ValueReader(_source, _source_schema, SourceRef)


class DataEntry(Section):
    """Declare datasets by name, with their places and columns.

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
    name: str = not_a_word()
    source: Annotated[SourceRef, SOURCE] = word("Where the records are.")
    records: Annotated[Records, COLUMNS_READER] = word("The columns, by name.", spelled="columns")
    ingest: Literal["refuse", "enforce", "assume"] = word(
        """\
What happens to records that break the declaration of their columns, before anything is released.
    refuse   the run ends, and says which kind of defect, never whose (the default). That it was
             refused is public; with a ledger, at most ten runs may be.
    enforce  numbers are clamped to their bounds; a record with a missing entry, NaN, a foreign label or
             a cell of another dtype is dropped. How many is private: a misspelt key or dtype can
             drop everybody, and then the answers are noise. The data's curator runs `opendp-sim doctor`
             first; everybody else compares the released number of records with the one to expect
             (`expect: {records: 9000}` on the stage).
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
        """Sort the columns into their stated order."""
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
