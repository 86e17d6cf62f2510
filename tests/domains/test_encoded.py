"""Dates and truth values as whole numbers: cell by cell, and never an exception."""

from __future__ import annotations

import datetime as dt
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opendp_sim.core.errors import DataError
from opendp_sim.domains.cell import MISSING
from opendp_sim.domains.encoded import day, day_text, days, truth, truths
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.gate import gated_blocks
from opendp_sim.io.protocol import from_arrays


@pytest.mark.parametrize(
    ("cell", "date"),
    [
        ("2024-02-29", "2024-02-29"),
        (" 2024-03-01T02:00:00+05:00 ", "2024-02-29"),
        ("2024-03-01 23:59:59.999", "2024-03-01"),
        (dt.date(1969, 12, 31), "1969-12-31"),
        (dt.datetime(2024, 3, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=5))), "2024-02-29"),
        (pd.Timestamp("1969-12-31 23:00"), "1969-12-31"),
        (np.datetime64("2024-03-01T10"), "2024-03-01"),
        (dt.datetime.max.replace(tzinfo=dt.timezone(-dt.timedelta(hours=5))), None),
        *((odd, None) for odd in ("2024-02-30", "20240229", "x" * 99, "", b"2024-02-29", 5, None)),
        *((odd, None) for odd in (pd.NaT, np.datetime64("NaT"), float("nan"), [1], object())),
    ],
    ids=lambda v: "object" if type(v) is object else f"{v!s:.30}",
)
def test_a_day(cell: Any, date: str | None) -> None:
    wanted = MISSING if date is None else day(date)
    assert day(cell) == wanted
    column = np.empty(2, dtype=object)
    column[:] = [cell, "2000-01-01"]
    assert days(column).tolist() == [wanted, 10957]
    if date is not None:
        assert day_text(wanted) == date


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "s", "ns"])
def test_days_of_every_unit(unit: str) -> None:
    near = np.array(["1969-12-31", "2024-01-01", "NaT"], dtype=f"M8[{unit}]")
    assert days(near)[2] == MISSING
    assert np.array_equal(days(near)[:2], near[:2].astype("M8[D]").astype(np.int64))
    ends = np.array([2**63 - 1, -(2**63) + 1]).astype(f"M8[{unit}]")
    far = days(ends)
    assert far[0] > 0 > far[1]


@pytest.mark.parametrize(
    ("unit", "each"),
    [
        ("1000D", 1000),
        ("1000000000W", 7 * 10**9),
        ("36h", 1.5),
        ("7s", 7 / 86400),
        ("2147483647D", 2**31 - 1),
        ("ps", 1 / 86400e12),
        ("1000000ps", 1 / 86400e6),
        ("25ns", 25 / 86400e9),
    ],
)
def test_days_of_several_units_at_once(unit: str, each: float) -> None:
    """Exact where numpy holds the days, and clamped behind: never a number that wrapped."""
    ticks = [0, 1, -1, 5, -7, 2**40 + 1, -(2**40) - 1, 2**62, -(2**62), 2**63 - 1, -(2**63) + 1]
    found = days(np.array(ticks).astype(f"M8[{unit}]")).tolist()
    assert np.all(np.diff(np.array(found)[np.argsort(ticks)]) >= 0)
    for tick, day_ in zip(ticks, found, strict=True):
        exact = math.floor(tick * Fraction(each).limit_denominator(10**18))
        assert day_ == exact if abs(exact) < 2**61 else abs(day_) >= 2**60 and day_ * tick > 0


def test_days_of_years_and_months_by_the_hundred_million() -> None:
    for unit in ("100000000Y", "2147483647Y", "2147483647M", "12M", "7Y"):
        ticks = [-(2**63) + 1, -(2**50), -(2**31), -1, 0, 1, 2**31, 2**50, 2**63 - 1]
        found = days(np.array(ticks).astype(f"M8[{unit}]"))
        assert np.all(np.diff(found) >= 0), unit
        assert found[3] < found[4] == 0 < found[5]
    assert days(np.array([3], dtype="M8[12M]")).tolist() == [day("1973-01-01")]
    assert days(np.array(["2261-12-31"], dtype="M8[ns]")).tolist() == [day("2261-12-31")]


@pytest.mark.parametrize("unit", ["as", "fs", "1000as", "7fs"])
def test_units_in_which_64_bits_hold_no_day_are_no_dates(unit: str) -> None:
    array = np.array([1, 0]).astype(f"M8[{unit}]")
    assert days(array).dtype.kind == "V"
    records = Records((Column("d", "date"),))
    for some in (array, array[:0]):
        for policy in ("enforce", "refuse"):
            with pytest.raises(DataError) as told:
                list(gated_blocks(from_arrays(records, {"d": some}), policy)())
            assert told.value.code == "OS602"
    assert day(array[0]) == MISSING


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        (True, 1),
        ("TRUE", 1),
        (" false ", 0),
        ("1.0", 1),
        (0.0, 0),
        (np.int8(1), 1),
        (np.False_, 0),
        ("yes", MISSING),
        (2, MISSING),
        (0.5, MISSING),
        (None, MISSING),
        ([1], MISSING),
        (pd.NA, MISSING),
    ],
)
def test_a_truth(cell: Any, wanted: int) -> None:
    assert truth(cell) == wanted
    column = np.empty(2, dtype=object)
    column[:] = [cell, True]
    assert truths(column).tolist() == [wanted, 1]


def test_arrays_that_hold_neither_are_refused_by_their_dtype() -> None:
    assert truths(np.array([0.0, 1.0, np.nan, 2.0])).tolist() == [0, 1, MISSING, MISSING]
    for array in (np.array([1j]), np.array([b"1"]), np.array([], dtype="m8[s]")):
        assert truths(array).dtype.kind == days(array).dtype.kind == "V"
    assert days(np.array([1, 2])).dtype.kind == "V"
