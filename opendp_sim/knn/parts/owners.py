"""Which purse pays for a record: that of its person id, for life; without ids, a purse of its own."""

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
        self._kind: type | None = None
        if ids is not None:
            self._kind = int if np.asarray(ids).dtype.kind in "iu" else str
            self.meet(ids)

    def __repr__(self) -> str:
        """Nothing that depends on data."""
        return "Owners(secret)"

    def fit(self, ids: list[Any]) -> bool:
        """Say whether ids are of the kind that the first records declare by their dtype.

        Public: int64 holds integers and objects hold texts, also where there is no record.
        """
        return not ids or self._kind is None or isinstance(ids[0], self._kind)

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
