"""One stability test: release the top-k set if its gap survives noise, else nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.spaces.counts import Ranking
from opendp_sim.top_k.parts.selection import Coins

__all__ = ["set_at", "stable_places"]


def stable_places(
    coins: Coins, ranking: Ranking, k: int, scale: float, threshold: int, right: float | None = None
) -> NDArray[np.int64] | None:
    """Return the places of the top k, or None.

    The noise is a discrete Gaussian, or with ``right`` that of ``top_k/parts/gate_tail.py``.
    Lemma 1 of ``stable_set.md``: a set with an item that nobody voted for is never released when the
    catalogue is unknown (place -1), which is one more way for both sides to fail.
    """
    gap = int(ranking.counts[k - 1] - ranking.counts[k])
    if right is None:
        passes = coins.reaches(scale, threshold - gap)
    else:
        passes = coins.gate_reaches(right, scale, threshold - gap)
    if not passes or bool((ranking.places[:k] < 0).any()):
        return None
    return ranking.places[:k]


def set_at(names: Any, places: NDArray[np.int64] | None) -> list[str | int] | None:
    """Return the items at ``places`` in the public order, or None."""
    return None if places is None else list(names(places))
