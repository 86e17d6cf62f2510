"""Integers too long to print are refused by a code at every door."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import opendp_sim as sim
from opendp_sim.core.errors import SimError, repr_text
from opendp_sim.sklearn import DPKernelDensity

LONG = [10**5000, -(10**5000), Fraction(10**5000, 3), Fraction(1, 10**5000)]
BOX = {"x": (0.0, 1.0)}
WORDS = ("bandwidth", "seed", "epsilon", "delta", "max_rows")  # a `size` may be any


@pytest.mark.parametrize("long", LONG, ids=["high", "low", "ratio", "small"])
def test_a_recipe_refuses_it(long: Any) -> None:
    """Once a bare ValueError of Python, about its limit of 4,300 digits."""
    for word in WORDS:
        with pytest.raises(SimError) as found:
            sim.density(BOX, **{"bandwidth": 0.1, word: long})
        assert len(str(found.value)) < 1000
    for ends in ((0.0, long), long, (long, 0.0)):
        if long != Fraction(1, 10**5000):
            with pytest.raises(SimError):
                sim.means({"x": ends})
    with pytest.raises(SimError):
        sim.top("item", k=1, keys=[long, 1])
    for word in ("k", "max_items", "items_per_user"):
        with pytest.raises(SimError):
            sim.top("item", **{"k": 1, word: long})


@pytest.mark.parametrize("long", LONG, ids=["high", "low", "ratio", "small"])
def test_a_spec_and_a_plan_refuse_it(long: Any) -> None:
    made = sim.density(BOX, bandwidth=0.1).plan
    with pytest.raises(SimError):
        made.errors([long])
    with pytest.raises(SimError):
        made.errors([1.0], long)
    body = {"stability": -abs(long)}
    spec = dict(made.program.plain())
    spec["flow"] = {**spec["flow"], "sketch": {**spec["flow"]["sketch"], "expect": body}}
    with pytest.raises(SimError):
        sim.plan(spec)


@pytest.mark.parametrize("long", LONG, ids=["high", "low", "ratio", "small"])
@pytest.mark.parametrize("word", ["epsilon", "bandwidth", "bounds", "delta", "n_components"])
def test_an_estimator_refuses_it(word: str, long: Any) -> None:
    rows = np.array([[0.25, 0.5], [0.5, 0.5]])
    given = {"epsilon": 1.0, "bounds": (0, 1)}
    given[word] = (-abs(long), abs(long)) if word == "bounds" else long
    if word == "bounds" and abs(long) < 1:
        return  # the shortest range, which underflows to none, is another refusal
    with pytest.raises(SimError):
        DPKernelDensity(**given).fit(rows)


def test_a_text_of_any_value() -> None:
    assert repr_text(3.5) == "3.5"
    assert repr_text("abc", 3) == "'ab"
    assert repr_text([10**5000]) == "list with too many digits to print"
