"""Whose purse is whose: one for each person id, for life; one for each record without ids."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.spaces.ids import persons

__all__ = ["Owners"]


class Owners:
    """A growing map from person ids to purse numbers. As secret as the dataset.

    Two ids share a purse exactly when they are equal: ``"1"`` and ``1`` are two persons, and so are
    texts that differ in a trailing NUL.

    Args:
        ids: shape (n,) identifiers of the first records; None when each record is its own person.
    """

    def __init__(self, ids: NDArray[Any] | None) -> None:
        self._places: dict[Any, int] = {}
        self.count = 0
        if ids is not None:
            self.meet(ids)

    def __repr__(self) -> str:
        """Nothing that depends on data."""
        return "Owners(secret)"

    def fit(self, ids: list[Any]) -> bool:
        """Whether ids are of the kind of those met before: integers, or texts. Public: a dtype."""
        met = next(iter(self._places), None)
        return met is None or not ids or isinstance(ids[0], type(met))

    def meet(self, ids: Any) -> int:
        """Enter persons not met before; return how many there were."""
        before = self.count
        for person in persons(ids):
            if person not in self._places:
                self._places[person] = self.count
                self.count += 1
        return self.count - before

    def of(self, ids: Any, rows: int) -> NDArray[np.int64]:
        """Return the purse of each record."""
        if ids is None:
            return np.arange(rows, dtype=np.int64)
        return np.array([self._places[person] for person in persons(ids)], dtype=np.int64)

    def known(self, ids: Any) -> NDArray[np.int64]:
        """Return the purses of those ids that were met before."""
        found = [self._places[person] for person in persons(ids) if person in self._places]
        return np.array(found, dtype=np.int64)
