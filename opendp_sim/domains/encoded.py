"""Encode dates (days since 1970-01-01) and truths (0, 1) by cell (``io/ingest.md``)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.domains.cell import MISSING, canonical_cell, listed

ENCODED = ("bool", "date")
"""Declared dtypes that are held as int64."""
_EPOCH = dt.date(1970, 1, 1).toordinal()
_LONGEST = 40
"""Characters of a date or time written as ISO 8601."""
_CELLS, _FAR = "OUT", 2**40
"""Kinds of array whose cells are read one by one; and the most years or months."""
_DAYS = {"W": 7, "D": 1, "generic": 1}
_SECONDS = ("s", "ms", "us", "ns", "ps", "fs", "as")
_A_DAY = {"h": 24, "m": 1_440} | {u: 86_400 * 1_000**at for at, u in enumerate(_SECONDS)}
"""Units of ``datetime64`` of a day or more, in days; and how many of a smaller one are a day."""
_TRUTHS = {"true": 1, "false": 0, "1": 1, "0": 0, "1.0": 1, "0.0": 0}


def days(values: NDArray[Any]) -> NDArray[Any]:
    """Return dates as days since 1970-01-01, ``MISSING`` where there is none.

    ``datetime64`` of any unit and cells (dates, times, ISO text) are read; the time of day is left out,
    and a time with a zone is that of UTC. Any other dtype, and units of which 64 bits hold no day (``fs``
    and ``as``), come back as a dtype that the gate refuses.
    """
    kind = values.dtype.kind
    if kind == "M" and _A_DAY.get(np.datetime_data(values.dtype)[0], 1) < 2**63:
        return _of_ticks(values)
    if values.ndim == 1 and kind in _CELLS:
        return np.fromiter(map(day, listed(values)), np.int64, len(values))
    return np.zeros(values.shape, dtype="V1")


def _of_ticks(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the days of ``datetime64``, rounded down."""
    unit, each = np.datetime_data(values.dtype)
    ticks = values.astype(np.int64)
    if unit in ("Y", "M"):
        near = np.clip(ticks, -(_FAR // each), _FAR // each) * each
        found = near.astype(f"M8[{unit}]").astype("M8[D]").astype(np.int64)
    elif unit in _DAYS:
        each *= _DAYS[unit]
        found = np.clip(ticks, -(2**62 // each), 2**62 // each) * each
    elif each == 1:
        found = ticks // _A_DAY[unit]
    else:  # several hours or less at once: products that could leave int64, in Python's integers
        exact = (tick * each // _A_DAY[unit] for tick in ticks.ravel().tolist())
        clamped = [min(max(number, -(2**62)), 2**62) for number in exact]
        found = np.array(clamped, dtype=np.int64).reshape(ticks.shape)
    return np.where(ticks == MISSING, MISSING, found)


def day(cell: object) -> int:
    """Return one cell's days since 1970-01-01, or ``MISSING``."""
    try:
        if isinstance(cell, str):
            cell = _read(str.__str__(cell).strip())
        if isinstance(cell, np.datetime64):
            return int(days(np.array([cell]))[0])
        if isinstance(cell, dt.datetime):
            if cell.tzinfo is not None:
                cell = cell.astimezone(dt.UTC)
            return cell.toordinal() - _EPOCH
        return cell.toordinal() - _EPOCH if isinstance(cell, dt.date) else MISSING
    except Exception:  # noqa: BLE001 - pandas' NaT is a datetime whose methods raise; and other objects
        return MISSING


def day_text(number: float) -> str:
    """Return a number of days since 1970-01-01 as an ISO date."""
    return dt.date.fromordinal(int(number) + _EPOCH).isoformat()


def _read(text: str) -> dt.date | None:
    if not 10 <= len(text) <= _LONGEST:
        return None
    return dt.date.fromisoformat(text) if len(text) == 10 else dt.datetime.fromisoformat(text)


def truths(values: NDArray[Any]) -> NDArray[Any]:
    """Return truth values, also numbers and texts, as 0, 1 or ``MISSING``."""
    kind = values.dtype.kind
    if kind == "b":
        return values.astype(np.int64)
    if kind in "iuf":
        return np.where(values == 1, 1, np.where(values == 0, 0, MISSING))
    if values.ndim == 1 and kind in _CELLS:
        return np.fromiter(map(truth, listed(values)), np.int64, len(values))
    return np.zeros(values.shape, dtype="V1")


def truth(cell: object) -> int:
    """Return 0 or 1 for one cell, or ``MISSING``."""
    value = canonical_cell(cell)
    if isinstance(value, str):
        return _TRUTHS.get(value.lower(), MISSING) if len(value) <= _LONGEST else MISSING
    return int(value) if value in (0, 1) else MISSING
