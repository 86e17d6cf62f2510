"""Describe each column's zero and unit in the data's own units.

A frame is a tuple of pairs ``(c, h)``, one for all columns or one a column: a value ``z`` of the rows
stands for ``c + h z`` of the data. The empty frame means that nothing was rescaled.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Frame = tuple[tuple[float, float], ...]


def middles_and_units(frame: Frame, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ``c`` and ``h`` of every column, each of shape (width,)."""
    pairs = np.array(frame or ((0.0, 1.0),), dtype=np.float64)
    whole = np.broadcast_to(pairs, (width, 2))
    return whole[:, 0].copy(), whole[:, 1].copy()


def composed(outer: Frame, inner: Frame, width: int) -> Frame | None:
    """Return the frame of ``inner`` and then ``outer``, None beyond floats."""
    first, unit = middles_and_units(outer, width)
    then, scale = middles_and_units(inner, width)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        pairs = np.stack([first + unit * then, unit * scale], axis=1)
    if not np.isfinite(pairs).all() or (pairs[:, 1] <= 0.0).any():
        return None
    found = tuple((float(c), float(h)) for c, h in pairs)
    return found[:1] if len(set(found)) == 1 else found


def frame_text(frame: Frame) -> str:
    """Describe a frame in a few words, the empty frame in none."""
    if not frame:
        return ""
    middles, units = {c for c, _ in frame}, {h for _, h in frame}
    if middles == {0.0} and units == {1.0}:
        return ", in data units as declared"
    moved = "" if middles == {0.0} else f" about {_span(middles)}"
    if len(units) == 1:
        return f", one unit is {min(units):.6g} of the data{moved}"
    return f", each column in its own unit, {min(units):.6g} to {max(units):.6g} of the data"


def _span(values: set[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.6g}" if math.isclose(low, high) else f"{low:.6g} to {high:.6g}"
