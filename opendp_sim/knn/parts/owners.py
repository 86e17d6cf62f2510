"""Which purse pays for a record: that of its person id, for life; without ids, a purse of its own."""

from __future__ import annotations

from collections import defaultdict
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
        ids: shape (n,) identifiers of the first records, whose dtype says of what kind all are; None
            when each record is its own person. Nobody is entered yet (``meet``).
    """

    def __init__(self, ids: NDArray[Any] | None) -> None:
        self._places: defaultdict[Any, int] = defaultdict()
        self.count = 0
        self._kind: type | None = None
        if ids is not None:
            self._kind = int if np.asarray(ids).dtype.kind in "iu" else str

    def __repr__(self) -> str:
        """Nothing that depends on data."""
        return "Owners(secret)"

    def fit(self, ids: list[Any]) -> bool:
        """Say whether ids are of the kind that the first records declare by their dtype.

        Public: int64 holds integers and objects hold texts, also where there is no record.
        """
        return not ids or self._kind is None or isinstance(ids[0], self._kind)

    def meet(self, ids: Any) -> NDArray[np.int64]:
        """Enter persons not met before; return the purse of each record, shape (n,)."""
        people, known = persons(ids), self._places
        known.default_factory = known.__len__  # who is looked up and not there is entered: one pass
        try:
            return np.fromiter(map(known.__getitem__, people), np.int64, len(people))
        finally:
            known.default_factory = None
            self.count = len(known)

    def known(self, ids: Any) -> NDArray[np.int64]:
        """Return the purses of those ids that were met before."""
        found = [self._places[person] for person in persons(ids) if person in self._places]
        return np.array(found, dtype=np.int64)
