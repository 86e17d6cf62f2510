"""Dates and truth values as whole numbers: cell by cell, and never an exception."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opendp_sim.spaces.cell import MISSING
from opendp_sim.spaces.encoded import day, day_text, days, truth, truths


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
    ("cell", "wanted"),
    [(True, 1), ("TRUE", 1), (" false ", 0), ("1.0", 1), (0.0, 0), (np.int8(1), 1), (np.False_, 0),
     ("yes", MISSING), (2, MISSING), (0.5, MISSING), (None, MISSING), ([1], MISSING), (pd.NA, MISSING)],
)  # fmt: skip
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
