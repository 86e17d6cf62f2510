"""Many missing answers beside one record, for what imputes the one to the many."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opendp_sim.audit.guided import guided
from opendp_sim.audit.mining import mined
from opendp_sim.audit.sentinels import imputed, sentinels
from opendp_sim.audit.spaces import space_of
from opendp_sim.core import dp


def _imputed_by_the_mean(values: list[Any], missing: Callable[[Any], bool]) -> float:
    known = [min(max(v, 0), 100) for v in values if not missing(v)]
    mean = sum(known) / len(known) if known else 0
    return float(sum(known) + mean * (len(values) - len(known)))


def _below_zero(values: list[int]) -> float:
    return _imputed_by_the_mean(values, lambda v: v == -1)


def _nines(values: list[int]) -> float:
    return _imputed_by_the_mean(values, lambda v: v == -999)


def _no_numbers(values: list[float]) -> float:
    return _imputed_by_the_mean(values, math.isnan)


WHOLE = dp.atom_domain(T=int)
FLOATS = dp.atom_domain(T=float, nan=True)


@pytest.mark.parametrize(
    ("function", "atom", "size"),
    [
        (_below_zero, WHOLE, None),
        (_below_zero, WHOLE, 30),
        (_nines, WHOLE, None),
        (_no_numbers, FLOATS, None),
    ],
)
def test_one_record_takes_the_place_of_many_that_are_missing(
    function: Callable[[list[Any]], float], atom: Any, size: int | None
) -> None:
    domain = dp.vector_domain(atom, size=size)
    metric = dp.symmetric_distance() if size is None else dp.change_one_distance()
    found = mined([function])  # type: ignore[list-item]
    space = guided(space_of(domain, metric, 1), domain, found)
    pairs = space.corners(np.random.default_rng(0))
    moved = (abs(function(p.left) - function(p.right)) for p in pairs if len(p.left) <= 41)
    assert max(moved) >= 3000


def test_sentinels_are_those_that_a_record_may_be() -> None:
    assert sentinels((0, 1, -1, 99, -999)) == [-1, -999, 99]
    assert sentinels((True, False, "a")) == []
    assert [str(c) for c in sentinels((None, 0.0, math.nan, -1.0))] == ["None", "nan", "-1.0"]
    assert list(imputed(("a", "b"), None, lambda _: ())) == []
    assert list(imputed((-1, 7), 2, lambda _: ())) == [((-1, -1), ())]
