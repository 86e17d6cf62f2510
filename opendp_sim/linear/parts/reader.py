"""What can be asked of a released linear model: the logits of public queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays
from opendp_sim.core.linear import public_product
from opendp_sim.linear.parts.descent import LOGIT, Descent, Seen
from opendp_sim.linear.parts.scaled import SIDE
from opendp_sim.linear.parts.whitening import whitened
from opendp_sim.spaces.rows import as_rows

__all__ = ["LinearReader"]


@dataclass(frozen=True)
class LinearReader:
    """Reads a release of ``linear_model``: every query is seen as a record would be."""

    descent: Descent
    labels: tuple[str | int, ...]

    def scores(self, released: Arrays, queries: Any) -> NDArray[np.float64]:
        """Return the logit of each class, shape (q, L)."""
        values = np.asarray(getattr(queries, "values", queries), dtype=np.float64)
        rows = self.descent.scaled.of_queries(values)
        if self.descent.whiten:
            rows = whitened(rows, np.asarray(released["whitening"], dtype=np.int64))
        weights = np.asarray(released["weights"], dtype=np.float64) * (LOGIT / SIDE)
        return public_product(rows.astype(np.float64), weights)

    def without_noise(self, rows: Any) -> Arrays:
        """Return the arrays that the same descent leaves without noise: for public data only."""
        held = as_rows(rows)
        labels = np.zeros(0, dtype=np.int64) if held.labels is None else held.labels
        seen = Seen(self.descent.scaled(held.values), labels.astype(np.int64))
        flat = self.descent.run(seen, noise=lambda cells, _: cells)
        width = self.descent.scaled.width
        first = width * width if self.descent.whiten else 0
        return {
            "whitening": flat[:first].reshape(-1, width),
            "weights": flat[first:].reshape(width, -1),
        }
