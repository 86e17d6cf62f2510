"""Sums of many charges: exact, at most OpenDP's own composition, at a cost that does not grow."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import event, given, strategies as st

from opendp_sim.accounting import composition as totals
from opendp_sim.accounting.budget import MEASURES, Limit, MeasureName
from opendp_sim.accounting.composition import Charge, total_of
from opendp_sim.accounting.ledger.ledger import Ledger, Terms
from opendp_sim.core import dp
from opendp_sim.core.errors import BudgetError

LIMITS: dict[MeasureName, Limit] = {
    "pure": Limit(epsilon=3.0),
    "gdp": Limit(epsilon=3.0, delta=1e-6),
    "zcdp": Limit(epsilon=3.0, delta=1e-6),
    "approx": Limit(epsilon=3.0, delta=1e-5),
    "approx_zcdp": Limit(epsilon=3.0, delta=1e-5),
}
JOINS: dict[MeasureName, tuple[MeasureName, ...]] = {
    "pure": ("pure",),
    "gdp": ("gdp", "pure"),
    "zcdp": ("zcdp", "pure", "gdp"),
    "approx": ("approx", "pure"),
    "approx_zcdp": ("approx_zcdp", "pure", "gdp", "zcdp"),
}
losses = st.sampled_from([0.0, 0.1, 5e-324, 1.0, 1e300]) | st.floats(0, 4) | st.floats(0, 1e-9)
deltas = st.sampled_from([0.0, 1.0, 5e-324]) | st.floats(0, 1e-5) | st.floats(0, 0.5)


@st.composite
def ledgers(draw: Any) -> tuple[MeasureName, list[Charge]]:
    measure = draw(st.sampled_from(list(LIMITS)))
    charges = []
    for own in draw(st.lists(st.sampled_from(JOINS[measure]), min_size=1, max_size=7)):
        more = (draw(deltas),) if own.startswith("approx") else ()
        charges.append(Charge(own, (draw(losses), *more)))
    return measure, charges


def composed(charges: list[Charge], measure: MeasureName) -> tuple[float, ...] | str:
    """The loss that OpenDP's composition of one measurement a charge has, in its own words."""

    def one(charge: Charge) -> dp.Measurement:
        made = totals._stand_in(charge.measure, charge.loss)
        joins = charge.measure == measure or (charge.measure, measure) == ("gdp", "zcdp")
        return made if joins else totals._cast(made, charge.measure, measure)

    try:
        value = dp.c.make_composition([one(charge) for charge in charges]).map(1)
    except dp.OpenDPException:
        return "refused"
    return tuple(map(float, value)) if isinstance(value, tuple) else (float(value),)


def near(exact: tuple[Fraction, ...], opendp: tuple[float, ...] | str) -> bool:
    """Say whether a sum of at most seven floats is at most OpenDP's, and within seven roundings of it."""
    assert not isinstance(opendp, str)
    ulps = 8 * Fraction(1, 2**52)
    return all(
        ours <= theirs <= ours * (1 + ulps) + 8 * Fraction(5e-324)
        for ours, theirs in zip(exact, opendp, strict=True)
    )


@given(ledgers())
def test_the_sum_is_exact_and_at_most_that_of_opendp_s_composition(
    drawn: tuple[MeasureName, list[Charge]],
) -> None:
    measure, charges = drawn
    wanted = composed(charges, measure)
    try:
        found = total_of(charges, measure, LIMITS[measure])
    except BudgetError:  # the conversion of a sum may be refused where the sum alone is not
        event("refused")
        if wanted != "refused":
            assert measure in ("zcdp", "approx_zcdp")
            assert near(total_of(charges, measure, Limit(rho=1.0)).exact, wanted)
        return
    assert near(found.exact, wanted)
    if len(charges) > 1 and charges[0].exact[0] > Fraction(
        1, 10**300
    ):  # else no epsilon of it alone
        earlier = total_of(charges[:-1], measure, LIMITS[measure]).exact
        before = Charge(measure, earlier)
        again = total_of([before, charges[-1]], measure, LIMITS[measure])
        if before.exact == earlier:
            assert again == found
        else:  # of more digits than a charge keeps: it is rounded up
            assert near(found.exact, again.loss)


def test_a_sum_that_overflows_is_refused() -> None:
    for measure in MEASURES:
        more = (0.0,) if measure.startswith("approx") else ()
        charge = Charge(measure, (1e308, *more))
        assert composed([charge] * 2, measure) == "refused"
        with pytest.raises(BudgetError, match="OS405"):
            total_of([charge] * 2, measure, LIMITS[measure])


