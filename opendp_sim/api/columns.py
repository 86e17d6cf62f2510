"""Read public bounds of a table's columns, numbers or dates."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opendp_sim.core.errors import ParameterError, repr_text
from opendp_sim.domains.cell import MISSING
from opendp_sim.domains.encoded import day, day_text
from opendp_sim.dsl.plan.kernel_choice import grid_bits

Bounds = Mapping[str, tuple[Any, Any]]
"""Column name to its public bounds: values outside are clamped, and missing ones cost the record.

Two dates (``"2024-01-31"``, or of the standard library or numpy) declare a column of dates: distances and
bandwidths are in days, and queries are dates too.
"""
_DATES = (str, dt.date, np.datetime64)


def bounds_of(columns: Any) -> dict[str, tuple[float, float]]:
    """Return each column's finite bounds, or refuse with the right form (OS101)."""
    found: dict[str, tuple[float, float]] = {}
    wrong = None if isinstance(columns, Mapping) and columns else _kind(columns)
    for name, pair in columns.items() if wrong is None else ():
        low, high = _ends(pair)
        if not isinstance(name, str):
            wrong = "a name that is no text"
        elif not low < high or not high - low < math.inf:
            wrong = f"{_pair_text(pair)} for {repr_text(name, 60)}"
        found[str(name)] = low, high
    if wrong is not None:
        raise ParameterError(
            "OS101",
            "columns",
            expected="each column's name to its public bounds (low, high), low below high",
            got=wrong,
            hint='for example {"age": (0, 120), "day": ("2024-01-01", "2024-12-31")}, from public '
            "knowledge; the table itself goes to `.apply(table)`.",
        )
    return found


def declared(columns: Bounds) -> dict[str, dict[str, Any]]:
    """Return the columns as a spec declares them."""
    told: dict[str, dict[str, Any]] = {}
    for name, (low, high) in bounds_of(columns).items():
        if _dated(columns[name]):
            told[name] = {"dtype": "date", "bounds": [day_text(low), day_text(high)]}
        else:
            told[name] = {"dtype": "float64", "bounds": [low, high]}
    return told


def grid(columns: Bounds) -> dict[str, Any]:
    """Return the step from columns to their grid."""
    return {"quantize": {"bits": grid_bits(len(bounds_of(columns)))}}


def _ends(pair: Any) -> tuple[float, float]:
    """Return two bounds as numbers, dates as days, NaN if invalid."""
    if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2:
        return math.nan, math.nan
    if _dated(pair):
        low, high = (day(end) for end in pair)
        return (math.nan, math.nan) if MISSING in (low, high) else (float(low), float(high))
    if any(isinstance(end, (*_DATES, bytes)) for end in pair):
        return math.nan, math.nan
    return _float(pair[0]), _float(pair[1])


def _kind(columns: Any) -> str:
    return "no column" if isinstance(columns, Mapping) else type(columns).__name__[:60]


def _pair_text(pair: Any) -> str:
    """Return the words for wrong bounds.

    A tuple's values are shown. Other values may be data: their type is named.
    """
    if isinstance(pair, tuple):
        return repr_text(pair, 60)
    return f"{type(pair).__name__[:60]} that is no (low, high)"


def _dated(pair: Any) -> bool:
    return all(isinstance(end, _DATES) for end in pair)


def _float(value: Any) -> float:
    """Return a number as a float, and NaN for what is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
