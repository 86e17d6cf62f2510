"""What entries say needs no file: the same questions are asked of a list of entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger._entries import Entry, canonical_json
from opendp_sim.accounting.ledger.history import REFUSALS, LedgerHistory
from opendp_sim.core.errors import BudgetError

GENESIS = {"format": "opendp_sim/ledger/2", "measure": "zcdp", "unit": "u", "limit": {"rho": 1.0}}
HEAD = {"count": 2, "hash": "0" * 64}
HALF, QUARTER = Charge("zcdp", (0.5,)), Charge("zcdp", (0.25,))


class Told(LedgerHistory):
    """A history that somebody tells."""

    entries = ()

    def __init__(self, *bodies):
        self.path = Path("told.ledger")
        self.entries = tuple(Entry(at, body, "") for at, body in enumerate(bodies, 1))

    def _meta(self, key):
        return canonical_json(GENESIS if key == "genesis" else HEAD)


def test_a_reserve_counts_until_it_is_settled_by_anything_but_a_charge():
    reserve = {"kind": "reserve", "loss": HALF.plain()}
    charge = {"kind": "charge", "of": 1, "loss": HALF.plain()}
    for bodies, spent, last in (
        ((reserve,), (HALF,), None),
        ((reserve, {"kind": "void", "of": 1}), (), "void"),
        ((reserve, {"kind": "refusal", "of": 1}), (), "refusal"),
        ((reserve, charge), (HALF,), "charge"),
    ):
        told = Told(*bodies)
        settled = told.settlement_of(told.entries[0])
        assert told.charges == spent
        assert (settled and settled.kind) == last


def test_what_is_spent_and_what_fits():
    told = Told({"kind": "charge", "loss": HALF.plain()}, {"kind": "charge", "loss": HALF.plain()})
    assert told.total().loss == (1.0,)
    assert told.total(upto=1).loss == (0.5,)
    with pytest.raises(BudgetError, match="OS402"):
        told.afford(QUARTER)
    Told().afford(HALF)
    assert told.terms.limit.rho == 1.0
    assert (told.anew, told.head) == (None, HEAD["hash"])


def test_refusals_are_counted_apart_under_enforce():
    told = Told(*[{"kind": "refusal"}] * REFUSALS, {"kind": "refusal", "ingest": "enforce"})
    assert (told.refusals(), told.refusals(enforced=True)) == (REFUSALS + 1, 1)
    told.may_refuse(enforced=True)
    with pytest.raises(BudgetError, match="OS402"):
        told.may_refuse()


def test_sessions_and_outcomes_are_found_by_what_they_belong_to():
    told = Told(
        {"kind": "charge", "loss": HALF.plain(), "store": "s"},
        {"kind": "session", "store": "s", "turn": "a"},
        {"kind": "session", "store": "s", "turn": "b", "place": 3, "head": "h", "ended": True},
        {"kind": "outcome", "of": 1},
    )
    assert (told.turn_of("s"), told.turn_of("other")) == ("b", None)
    assert (told.head_told("s"), told.head_told("other")) == ((3, "h", True), None)
    assert told.outcome_of(told.entries[0]) == told.entries[3]
    assert Told({"kind": "reserve", "loss": HALF.plain(), "store": "s"}).turn_of("s") == ""
