"""What can be asked of a released linear model: the logits of public queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays
from opendp_sim.core.linear import public_product
from opendp_sim.linear.parts.descent import LOGIT, Descent
from opendp_sim.linear.parts.scaled import SIDE
from opendp_sim.linear.parts.whitening import whitened

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
