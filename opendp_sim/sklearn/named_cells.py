"""A table whose form was looked at, with the names of its columns: what a search hands to its fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NamedCells"]


@dataclass(frozen=True)
class NamedCells:
    """Cells and the names of their columns.

    A candidate that saw a bare array would know no names, and answer a table in another order.

    Attributes:
        cells: shape (n, d).
        names: as scikit-learn remembers them, shape (d,); None where the columns have none.
    """

    cells: NDArray[Any]
    names: NDArray[np.object_] | None

    @classmethod
    def seen_by(cls, estimator: Any, cells: NDArray[Any]) -> NamedCells:
        """Return cells with the names that an estimator has just seen them with."""
        return cls(cells, getattr(estimator, "feature_names_in_", None))

    def of(self, rows: Any) -> NamedCells:
        """Return some of the rows, as a copy: a view would hold on to everybody."""
        part = self.cells[rows]
        return NamedCells(part if part.base is None else part.copy(), self.names)

    def tell(self, estimator: Any) -> None:
        """Let an estimator remember the number and the names of the columns, as validation does."""
        estimator.n_features_in_ = self.cells.shape[1]
        if self.names is not None:
            estimator.feature_names_in_ = self.names.copy()
        elif hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
