"""View grid rows as centred, normalised rows, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.row_products import exact_dtype, squared_norms
from opendp_sim.core.errors import DataError
from opendp_sim.domains.rows import GridRows, as_rows

SIDE = 2048
"""Steps in the unit length of normalised rows: products stay below 2**24, exact in float32."""
_BLOCK = 2**18
"""Cells that are seen at a time: they stay in the processor's cache."""


@dataclass(frozen=True)
class Lens:
    """View records and queries by one public function of a row.

    Lemma 1 of ``ind_knn.md``. Operations are subtraction, multiplication, division, square root and
    rounding, each correctly rounded elementwise, and exact sums: nothing depends on other rows.

    Args:
        domain: the grid that rows come from.
        normalise: whether rows are scaled to ``SIDE`` steps of length.
        centre: public integers, shape (d,), subtracted first.
    """

    domain: GridRows
    normalise: bool
    centre: NDArray[np.float64]

    @classmethod
    def plain(cls, domain: GridRows, *, normalise: bool) -> Lens:
        """Return the lens that is centred on the origin."""
        return cls(domain, normalise, np.zeros(domain.width))

    @property
    def unit(self) -> float:
        """Real length of one step."""
        return 1.0 / SIDE if self.normalise else self.domain.unit

    @property
    def norm(self) -> float:
        """Bound on the L2 norm of a seen row, in steps."""
        if self.normalise:
            return normalised_norm(self.domain.width)
        low, high = (np.broadcast_to(end, self.domain.width) for end in self._ends())
        # Wherever inside its bounds the centre will be, a coordinate stays below their distance.
        far = np.maximum(np.maximum(np.abs(low), np.abs(high)), high - low)
        return float(np.sqrt(np.square(far, dtype=np.float64).sum()))

    def _ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        low, high = self.domain.lower, self.domain.upper
        return np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)

    @property
    def largest(self) -> float:
        """Bound on a seen row's coordinates, in steps."""
        if self.normalise:
            return float(SIDE)
        low, high = (np.broadcast_to(end, self.domain.width) for end in self._ends())
        return float(np.maximum(np.maximum(np.abs(low), np.abs(high)), high - low).max(initial=0))

    def dtype(self, where: str) -> type[np.floating[Any]]:
        """Return the float of exact row products, or refuse the grid."""
        raw = float(np.sqrt(self.domain.width)) * 2 * self.domain.magnitude
        exact_dtype(raw, raw, where)  # the squared norms below
        return exact_dtype(self.norm, self.norm, where)

    def see(self, values: NDArray[Any], dtype: type[np.floating[Any]]) -> NDArray[Any]:
        """Return the seen rows, shape (n, d), integer-valued in ``dtype``."""
        out = np.empty(values.shape, dtype=dtype)
        step = max(1, _BLOCK // max(values.shape[1], 1))
        room = np.empty((min(step, len(values)), values.shape[1]))
        for start in range(0, len(values), step):
            part = values[start : start + step]
            block = np.subtract(part, self.centre, out=room[: len(part)])
            if self.normalise:
                length = np.sqrt(squared_norms(block))
                scale = SIDE / np.where(length == 0.0, np.inf, length)
                block *= scale[:, None]
                np.rint(block, out=block)
            out[start : start + step] = block
        return out

    def see_queries(self, values: NDArray[Any], dtype: type[np.floating[Any]]) -> NDArray[Any]:
        """Return public queries in the view, far ones pulled to the grid."""
        if not self.normalise:
            values = np.clip(values, *self._ends())
        return self.see(values, dtype)

    def centred_on(self, queries: NDArray[Any]) -> Lens:
        """Return the view centred on public queries' mean."""
        mean = np.clip(np.rint(queries.mean(axis=0)), *self._ends())
        return Lens(self.domain, self.normalise, mean)


def normalised_norm(width: int) -> float:
    """Bound a normalised row's L2 norm in steps."""
    return SIDE * (1 + 1e-9) + math.sqrt(width) / 2


def grid_queries(domain: GridRows, data: Any) -> NDArray[np.float64]:
    """Return public queries in steps (m, d), or refuse them."""
    values = np.asarray(as_rows(data).values)
    fits = values.ndim == 2 and values.shape[1] == domain.width and values.dtype.kind in "fiu"
    if not fits or not np.isfinite(values).all():
        raise DataError(
            "OS607", "queries", expected=f"finite numbers of shape (m, {domain.width})",
            got="another shape, dtype or value", hint="send rows of the mechanism's own input space.",
        )  # fmt: skip
    limit = float(domain.magnitude)
    return np.clip(np.rint(values.astype(np.float64)), -limit, limit)
