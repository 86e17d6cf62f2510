"""Epsilon, delta and the absence of a ledger in sentences, whose numbers hold."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.claim_text import claim_sentence, epsilon_in_words
from opendp_sim.accounting.composition import Charge, total_of
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.cli.output.summary import next_command, show_first
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl.plan.accountant import account
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.plan.records import Planned
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.plan.statements import tell
from opendp_sim.dsl.run.charge import ledger_terms
from opendp_sim.dsl.run.ledger_status import _guessed, ledger_status, room
from opendp_sim.dsl.text.diagnostic import Notes
from tests._small import write_small


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 1.0, 2.0, 7.7, 20.0])
def test_the_factor_is_never_too_small(epsilon):
    factor = float(
        re.search(r"at most (\S+) times", epsilon_in_words(epsilon)).group(1).replace(",", "")
    )
    assert math.exp(epsilon) <= factor <= math.exp(epsilon) * 1.01 + 0.01


def test_a_plan_promises_what_its_document_does(tmp_path):
    plan = plan_file(write_small(tmp_path))
    plain = plan.plain()
    said = plain["privacy"] | {"total": plain["total"], "claim": plain["claim"]}
    assert isinstance(plan, Planned)
    assert claim_sentence(plan.promised) == claim_sentence(said)


def test_what_limits_nothing_says_so():
    assert "hardly anything" in epsilon_in_words(50.0)
    assert "hardly anything" in epsilon_in_words(math.inf)


def test_a_ledger_s_room_is_how_many_runs_it_lets_through(tmp_path):
    """Counted by doing it: so many charges pass, and the next is refused."""
    spec = write_small(tmp_path)
    plan = plan_file(spec)
    runs = ledger_status(plan)["room"]
    assert 2 <= runs <= 20
    with Ledger.open(tmp_path / "points.ledger", ledger_terms(plan)) as ledger:
        for _ in range(runs):
            ledger.charge(plan.charge, {"name": "small"})
        with pytest.raises(BudgetError, match="OS402"):
            ledger.charge(plan.charge, {"name": "small"})
    found = ledger_status(plan)
    assert (found["room"], found["fits"]) == (0, False)
    out = Console(file=io.StringIO(), width=80)
    said = tell(plan, ledger=found)
    show_first(said, next_command(plan, said, str(spec), found["file"]), out)
    said = out.file.getvalue()
    assert "REFUSED: the ledger has too little left for epsilon 1" in said
    assert "…" not in said.split("\n\n")[0].replace("\n", "")
    assert "opendp-sim apply" not in said
    assert "ledger show" in said


def test_room_in_another_measure_and_for_free():
    limit = Limit(rho=0.5)
    for charge, runs in (
        (Charge("pure", (0.1,)), 100),
        (Charge("zcdp", (0.1,)), 5),
        (Charge("zcdp", (0.0,)), 1000),
    ):
        assert room(lambda *c: total_of(c, "zcdp", limit), charge, "zcdp") == pytest.approx(
            runs, abs=1
        )


@pytest.mark.few(2)
@pytest.mark.parametrize("spent", [0.0, 0.01])
@pytest.mark.parametrize(("epsilon", "rho"), [(3.0, 0.02), (0.5, 0.02), (8.0, 1e-5), (2.0, 0.004)])
def test_a_guess_changes_no_room(spent, epsilon, rho):
    """Right, wrong by a little or by far, or none: OpenDP's sums decide."""
    limit = Limit(epsilon=epsilon, delta=1e-6)
    before, charge = Charge("zcdp", (spent,)), Charge("zcdp", (rho,))

    def total(*more):
        return total_of((before, *more), "zcdp", limit)

    runs = room(total, charge, "zcdp")
    guess = _guessed(before, charge, "zcdp", limit)
    assert guess is not None
    assert abs(guess - runs) <= 1
    for near in {guess, 0, runs + 1, 1000, max(0, runs - 1)}:
        assert room(total, charge, "zcdp", near) == runs


def test_an_account_is_that_of_the_plan_whatever_the_order_of_the_releases(tmp_path: Path) -> None:
    plan = plan_file(write_small(tmp_path))
    turned = dict(reversed(plan.types.items()))
    notes = Notes()
    releases, target, total, claim, one = account(plan.program, turned, notes)
    assert not notes.findings
    assert (target, total, claim, one) == (plan.target, plan.total, plan.claim, plan.of_one)
    for name, release in plan.releases.items():
        assert isinstance(release, ReleasePlan)
        assert releases[name].plain() == release.plain()


def test_nothing_private_is_accounted_for_without_a_loss(tmp_path: Path) -> None:
    plan = plan_file(write_small(tmp_path))
    releases, target, total, claim, one = account(plan.program, {}, Notes())
    assert (releases, target, total, claim, one) == ({}, None, (), None, ())