def test_a_thousand_charges_cost_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    build = totals.build
    totals._read.cache_clear()
    monkeypatch.setattr(totals, "build", lambda *given: made.append(1) or build(*given))
    charges = [Charge("gdp", ((1 + k) * 1e-9,)) for k in range(1000)]
    for _ in range(10):
        assert total_of(charges, "gdp", LIMITS["gdp"]).fits
    assert len(made) == 1  # and the same sum is not converted again


def test_a_row_that_changed_under_an_open_ledger_is_read_anew(tmp_path: Any) -> None:
    """What was read and verified is kept by its text: an edit of the file is still found."""
    terms = Terms("pure", "1 row", LIMITS["pure"])
    with Ledger.open(tmp_path / "d.ledger", terms) as ledger:
        for _ in range(3):
            ledger.charge(Charge("pure", (0.25,)), {})
        assert len(ledger.entries) == 3
        assert ledger.entries[1] is ledger.entries[1]
        run = ledger._tables._db.execute
        body = run("SELECT body FROM entries WHERE seq = 2").fetchone()[0]
        for change, undo in (
            ("UPDATE entries SET body = replace(body, '0x1', '0x0') WHERE seq = 2", body),
            (
                "UPDATE entries SET hash = replace(hash, substr(hash, 1, 1), 'x') WHERE seq = 2",
                None,
            ),
            ("DELETE FROM entries WHERE seq = 1", None),
        ):
            run(change)
            with pytest.raises(BudgetError, match="OS403"):
                _ = ledger.entries
            with pytest.raises(BudgetError, match="OS403"):
                ledger.total()
            if undo is not None:
                run("UPDATE entries SET body = ? WHERE seq = 2", (undo,))
                assert len(ledger.entries) == 3


# --- decimals and ratios ---------------------------------------------------------------------------

EACH = st.decimals(Decimal("1e-9"), Decimal(5), places=9).map(Fraction) | st.builds(
    Fraction, st.integers(1, 99), st.integers(1, 99)
)


@given(st.lists(EACH, min_size=1, max_size=9), st.sampled_from([-1, 0, 1]), st.data())
def test_decimals_and_ratios_add_up_to_their_own_sum(
    parts: list[Fraction], beside: int, data: Any
) -> None:
    """A limit of the exact sum holds the charges, and one that is a part in 10**30 less does not."""
    measure = data.draw(st.sampled_from(["pure", "approx", "zcdp"]))
    more = (Fraction(1, 10**7),) if measure == "approx" else ()
    charges = [Charge(measure, (part, *more)) for part in parts]
    most = sum(parts) + Fraction(beside, 10**30)
    delta = len(parts) * Fraction(1, 10**7) if more else None
    limit = Limit(rho=most) if measure == "zcdp" else Limit(epsilon=most, delta=delta)
    total = total_of(charges, measure, limit)
    assert total.fits == (beside >= 0)
    assert total.exact == (sum(parts), *([delta] if more else []))
    assert next(iter(total.rest.values())) == max(0, Fraction(beside, 10**30))
    assert all(Fraction(up) >= part for up, part in zip(total.loss, total.exact, strict=True))
    for charge in charges:
        assert Charge.read(json.loads(json.dumps(charge.plain()))) == charge
    assert Limit.read(json.loads(json.dumps(limit.plain()))) == limit


@pytest.mark.few(8)
@pytest.mark.parametrize("times", [3, 7, 10, 11, 20, 49])
@pytest.mark.parametrize("measure", ["pure", "approx", "zcdp", "gdp"])
def test_n_nths_fit_one_and_leave_nothing(tmp_path: Any, measure: MeasureName, times: int) -> None:
    """Through a ledger's file; one more run is refused, and the words say that nothing is left."""
    one, part = Fraction(1), Fraction(1, times)
    limit = {
        "pure": Limit(epsilon=one),
        "approx": Limit(epsilon=one, delta=one / 10**5),
        "zcdp": Limit(rho=one),
        "gdp": Limit(mu=one),
    }[measure]
    loss = (part, part / 10**5) if measure == "approx" else (part / (2 if measure == "gdp" else 1),)
    with Ledger.open(tmp_path / "d.ledger", Terms(measure, "1 row", limit)) as ledger:
        for _ in range(times):
            ledger.charge(Charge(measure, loss), {})
        assert ledger.total().fits
        assert set(ledger.total().left.values()) == {0.0}
        with pytest.raises(BudgetError, match="OS402"):
            ledger.charge(Charge(measure, loss), {})
    with Ledger.open(tmp_path / "d.ledger", Terms(measure, "1 row", limit)) as again:
        assert again.total().exact == tuple(times * part for part in loss)


