"""The search for the least noise: few evaluations of OpenDP's maps, and the same last bit as bisection."""

from __future__ import annotations

import math

import opendp.prelude as dp
import pytest
from hypothesis import given, settings, strategies as st

from opendp_sim.core.errors import BudgetError, ParameterError
from opendp_sim.dsl.plan.solve import least_value, solve

SPACE = dp.vector_domain(dp.atom_domain(T="i64"))
L1, L2 = dp.l1_distance(T="i64"), dp.l2_distance(T=float)


def laplace(scale: float, sensitivity: int) -> tuple[float, ...]:
    return (float(dp.m.make_laplace(SPACE, L1, scale).map(sensitivity)),)


def gaussian(scale: float, sensitivity: int) -> tuple[float, ...]:
    return (float(dp.m.make_gaussian(SPACE, L2, scale).map(float(sensitivity))),)


@settings(max_examples=25)
@given(
    st.sampled_from([laplace, gaussian]),
    st.integers(1, 10**6),
    st.floats(min_value=1e-6, max_value=50.0),
)
def test_it_ends_at_the_float_that_bisection_finds(loss, sensitivity, budget):
    calls: list[float] = []

    def at(scale: float) -> tuple[float, ...]:
        calls.append(scale)
        return loss(scale, sensitivity)

    found = solve(at, (budget,), "here")
    assert len(calls) <= 30
    assert found == least_value(lambda scale: loss(scale, sensitivity)[0] <= budget, "here")
    assert loss(found, sensitivity)[0] <= budget < loss(math.nextafter(found, 0), sensitivity)[0]


def test_a_value_beyond_what_a_mechanism_takes_is_no_refusal():
    def loss(scale: float) -> tuple[float, ...]:
        if scale > 64:  # the secants of this loss go further than the search by doubling
            raise ParameterError("OS101", "scale", expected="64 or less", got="more", hint="less.")
        return (0.9 + 1 / scale,) if scale < 3 else (1 / scale,)

    assert solve(loss, (0.1,), "here") == least_value(lambda v: loss(v)[0] <= 0.1, "here")
    with pytest.raises(BudgetError, match="OS401"):
        solve(lambda _: (1.0,), (0.5,), "here")
