"""The search for the least noise: few evaluations of OpenDP's maps, and the same last bit as bisection."""

from __future__ import annotations

import pytest

from opendp_sim.core.errors import BudgetError, ParameterError
from opendp_sim.dsl.plan.solve import least_value, solve


def test_a_value_beyond_what_a_mechanism_takes_is_no_refusal():
    def loss(scale: float) -> tuple[float, ...]:
        if scale > 64:  # the secants of this loss go further than the search by doubling
            raise ParameterError("OS101", "scale", expected="64 or less", got="more", hint="less.")
        return (0.9 + 1 / scale,) if scale < 3 else (1 / scale,)

    assert solve(loss, (0.1,), "here") == least_value(lambda v: loss(v)[0] <= 0.1, "here")
    with pytest.raises(BudgetError, match="OS401"):
        solve(lambda _: (1.0,), (0.5,), "here")
