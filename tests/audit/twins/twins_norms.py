"""Frozen: the two false claims that the sensitivity of a sketch once made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import opendp.prelude as dp

from tests.audit.twins.entries import Control, Twin

MONOTONE = dp.linf_distance(T="i64", monotonic=True)


def _histogram(values: list[int]) -> list[int]:
    return np.bincount(np.array(values, dtype=np.int64), minlength=4).tolist()


def _sketch(stability_map: Callable[[int], int]) -> Any:
    return dp.t.make_user_transformation(
        dp.vector_domain(dp.atom_domain(bounds=(0, 3), T="i64")),
        dp.symmetric_distance(),
        dp.vector_domain(dp.atom_domain(T="i64"), 4),
        MONOTONE,
        _histogram,
        stability_map,
    )


def _as_far_as_the_records(d_in: int) -> int:
    return d_in


def _only_at_one(d_in: int) -> int:
    if d_in > 1:
        raise ValueError("nothing finite can be said")
    return d_in


def _norm_named_monotone(d_in: int) -> int:
    """``norm="monotone"`` looked up the flag of that name as a distance: 0 a record."""
    return 0 * d_in


TWINS = [
    Twin(
        name="sensitivity/monotone_at_two",
        d_in=2,
        make=lambda: _sketch(_as_far_as_the_records),
        why="a record comes and another goes: OpenDP's monotone distance is infinite, not 2",
    ),
    Twin(
        name="sensitivity/norm_is_a_flag",
        make=lambda: _sketch(_norm_named_monotone),
        why="any attribute was taken for a norm, and a flag that is false for a distance of 0",
    ),
]
CONTROLS = [Control(name="sensitivity/monotone_at_one", make=lambda: _sketch(_only_at_one))]
