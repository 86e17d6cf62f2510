"""How a slice sketch is built from rows and read after its release.

Proofs: ``slice_sketch.md``. Reading is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, Counted, DistanceReading, Linear, Sliced
from opendp_sim.core.directions import spread_of_blocks
from opendp_sim.core.drawn import AT_ONCE, Drawn
from opendp_sim.core.grid import chunks, chunks_in_room
from opendp_sim.core.memory import check_memory
from opendp_sim.core.on_use import special
from opendp_sim.sketches.distances.parts.axes import fits
from opendp_sim.sketches.distances.parts.slices import Slices
from opendp_sim.sketches.parts.classes import Classes
from opendp_sim.spaces.rows import GridRows, as_rows, floats_of

__all__ = ["SliceReader"]

_KEY = "slice_sketch"
_TOGETHER = 256
"""Directions that share one chunk: chunks are then long enough for the counting."""
_CELLS = 2**22
"""Most cells of a histogram of levels that is held at once."""
_DITHER = 2.0**-16
"""Of a level: how far from uniform a dither is."""


@dataclass(frozen=True)
class SliceReader(Classes):
    """The public directions and thresholds of one bound sketch: builds it, and reads a release of it."""

    slices: Slices
    per_label: bool

    exponents = "none: it adds up l2 distances"
    power = 1.0

    @classmethod
    def bound(
        cls, rows: GridRows, directions: int, thresholds: int, seed: int, *, per_label: bool
    ) -> SliceReader:
        """Return the reader on this grid; many directions are drawn later."""
        slices = Slices(rows, directions, thresholds, seed)
        slices.check()
        count, width = slices.count, rows.width
        needed = 16 * width * count + 8 * min(count, width) ** 2
        check_memory(needed, _KEY, "the directions", "`directions`, or the columns")
        made = cls(slices, per_label)
        check_memory(8 * made.cells, _KEY, "the sketch", "`directions`, `thresholds` or the labels")
        fits(_KEY, max(made.multipliers[0], made.half))
        if count * width * min(count, width) <= 8 * AT_ONCE:
            _ = slices.projection
        return made

    @property
    def rows(self) -> GridRows:
        """The grid."""
        return self.slices.rows

    @property
    def cells(self) -> int:
        """Cells of the sums of slices."""
        return self.classes * self.slices.count * self.slices.thresholds

    @property
    def matrices(self) -> Drawn:
        """The public matrix, for the release's fingerprint."""
        nbytes = 8 * (self.rows.width + 1) * self.slices.count
        return Drawn(nbytes, lambda: (self.slices.projection.folded,))

    # --- weights --------------------------------------------------------------------------------

    @property
    def middle(self) -> int:
        """The middle of what squared lengths can be: only what is above or below it is added."""
        return (self.slices.longest + self.slices.least) // 2

    @property
    def half(self) -> int:
        """How far from it a squared length can be."""
        return max(self.slices.longest - self.middle, self.middle - self.slices.least, 1)

    @cached_property
    def multipliers(self) -> tuple[int, int]:
        """The integers u_0 of the count and u_1 of the slices (Lemma 4); squared lengths have 1."""
        longest, half = self.slices.longest, self.half
        count = math.sqrt(self.middle + longest) * math.sqrt(half)
        return max(1, round(count)), max(1, round(math.sqrt(2 * half)))

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows, slices, classes = as_rows(data), self.slices, self.classes
        labels = rows.labels if self.per_label else None
        sizes = np.bincount(
            np.zeros(len(rows), dtype=np.int64) if labels is None else labels, minlength=classes
        )
        u0, u1 = self.multipliers
        cells = out[: self.cells].reshape(classes, slices.count, slices.thresholds)
        total, squares = out[self.cells :].reshape(2, classes)
        room = 1 << (2 * slices.farthest).bit_length()
        together = max(1, min(_TOGETHER, _CELLS // (classes * room)))
        matrix = slices.projection.workspace()
        for start in range(0, slices.count, together):
            some = slice(start, min(start + together, slices.count))
            counts = self._levels(rows.values, labels, matrix[some], some, room)
            squares += (counts * slices.squares).sum(axis=(0, 2))
            above = counts[:, :, :0:-1].cumsum(axis=2)[:, :, ::-1].transpose(1, 0, 2)
            away = sizes[:, None] * slices.shares
            cells[:, some] += u1 * (slices.fine * above - away[:, None])
        total += u0 * sizes
        squares -= self.middle * sizes

    def _levels(
        self,
        values: NDArray[np.float64],
        labels: NDArray[np.int64] | None,
        matrix: NDArray[np.float64],
        some: slice,
        room: int,
    ) -> NDArray[np.int64]:
        """Count the records at each level of some directions: shape (directions, L, T + 1)."""
        slices = self.slices
        raw = np.zeros((len(matrix), self.classes, room), dtype=np.int64)
        centre = slices.centre.values() if slices.centre.moved else None
        for part, held in chunks_in_room(len(values), self.rows.width, len(matrix)):
            own = None if labels is None else labels[part]
            near = values[part] if centre is None else values[part] - centre
            slices.projection.count(near, own, raw, matrix=matrix, room=held, modulus=room)
        # Ids carry `base`, modulo `room`: the levels from H below the middle one to H above it.
        half, far = slices.thresholds // 2, slices.farthest
        first = slices.projection.base[some] + half - far
        places = (first[:, None] + np.arange(2 * far + 1)) & (room - 1)
        found = np.take_along_axis(raw, places[:, None], axis=2)
        low, high = far - half, far + half
        out = found[:, :, low : high + 1].copy()
        out[:, :, 0] += found[:, :, :low].sum(axis=2)
        out[:, :, -1] += found[:, :, high + 1 :].sum(axis=2)
        return out

    # --- reading --------------------------------------------------------------------------------

    def count_factor(self) -> float:
        """Return the deviation of the released number of records per unit of a cell's."""
        return 1.0 / self.multipliers[0]

    def counted(self, released: Arrays) -> Counted:
        """Return the released number of records per class."""
        sizes = np.asarray(released["total"], dtype=np.float64) / self.multipliers[0]
        return Counted(sizes, self.count_factor())

    @cached_property
    def _unit(self) -> float:
        """What a unit of squared length is in data units (Lemma 3)."""
        slices = self.slices
        level = math.sqrt(math.pi / 2) * self.rows.unit / slices.scale
        return level / slices.count / slices.fine**2

    def reading(self, released: Arrays, p: float | None, alpha: float) -> DistanceReading:
        """Return the expanded squares, looked up by level."""
        del p, alpha  # only the l2 distance, and no far ends
        slices, sizes = self.slices, self.counted(released).sizes
        cells = np.asarray(released["slices"], dtype=np.float64) / self.multipliers[1]
        tables = np.zeros((*cells.shape[:2], slices.thresholds + 1))
        np.cumsum(cells, axis=2, out=tables[:, :, 1:])
        tables *= slices.fine
        tables -= (cells * slices.shares).sum(axis=2)[:, :, None]
        fixed = np.asarray(released["squares"], dtype=np.float64)
        return DistanceReading(1.0, lambda queries: self._read(tables, fixed, sizes, queries))

    def _read(
        self,
        tables: NDArray[np.float64],
        fixed: NDArray[np.float64],
        sizes: NDArray[np.float64],
        queries: Any,
    ) -> Linear:
        """Look up every level of a query: O(k d) a query, and O(k) a class."""
        slices, values = self.slices, floats_of(queries)
        crossed, (own, far) = np.zeros((self.classes, len(values))), np.zeros((2, len(values)))
        flat, width = tables.reshape(self.classes, -1), slices.thresholds + 1
        starts = np.arange(slices.count)[:, None] * width
        for part in chunks(len(values), slices.count):
            asked = np.floor(slices.projection.phases(values[part] - slices.centre.values()))
            levels = np.clip(asked, 0, slices.thresholds)
            far[part] = np.abs(asked - levels).sum(axis=0)
            where = levels.astype(np.int64)
            own[part] = slices.squares[where].sum(axis=0)
            where += starts
            for out, table in zip(crossed, flat, strict=True):
                out[part] = table[where].sum(axis=0)
        (u0, u1), unit = self.multipliers, self._unit
        count = self.middle + own + far * slices.fine**2
        sums = fixed[:, None] + sizes[:, None] * count - 2 * crossed
        variance = np.square(count / u0) + 4 * own / u1**2 + 1.0
        return Linear(sums * unit, variance * unit**2, count * unit / u0**2, self.bias(None))

    def spread(self, p: float | None, alpha: float) -> float | None:
        """Return the deviation at a query as near to the centre as rows are, per unit of a cell's."""
        del alpha
        if p is not None:
            return None
        (u0, u1), own = self.multipliers, float(self.slices.longest_asked)
        return self._unit * math.sqrt(((self.middle + own) / u0) ** 2 + 4 * own / u1**2 + 1)

    def bias(self, p: float | None) -> float:
        """Bound what clipping may cost, three deviations above its mean, and dithers, per record."""
        del p
        slices = self.slices
        dither = (_DITHER * slices.count + 0.5) * self._atom
        if slices.ends < 4.0 or slices.length * slices.bound <= slices.thresholds / 2:
            return dither
        tail, density = float(special.ndtr(-4.0)), math.exp(-8.0) / math.sqrt(2 * math.pi)
        mean, square = 2 * (density - 4 * tail), 2 * (17 * tail - 4 * density)
        cut = mean + 3 * math.sqrt(square / slices.count)
        return dither + math.sqrt(math.pi / 2) * slices.bound * self.rows.unit * cut

    @cached_property
    def sliced(self) -> Sliced:
        """The deviation over the draw of directions and dithers (Lemma 3)."""
        slices, given = self.slices, self.rows.distortion
        relative = spread_of_blocks(self.rows.width, slices.count)
        if given and given[0] == 2:  # projected before: half of a square's error
            relative = math.hypot(relative, given[1] / 2)
        return Sliced(relative, self._atom * math.sqrt(slices.count) / 2)

    @property
    def _atom(self) -> float:
        """The least change of a record's distance: one level of one direction, in data units."""
        return self._unit * self.slices.fine**2

    @property
    def expected(self) -> dict[str, float]:
        """Facts for the plan."""
        return {
            "distance deviation per cell deviation, at the norm bound": self.spread(None, 0.0)
            or 0.0,
            "distance bias per record, at most": self.bias(None),
            "relative deviation of the directions": self.sliced.relative,
        }
