"""Convert raw blocks to the declared types.

Every column by one function. What a single cell becomes depends on that cell alone, never on the rest
of its block, so that a source cut into other blocks is the same source. A cell that cannot be read
becomes NaN in a real column, ``MISSING`` in an integer column, -1 in a category and an empty text in a
text column: the gate then refuses it or drops its record.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError, SimError
from opendp_sim.domains.cell import MISSING, listed, real
from opendp_sim.domains.encoded import day
from opendp_sim.domains.normalise import as_array, normal, unmasked
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.blocks import Block

ANY = "surrogateescape"
"""Any bytes are text, and other bytes another text: one odd cell may not stop the run."""


def conform(raw: Mapping[str, Any], records: Records) -> Block:
    """Return the declared columns of ``raw`` in their dtypes.

    Each where that is safe. A column whose dtype cannot be converted without loss of meaning is handed
    on as it is, for the gate to refuse.

    Raises:
        DataError (OS602): a declared column is missing, or cannot be read, or columns differ in length.
    """
    block = {}
    for column in records.columns:
        if column.name not in raw:
            raise missing_column(column.name)
        with unquoted(column.name):
            held = as_array(raw[column.name])
            if not held.ndim:
                raise missing_column(column.name, "one cell a record")
            block[column.name] = normal(held, column)
    check_lengths(block)
    return block


def check_lengths(block: Mapping[str, Any]) -> None:
    """Refuse columns of several lengths (OS602)."""
    if len({len(values) for values in block.values()}) > 1:
        raise DataError(
            "OS602", "records", expected="columns of one length", got="several lengths",
            hint="every column needs one entry a record.",
        )  # fmt: skip


def missing_column(name: str, expected: str = "the column") -> DataError:
    """Return the refusal of a source without a declared column."""
    return DataError(
        "OS602", f"column {name}", expected=expected, got="no such column in the source",
        hint="name the source's columns in `columns`, or map them in the source's own options; if "
        "another sign than a comma stands between the cells of a .csv, write `delimiter`.",
    )  # fmt: skip


def no_arrow_type(name: str) -> DataError:
    """Return the refusal of a column type that Arrow lacks."""
    return DataError(
        "OS602", f"column {name}", expected="a column of a type that Arrow has", got="another",
        hint="convert it, for example to float64 or text.",
    )  # fmt: skip


@contextmanager
def unquoted(name: str) -> Iterator[None]:
    """Replace a library's error, which could quote a cell (OS602)."""
    try:
        yield
    except (SimError, GeneratorExit, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException:  # noqa: BLE001 - a panic in Rust is no Exception
        no_arrow_type(name).alone()


# --------------------------------------------------------------------------------------------------
# Times on a circle and places on a plane: two numbers whose straight distances are those that are meant.

PERIODS = {"hour": 24.0, "weekday": 7.0}
"""What a column on a circle may be of, and how much of it is one turn."""
_A_DEGREE = 6371.0088 * math.pi / 180.0
"""Kilometres of a degree of latitude, of the mean sphere."""


@dataclass(frozen=True)
class PlaneColumn:
    """Make two numbers of a time, or of latitude and longitude.

    Attributes:
        kind: ``hour`` or ``weekday`` (of UTC; Monday is 0), a place on a circle of 24 hours or 7 days; or
            ``km``, kilometres east and north of a public place.
        stored: what the file calls the time, or latitude and longitude.
        at: the public place's latitude and longitude in degrees.
    """

    kind: str
    stored: tuple[str, ...]
    at: tuple[float, float] = (0.0, 0.0)

    def inner(self, name: str) -> tuple[Column, ...]:
        """Return the columns that are read in place of this one."""
        if self.kind == "km":
            return Column(f"{name} latitude", "float64"), Column(f"{name} longitude", "float64")
        return (Column(f"{name} {self.kind}", "date"),)

    def placed(self, name: str, raw: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return two numbers a record, ``(n, 2)``, by its own cells, or NaN."""
        columns = self.inner(name)
        if self.kind == "km":
            north, east = (normal(as_array(raw[c.name]), c) for c in columns)
            narrow = _A_DEGREE * math.cos(math.radians(self.at[0]))
            north = np.where(abs(north) <= 90.0, north, np.nan)  # beyond it is no latitude
            around = (east - self.at[1] + 180.0) % 360.0 - 180.0  # across the date line too
            return np.stack([around * narrow, (north - self.at[0]) * _A_DEGREE], axis=1)
        values, holes = unmasked(as_array(raw[columns[0].name]))
        turns = _turns(values, self.kind)
        if turns is None:
            return np.zeros((len(values), 2), dtype="V1")
        if holes is not None:
            turns = np.where(holes, np.nan, turns)
        radius = PERIODS[self.kind] / (2 * math.pi)
        angles = (turns * (2 * math.pi)).tolist()
        # one by one: what numpy's vectors make of a number may depend on its place among them
        found = [(radius * math.cos(a), radius * math.sin(a)) for a in angles]
        return np.array(found, dtype=np.float64).reshape(len(values), 2)


def _turns(values: NDArray[Any], kind: str) -> NDArray[np.float64] | None:
    """Return each time as a part of a turn, None without times."""
    if values.dtype.kind == "M":
        seconds = values.astype("M8[s]").astype(np.int64)
        gone = np.isnat(values)
        days = (seconds // 86_400 + 3) % 7
        found = days / 7.0 if kind == "weekday" else (seconds % 86_400) / 86_400.0
        return np.where(gone, np.nan, found)
    if values.ndim == 1 and values.dtype.kind in "OUT":
        read: Callable[[object], float] = _hour if kind == "hour" else _weekday
        return np.array([read(cell) for cell in listed(values)], dtype=np.float64) / PERIODS[kind]
    return None


def _hour(cell: object) -> float:
    """Return the hour of a time or number, or NaN."""
    found = math.nan
    try:
        if isinstance(cell, str):
            cell = _time_of(str.__str__(cell).strip())
        if isinstance(cell, np.datetime64):
            cell = cell.astype("M8[us]").item()
        if isinstance(cell, dt.datetime) and cell.tzinfo is not None:
            cell = cell.astimezone(dt.UTC)
        if isinstance(cell, dt.datetime | dt.time):
            found = cell.hour + cell.minute / 60 + cell.second / 3600
        else:
            found = real(cell)
    except Exception:  # noqa: BLE001 - pandas' NaT is a datetime whose methods raise; and other objects
        found = math.nan
    return found if 0.0 <= found < 24.0 else math.nan


def _time_of(text: str) -> object:
    """Return the number or the ISO time of a text."""
    number = real(text)
    if not math.isnan(number):
        return number
    return dt.time.fromisoformat(text) if len(text) < 10 else dt.datetime.fromisoformat(text)


def _weekday(cell: object) -> float:
    """Return the weekday of a date or number, Monday 0, or NaN."""
    number = day(cell)
    if number != MISSING:
        return float((number + 3) % 7)
    found = real(cell)
    return found if 0.0 <= found < 7.0 else math.nan
