"""The ``columns`` of a dataset: what each holds, declared from public knowledge."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from opendp_sim.core.errors import SimError, SpecError
from opendp_sim.dsl.diagnostic import Notes, Path, nearest
from opendp_sim.dsl.grammar.reading import named
from opendp_sim.dsl.grammar.section import Reader, Refusal, Section, own, word
from opendp_sim.spaces.cell import MISSING
from opendp_sim.spaces.column import DTYPES
from opendp_sim.spaces.encoded import day, day_text
from opendp_sim.spaces.records import Column, Records

__all__ = ["COLUMNS", "ColumnWords"]


class ColumnWords(Section):
    """A column: `dtype: "array[f32, 8]"` (or f64, i32, i64, u8) is a vector of 8 numbers a record."""

    short: ClassVar[str] = "dtype"
    name: str = own()
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
        """The bounds as numbers: dates as days."""
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
                error = SpecError(
                    error.code, error.where, expected=error.expected, got=error.got,
                    hint=f"did you mean `{meant}`? A column of vectors is `array[{self.dtype}, 8]`.",
                )  # fmt: skip
            elif part == "dtype" and (near := nearest(self.dtype.partition("[")[0], DTYPES)):
                error = SpecError(
                    error.code, error.where, expected=error.expected, got=error.got,
                    hint=f"{near} {error.hint}",
                )  # fmt: skip
            notes.from_error(error, (*path, part) if part in self.model_fields_set else path)


_MEANT = {"f32": "float64", "f64": "float64", "i32": "int64", "i64": "int64", "u8": "int64"}
"""Scalars that were written with an entry's name of an array."""
_NAMED = named(ColumnWords, Refusal("`columns` is empty", "declare each column that is used.",
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


COLUMNS = Reader(_records, _NAMED.schema, ColumnWords)
