"""A ledger is only ever spent: no charge fills it up, over every measure and every kind of number."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from opendp_sim.accounting.budget import MEASURES, Limit
from opendp_sim.accounting.composition import Charge, total_of
from opendp_sim.accounting.ledger.ledger import Ledger, Terms
from opendp_sim.core.errors import BudgetError

LIMITS = {
    "pure": Limit(epsilon=3.0),
    "gdp": Limit(epsilon=3.0, delta=1e-5),
    "zcdp": Limit(epsilon=3.0, delta=1e-5),
    "approx_zcdp": Limit(epsilon=3.0, delta=1e-5, reserve_mechanisms=4e-6),
    "approx": Limit(epsilon=3.0, delta=1e-5),
}
PARTS = {"pure": 1, "gdp": 1, "zcdp": 1, "approx_zcdp": 2, "approx": 2}
WRONG = (
    -0.5,
    -5e-324,
    -math.inf,
    math.inf,
    math.nan,
    -1,
    10**400,
    -(10**400),
    True,
    "0.1",
    None,
    1j,
    np.float64(-0.1),
    np.float64("nan"),
    np.int64(-1),
    [0.1],
)


@pytest.mark.parametrize("bad", WRONG, ids=lambda v: repr(v)[:20])
@pytest.mark.parametrize("measure", MEASURES)
def test_a_loss_is_finite_and_at_or_above_zero(measure, bad):
    for place in range(PARTS[measure]):
        loss = [1e-7] * PARTS[measure]
        loss[place] = bad
        with pytest.raises(BudgetError, match="OS405"):
            Charge(measure, tuple(loss))


@pytest.mark.parametrize("measure", [*MEASURES, "rdp", "", None, ["pure"], "max_divergence"])
@pytest.mark.parametrize("parts", range(4))
def test_a_loss_has_the_parts_of_its_measure(measure, parts):
    loss = (1e-7,) * parts
    if isinstance(measure, str) and PARTS.get(measure) == parts:
        assert Charge(measure, loss).loss == loss
    else:
        with pytest.raises(BudgetError, match="OS405"):
            Charge(measure, loss)


@pytest.mark.parametrize(
    "loss",
    [
        ["-0x1p-1"],
        ["nan"],
        ["inf"],
        ["x"],
        [0.5],
        None,
        "0x1p-3",
        [],
        ["1/0"],
        ["-1/7"],
        ["1/" + "9" * 401],
        [" 1/7"],
    ],
)
def test_a_line_of_a_ledger_that_is_no_loss_is_refused(loss):
    with pytest.raises(BudgetError, match="OS405"):
        Charge.read({"measure": "zcdp", "loss": loss})


@pytest.mark.parametrize(
    ("measure", "bad"), list(product(MEASURES, (-1.0, 0.0, math.inf, math.nan)))
)
def test_a_ledger_has_a_limit(tmp_path, measure, bad):
    delta = None if measure == "pure" else 1e-5
    with pytest.raises(BudgetError, match="OS401"):
        Ledger.open(tmp_path / "x.ledger", Terms(measure, "u", Limit(epsilon=bad, delta=delta)))
    with pytest.raises(BudgetError, match="OS401"):
        Ledger.open(tmp_path / "x.ledger", Terms("rdp", "u", Limit(epsilon=1.0)))
    assert not (tmp_path / "x.ledger").exists()


_size = st.floats(0.0, 2.0) | st.floats(0.0, 1e-300) | st.just(-0.0) | st.integers(0, 2)
_any = _size | st.floats() | st.integers() | st.booleans() | st.none()


@given(st.data(), st.sampled_from(list(MEASURES)))
def test_what_is_spent_never_falls(data, measure):
    """Over all measures: each charge either refuses, or leaves at most what there was."""
    kept: list[Charge] = []
    before = total_of(kept, measure, LIMITS[measure])
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(list(MEASURES)))
        loss = tuple(data.draw(_any) for _ in range(data.draw(st.integers(1, 2))))
        try:
            charge = Charge(kind, loss)
            after = total_of([*kept, charge], measure, LIMITS[measure])
        except BudgetError as error:
            assert error.code == "OS405"  # noqa: PT017 - either outcome is right
            continue
        assert all(math.isfinite(v) and v >= 0 for v in charge.loss)
        assert all(new >= old for new, old in zip(after.loss, before.loss, strict=True))
        assert all(after.left[name] <= before.left[name] for name in after.left)
        assert not (after.fits and not before.fits)
        kept, before = [*kept, charge], after
        assert Charge.read(charge.plain()) == charge


@pytest.mark.parametrize("measure", MEASURES)
def test_a_refused_charge_leaves_no_line(tmp_path, measure):
    with Ledger.open(tmp_path / "x.ledger", Terms(measure, "u", LIMITS[measure])) as ledger:
        ledger.charge(Charge(measure, (0.1, 1e-9)[: PARTS[measure]]), {})
        spent, head = ledger.total(), ledger.head
        for bad in (-0.05, math.nan, math.inf):
            with pytest.raises(BudgetError, match="OS405"):
                ledger.charge(Charge(measure, (bad, 1e-9)[: PARTS[measure]]), {})
        other = "zcdp" if measure in ("pure", "approx", "gdp") else "approx"
        with pytest.raises(BudgetError, match="OS405"):
            ledger.charge(Charge(other, (0.1, 1e-9)[: PARTS[other]]), {})
        assert (ledger.total(), ledger.head) == (spent, head)
