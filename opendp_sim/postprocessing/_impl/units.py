"""Define the units of answers in texts and axes."""

from __future__ import annotations

from typing import Any


def of_distances(rows: Any, power: float, *, summed: bool = False) -> str:
    """Return the unit of p-th powers of distances between rows.

    Summed over records or not. Rescaled rows have no unit of their columns any more, and rows behind a
    projection have no columns.
    """
    of = "rescaled units" if getattr(rows, "frame", ()) else "units of the columns"
    if getattr(rows, "distortion", ()):
        of = "units of the rows"
    if power != 1.0:
        of = f"squared {of}" if power == 2.0 else f"{of} to the power {power:g}"
    return f"{of}, summed" if summed else of
