"""What is left is what one more run may cost: it is accepted, a little more is refused (``rest``)."""

from __future__ import annotations

import pytest

from opendp_sim.accounting import composition as rest
from opendp_sim.accounting.budget import Limit, MeasureName
from opendp_sim.accounting.composition import Charge, total_of
from opendp_sim.accounting.measures.gaussian import mu_squared_down
from opendp_sim.accounting.measures.second_opinion import zcdp_to_epsilon
from opendp_sim.core.arithmetic.rounding import float_down
from tests._tiers import several

CASES: list[tuple[MeasureName, Limit]] = [
    ("gdp", Limit(epsilon=4.0, delta=1e-6)),
    ("gdp", Limit(epsilon=0.1, delta=1e-9)),
    ("gdp", Limit(epsilon=4.0, delta=1e-6, mu=0.7)),
    ("zcdp", Limit(epsilon=4.0, delta=1e-6)),
    ("zcdp", Limit(epsilon=30.0, delta=1e-3, rho=2.0)),
    ("approx_zcdp", Limit(epsilon=1.0, delta=1e-5)),
    ("pure", Limit(epsilon=4.0)),
    ("approx", Limit(epsilon=4.0, delta=1e-6)),
]


def run(measure: MeasureName, limit: Limit, epsilon: float) -> Charge:
    """The loss of a run of this epsilon at the limit's delta, as a plan would charge it."""
    more = (0.0,) if measure.startswith("approx") else ()
    if measure == "gdp":
        return Charge("gdp", (float_down(mu_squared_down(epsilon, limit.delta or 0.0) / 2),))
    if measure in rest.BY_SQUARES:
        delta = limit.conversion_delta if more else limit.delta or 0.0
        high = 2 * epsilon + 1
        rho = rest._greatest(lambda rho: zcdp_to_epsilon(rho, delta) <= epsilon, high)
        return Charge(measure, (rho, *more))
    return Charge(measure, (epsilon, *more))


@pytest.mark.parametrize(("measure", "limit"), [*several(CASES[:3], 3), *CASES[3:]])
def test_what_is_left_is_accepted_and_a_little_more_is_refused(
    measure: MeasureName, limit: Limit
) -> None:
    whole = total_of((), measure, limit).left["epsilon"]
    for parts in ((0.5,), (0.3, 0.2, 0.1), (0.9,), (0.01,) * 9):
        spent = [run(measure, limit, part * whole) for part in parts]
        left = total_of(spent, measure, limit).left["epsilon"]
        assert 0 < left < whole
        assert total_of([*spent, run(measure, limit, left)], measure, limit).fits
        more = run(measure, limit, left * (1 + 1e-6))
        assert not total_of([*spent, more], measure, limit).fits
    assert total_of([run(measure, limit, whole * (1 - 1e-12))], measure, limit).fits


@pytest.mark.parametrize(("measure", "limit"), CASES)
def test_equal_runs_are_equal_shares(measure: MeasureName, limit: Limit) -> None:
    one = run(measure, limit, total_of((), measure, limit).left["epsilon"] / 3)
    share = total_of([one], measure, limit).share
    assert 0 < share < 1
    for runs in range(1, int(1 / share) + 1):
        assert total_of([one] * runs, measure, limit).share == pytest.approx(runs * share, rel=1e-9)
    most = int(1 / share * (1 + 1e-9))
    assert total_of([one] * most, measure, limit).fits
    assert not total_of([one] * (most + 1), measure, limit).fits
    assert total_of((), measure, limit).share == 0


def test_a_run_of_two_and_one_of_one_leave_more_than_their_difference() -> None:
    """Of epsilon 4, runs of 2 and 1 left "epsilon 1.7", and two more of 2 were accepted."""
    limit = Limit(epsilon=4.0, delta=1e-6)
    spent = [run("gdp", limit, 2.0), run("gdp", limit, 1.0)]
    total = total_of(spent, "gdp", limit)
    assert 3 < total.left["epsilon"] < 4
    assert total.left_text.startswith("room for one more run of epsilon 3.")
    end = "at delta 1e-06 under gdp (losses of this kind add up by squares)"
    assert total.left_text.endswith(end)
    pure = total_of([Charge("pure", (0.8,))], "pure", Limit(epsilon=1.0))
    assert pure.left_text == "epsilon 0.199999"
    assert rest.rest_text("pure", {}, Limit(epsilon=1.0)) == "nothing"
    assert total_of([Charge("zcdp", (0.25,))], "zcdp", Limit(rho=1.0)).left_text == "rho 0.75"
    over = total_of([Charge("gdp", (9.0,))], "gdp", limit)
    assert (over.left["epsilon"], over.share) == (0.0, 1.0)
    assert over.left_text == "nothing", 'a spent budget left "room for one more run of epsilon 0"'


@pytest.mark.parametrize(
    ("measure", "limit"),
    [
        ("gdp", Limit(epsilon=1e-6, delta=1e-300)),
        ("gdp", Limit(epsilon=1e9, delta=0.4)),
        ("zcdp", Limit(epsilon=1e4, delta=1e-300)),
        ("zcdp", Limit(epsilon=1e-6, delta=1e-6)),
        ("approx_zcdp", Limit(epsilon=1e-300, delta=0.1)),
        ("approx_zcdp", Limit(rho=1.0, delta=1e-6)),
    ],
)
def test_limits_at_the_ends_of_floats_leave_something(measure: MeasureName, limit: Limit) -> None:
    more = (0.0,) if measure == "approx_zcdp" else ()
    for loss in (0.0, 1e-6, 1e3):
        total = total_of([Charge(measure, (loss, *more))], measure, limit)
        assert 0 <= total.share <= 1
        assert all(value >= 0 for value in total.left.values())
        assert total.left_text
