"""Sums of many charges: OpenDP's own composition to the bit, at a cost that does not grow with objects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given, strategies as st

from opendp_sim.accounting import composition as totals
from opendp_sim.accounting.budget import MEASURES, Budget, MeasureName
from opendp_sim.accounting.composition import Charge, total_of
from opendp_sim.accounting.ledger.ledger import Ledger, Terms
from opendp_sim.core import dp
from opendp_sim.core.errors import BudgetError

LIMITS: dict[MeasureName, Budget] = {
    "pure": Budget(epsilon=3.0),
    "gdp": Budget(epsilon=3.0, delta=1e-6),
    "zcdp": Budget(epsilon=3.0, delta=1e-6),
    "approx": Budget(epsilon=3.0, delta=1e-5),
    "approx_zcdp": Budget(epsilon=3.0, delta=1e-5),
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


@given(ledgers())
def test_the_sum_is_that_of_opendp_s_composition(drawn: tuple[MeasureName, list[Charge]]) -> None:
    measure, charges = drawn
    wanted = composed(charges, measure)
    try:
        found = total_of(charges, measure, LIMITS[measure])
    except BudgetError:  # the conversion of a sum may be refused where the sum alone is not
        event("refused")
        if wanted != "refused":
            assert measure in ("zcdp", "approx_zcdp")
            assert total_of(charges, measure, Budget(rho=1.0)).loss == wanted
        return
    assert found.loss == wanted
    before = Charge(measure, total_of(charges[:-1], measure, LIMITS[measure]).loss)
    assert total_of([before, charges[-1]], measure, LIMITS[measure]) == found


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
