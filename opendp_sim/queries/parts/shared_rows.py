"""How many rows two public files share beyond chance: Lemma 4 of ``expected_error.md``."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["shared_rows"]

Floats = NDArray[np.float64]


def shared_rows(points: Floats, known: Floats) -> float:
    """Return how many rows both files have, besides those that two files of this law share by chance."""
    values, of = np.unique(np.concatenate([points, known]), axis=0, return_inverse=True)
    here, there = (
        np.bincount(part, minlength=len(values)).astype(np.float64)
        for part in np.split(of.reshape(-1), [len(points)])
    )
    equal, apart = float(here.dot(there)), [n * (n - 1.0) for n in (len(points), len(known))]
    chance = float(here.dot(here - 1.0) + there.dot(there - 1.0)) / sum(apart)
    if chance >= 1.0:
        return 0.0  # all rows are alike: nothing tells the files apart, and nothing has to
    more = (equal - chance * len(points) * len(known)) / (1.0 - chance)
    most = float(min(len(points), len(known)))
    return min(more, most) if more > 3.0 * math.sqrt(equal) else 0.0
