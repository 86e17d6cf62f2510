"""What was confirmed is what is charged: a run whose ledger moved since is refused before anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

import opendp_sim as sim
from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger.ledger import Ledger, head_of
from opendp_sim.core.errors import BudgetError, ParameterError
from opendp_sim.dsl import apply, plan_file
from opendp_sim.dsl.run.charge import Transaction
from tests._small import fresh, write_small


def entries(folder):
    with Ledger.open(folder / "points.ledger") as ledger:
        return ledger.entries


def test_a_run_follows_the_head_that_was_seen(tmp_path):
    plan = plan_file(write_small(tmp_path))
    assert sim.standing(plan).head == ""  # before the first run there is none
    done = apply(plan, expected_head=sim.standing(plan).head)
    assert done.charge.seq == 2
    with pytest.raises(BudgetError, match="OS409"):
        apply(plan, expected_head="")
    seen = sim.standing(plan).head
    before = entries(tmp_path)
    reserved = sim.apply(plan, expected_head=seen).charge.body["of"]
    assert reserved == len(before) + 1
    with pytest.raises(BudgetError, match="OS409"):
        apply(plan, expected_head=seen)
    assert len(entries(tmp_path)) == len(before) + 3  # reserve, charge, outcome of one run


@pytest.mark.long
def test_another_process_that_spent_in_between_is_seen(tmp_path):
    spec = write_small(tmp_path)
    plan = plan_file(spec)
    apply(plan)
    seen = head_of(tmp_path / "points.ledger")
    subprocess.run(
        [sys.executable, "-m", "opendp_sim", "apply", spec], check=True, capture_output=True
    )
    before = entries(tmp_path)
    fresh(tmp_path)
    (tmp_path / "points.npz").unlink()  # nothing of it is looked at
    with pytest.raises(BudgetError, match="OS409"):
        apply(plan, expected_head=seen)
    assert entries(tmp_path) == before
    assert not list(tmp_path.glob("out/*"))


def test_the_comparison_is_in_the_transaction_that_charges(tmp_path, monkeypatch):
    """Whatever is written after the ledger was opened and before the reserve is seen too."""
    plan = plan_file(write_small(tmp_path))
    said = []

    def late(self, *given, real=Transaction.reserve, **more):
        self.ledger.charge(Charge(self.ledger.terms.measure, plan.charge.loss), {"program": "x"})
        real(self, *given, **more)

    monkeypatch.setattr(Transaction, "reserve", late)
    with pytest.raises(BudgetError, match="OS409"):
        apply(plan, expected_head="", charged=said.append)
    assert [entry.kind for entry in entries(tmp_path)] == ["charge"]
    assert said == []  # nothing of this run stands, and nothing says so


def test_a_lost_ledger_is_not_begun_and_a_plan_without_one_has_no_head(tmp_path):
    plan = plan_file(write_small(tmp_path))
    with pytest.raises(BudgetError, match="OS409"):
        apply(plan, expected_head="0" * 64)
    assert not (tmp_path / "points.ledger").exists()
    text = (tmp_path / "small.yaml").read_text()
    lines = [line for line in text.splitlines() if "ledger:" not in line]
    (tmp_path / "small.yaml").write_text("\n".join(lines))
    with pytest.raises(ParameterError, match="OS102"):
        apply(plan_file(tmp_path / "small.yaml"), expected_head="")