def test_a_float_of_a_map_is_no_decimal() -> None:
    """A charge of before, or of a stated scale, is the float's own value: .1 is above 1/10."""
    assert Charge("pure", (0.1,)).exact[0] == Fraction(0.1) > Fraction(1, 10)
    assert Charge.read({"measure": "pure", "loss": ["0x1.999999999999ap-4"]}).exact[0] == Fraction(
        0.1
    )
    assert not total_of([Charge("pure", (0.1,))] * 10, "pure", Limit(epsilon=1.0)).fits
    assert total_of([Charge("pure", (0.125,))] * 8, "pure", Limit(epsilon=1.0)).fits


@pytest.mark.parametrize(
    ("given_", "exact", "text"),
    [
        (0.1, Fraction(1, 10), "epsilon 0.1"),
        (Decimal("0.1"), Fraction(1, 10), "epsilon 0.1"),
        ("1/7", Fraction(1, 7), "epsilon 1/7"),
        ("0.1", Fraction(1, 10), "epsilon 0.1"),
        ("1e-1", Fraction(1, 10), "epsilon 0.1"),
        ("3", Fraction(3), "epsilon 3"),
        (Fraction(2, 14), Fraction(1, 7), "epsilon 1/7"),
        (Fraction(1, 4), Fraction(1, 4), "epsilon 0.25"),
        (0.1234567, Fraction(1234567, 10**7), "epsilon 0.1234567"),
        (3, Fraction(3), "epsilon 3"),
    ],
)
def test_a_bound_is_what_was_written(given_: Any, exact: Fraction, text: str) -> None:
    budget = Limit(epsilon=given_)
    budget.check("pure")
    assert (budget.exact("epsilon"), budget.text) == (exact, text)
    down = budget.down("epsilon")
    assert down is not None
    assert 0 <= exact - Fraction(down) < exact / 2**52


@pytest.mark.parametrize(
    "bad",
    [
        "1/0",
        "0/1",
        "-1/7",
        "1 / 7",
        " 0.1",
        "-0.1",
        ".1",
        "0x1",
        "1_0",
        "\u0663",
        "nan",
        "1e9999999",
        Fraction(-1, 7),
        Decimal("nan"),
        Decimal("1e9999"),
        Fraction(1, 10**350),
        True,
    ],
)
def test_what_is_no_bound_is_refused(bad: Any) -> None:
    with pytest.raises(BudgetError, match="OS401"):
        Limit(epsilon=bad).check("pure")


@pytest.mark.parametrize(
    "one", [np.float64(0.1), np.array(0.1), np.float32(0.5), np.int64(3)], ids=repr
)
def test_numbers_of_numpy_are_bounds_of_their_value(one):
    """`expected epsilon > 0 and finite; got np.float64(0.1)` was told of a budget out of `np.logspace`."""
    made = Limit(epsilon=one)
    made.check("pure")
    assert made == Limit(epsilon=one.item())
    assert type(made.epsilon) is type(one.item())


@pytest.mark.parametrize(
    "one", [np.float64("nan"), np.bool_(True), np.array([0.1]), np.longdouble(1) / 3]
)
def test_numbers_of_numpy_that_are_no_bound_are_refused(one):
    with pytest.raises(BudgetError, match="OS401"):
        Limit(epsilon=one).check("pure")


def _least_delta(rho: float, epsilon: float) -> Any:
    """Return the delta of zCDP by Canonne, Kamath and Steinke (2020) at its best order."""
    rho, epsilon = mpmath.mpf(rho), mpmath.mpf(epsilon)
    low, high = mpmath.mpf(1), (epsilon + 1) / (2 * rho) + 2
    for _ in range(250):
        order = (low + high) / 2
        if (2 * order - 1) * rho - epsilon + mpmath.log1p(-1 / order) < 0:
            low = order
        else:
            high = order
    power = (high - 1) * (high * rho - epsilon) + high * mpmath.log1p(-1 / high)
    return min(mpmath.exp(power) / (high - 1), mpmath.mpf(1))


@pytest.mark.parametrize(
    ("scale", "epsilon"),
    [
        (1 / 6.2115343065540785, 19.393369321412774),
        (1.0, 0.25),
        (3.0, 1.0),
        (40.0, 0.1),
        (1e6, 1e-5),
    ],
)
def test_opendp_states_no_delta_below_the_true_one(scale, epsilon):
    """OpenDP 0.15.1 does for the first case (a delta of 0.84, in its last digit): 0.16 is needed."""
    space = dp.atom_domain(T=int), dp.absolute_distance(T=float)
    noise = dp.m.make_gaussian(*space, scale=1.0)
    distance = 1.0 / scale
    with mpmath.workdps(60):
        least = _least_delta(noise.map(distance), epsilon)
        assert dp.c.make_zCDP_to_approxDP(noise).map(distance).delta(epsilon) >= least
