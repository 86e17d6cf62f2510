"""Define the utility of a cut after rank j, its clipped gap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import ParameterError

K_MAX: dict[str, Any] = {
    "symbol": "K",
    "unit": "items",
    "ge": 1,
    "le": 10**6,
    "hint": "twice the size you have in mind; a larger one costs only ln(k_max) in the gap.",
}
TARGET: dict[str, Any] = {
    "symbol": "k",
    "unit": "items",
    "default": None,
    "ge": 1,
    "le": 10**6,
    "hint": "leave it out to let the gaps alone decide.",
}
SLOPE: dict[str, Any] = {
    "symbol": "λ",
    "unit": "none",
    "default": 1.0,
    "ge": 0,
    "le": 1e6,
    "hint": "1 to 2; larger holds the size nearer to k.",
}


@dataclass(frozen=True)
class GapUtility:
    """``min(gap_j, ceiling) - floor(slope * |j - k|)``, for j = 1 .. k_max; moves as the gap does.

    Attributes:
        ceiling: a gap that passes any test; larger ones count the same. None for no ceiling.
        k: the size that is wanted; None for no penalty.
        slope: votes per rank away from k.
    """

    k_max: int
    ceiling: int | None
    k: int | None
    slope: float

    @cached_property
    def penalty(self) -> NDArray[np.int64]:
        """The public part, shape (k_max,), in whole votes."""
        if self.k is None:
            return np.zeros(self.k_max, dtype=np.int64)
        away = np.abs(np.arange(1, self.k_max + 1) - self.k)
        return np.floor(np.minimum(self.slope * away, 2.0**40)).astype(np.int64)

    def __call__(self, gaps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return utilities of shape (k_max,)."""
        kept = gaps if self.ceiling is None else np.minimum(gaps, self.ceiling)
        return kept - self.penalty


def clipped(k_max: int, k: int | None, slope: float, threshold: int, scale: float) -> GapUtility:
    """Return the utility clipped at a gap that nearly always passes."""
    ceiling = threshold + math.ceil(1.645 * scale)
    return GapUtility(k_max, ceiling, k, slope * ceiling / k if k else 0.0)


def check_k(key: str, k: int, candidates: int | None) -> None:
    """Refuse a k that leaves nothing out."""
    if candidates is not None and k >= candidates:
        raise ParameterError(
            "OS102", f"{key}.k", expected=f"k below the number of candidates, {candidates}", got=k,
            hint="the set of all candidates is public; ask for fewer.",
        )  # fmt: skip


def check_ranks(key: str, k_max: int, candidates: int | None, k: int | None) -> None:
    """Refuse a k_max outside k to the number of candidates."""
    if k is not None and k_max <= k:
        raise ParameterError(
            "OS102", f"{key}.k_max", expected=f"k_max above k = {k}", got=k_max,
            hint="twice k is usual.",
        )  # fmt: skip
    if candidates is not None and k_max >= candidates:
        raise ParameterError(
            "OS102", f"{key}.k_max", expected=f"k_max below the number of candidates, {candidates}",
            got=k_max, hint="the set of all candidates is public; ask for fewer ranks.",
        )  # fmt: skip
