"""Many missing answers beside one record, for what imputes the one to the many."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.audit.outputs.encoding import structure
from opendp_sim.audit.seeds.constants import mined
from opendp_sim.audit.seeds.from_code import guided
from opendp_sim.audit.seeds.missing_values import imputed, sentinels, with_nan
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


FLOATS = dp.vector_domain(dp.atom_domain(T=float)), dp.symmetric_distance()


def test_a_sum_that_keeps_nan_is_told_apart_by_its_structure() -> None:
    noise = dp.m.make_laplace(
        dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), 10.0
    )

    def total(rows: list[float]) -> float:
        return float(np.clip(rows, 0, 10).sum()) + noise(0.0)

    obj = dp.m.make_user_measurement(*FLOATS, dp.max_divergence(), total, float)
    report = audit(obj, 1)
    assert (report.verdict, report.layer) == ("refuted", "L0 structure")


@pytest.mark.parametrize(
    ("metric", "distance", "count"),
    [
        ("SymmetricDistance", 2, 2),
        ("InsertDeleteDistance", 1, 2),
        ("ChangeOneDistance", 2, 2),
        ("L1Distance", 1, 0),
    ],
)
def test_records_that_are_nan_differ_by_the_distance(
    metric: str, distance: int, count: int
) -> None:
    pairs = with_nan(metric, lambda _: True, distance)
    assert len(pairs) == count
    for pair in pairs:
        differ = sum(math.isnan(v) for v in pair.right)
        assert differ == distance
        assert not any(math.isnan(v) for v in pair.left)
    assert with_nan(metric, lambda _: False, distance) == ()


def test_nan_is_a_part_of_what_an_output_is() -> None:
    nan = math.nan
    assert structure(nan) != structure(1.0)
    assert structure([1.0, nan]) != structure([1.0, 2.0])
    assert structure(np.array([nan])) != structure(np.array([0.0]))
    assert structure([1, 2]) == structure([3, 4])
