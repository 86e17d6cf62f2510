"""Epsilon, delta and the absence of a ledger in sentences, whose numbers hold."""

from __future__ import annotations

import io
import json
import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
from rich.console import Console

from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.claim_text import epsilon_in_words
from opendp_sim.accounting.composition import Charge, total_of
from opendp_sim.accounting.ledger.ledger import Ledger, head_of
from opendp_sim.cli.output.summary import next_command, show_first
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl.plan.accountant import account
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.plan.statements import tell
from opendp_sim.dsl.run.charge import ledger_terms, standing
from opendp_sim.dsl.text.diagnostic import Notes
from tests._small import write_small


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 1.0, 2.0, 7.7, 20.0])
def test_the_factor_is_never_too_small(epsilon):
    factor = float(
        re.search(r"at most (\S+) times", epsilon_in_words(epsilon)).group(1).replace(",", "")
    )
    assert math.exp(epsilon) <= factor <= math.exp(epsilon) * 1.01 + 0.01


def test_a_ledger_s_room_is_how_many_runs_it_lets_through(tmp_path):
    """Counted by doing it: so many charges pass, and the next is refused."""
    spec = write_small(tmp_path)
    plan = plan_file(spec)
    runs = standing(plan).room
    assert 2 <= runs <= 20
    with Ledger.open(tmp_path / "points.ledger", ledger_terms(plan)) as ledger:
        for _ in range(runs):
            ledger.charge(plan.charge, {"name": "small"})
        with pytest.raises(BudgetError, match="OS402"):
            ledger.charge(plan.charge, {"name": "small"})
    found = standing(plan)
    assert (found.room, found.fits) == (0, False)
    out = Console(file=io.StringIO(), width=80)
    said = tell(plan, ledger=found)
    show_first(said, next_command(plan, said, str(spec), found), out)
    said = out.file.getvalue()
    assert "REFUSED: the ledger has too little left for epsilon 1" in said
    assert "…" not in said.split("\n\n")[0].replace("\n", "")
    assert "opendp-sim apply" not in said
    assert "ledger show" in said


def test_a_standing_is_numbers_that_a_page_need_not_work_out_again(tmp_path):
    """Head, shares and runs were worked out a second time by the studio."""
    plan, path = plan_file(write_small(tmp_path)), tmp_path / "points.ledger"
    first = standing(plan)
    assert (first.head, first.runs, first.share_before, first.fits) == ("", (), 0.0, True)
    assert not path.exists()
    with Ledger.open(path, ledger_terms(plan)) as ledger:
        ledger.charge(plan.charge, {"name": "small"})
        total = ledger.total()
    then = standing(plan)
    assert then.head == head_of(path)
    assert [run.body["name"] for run in then.runs] == ["small"]
    assert (then.before, then.share_before) == (total, first.share_after)
    assert then.share_after == pytest.approx(2 * then.share_before, rel=1e-9)
    assert then.room == first.room - 1
    plain = then.plain()
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["head"], plain["runs"], plain["new"]) == (then.head, 1, False)
    path.write_bytes(b"")
    assert standing(plan).plain().keys() == {"file", "unit", "takes", "refused"}


def test_room_in_another_measure_and_for_free():
    limit = Limit(rho=0.5)
    for charge, runs in (
        (Charge("pure", (0.1,)), 100),
        (Charge("zcdp", (0.1,)), 5),
        (Charge("zcdp", (0.0,)), 1000),
        (Charge("zcdp", (1e-5,)), 1000),
        (Charge("zcdp", (0.6,)), 0),
    ):
        assert total_of((), "zcdp", limit).room(charge) == pytest.approx(runs, abs=1)


LIMITS = [
    ("zcdp", Limit(epsilon=3.0, delta=1e-6), ("zcdp", (0.02,))),
    ("zcdp", Limit(epsilon=0.5, delta=1e-6), ("gdp", (0.0004,))),
    ("zcdp", Limit(epsilon=8.0, delta=1e-6), ("pure", (0.3,))),
    ("gdp", Limit(epsilon=3.0, delta=1e-6), ("gdp", (0.02,))),
    ("gdp", Limit(mu=1.0), ("gdp", (0.02,))),
    ("pure", Limit(epsilon=1.0), ("pure", (Fraction(1, 10),))),
    ("approx", Limit(epsilon=4.0, delta=1e-6), ("approx", (0.1, 2.5e-7))),
    ("approx_zcdp", Limit(epsilon=3.0, delta=1e-6), ("approx_zcdp", (0.01, 1e-7))),
]


@pytest.mark.few(3)
@pytest.mark.parametrize("spent", [0, 3])
@pytest.mark.parametrize(("measure", "limit", "loss"), LIMITS)
def test_room_is_the_greatest_number_that_the_ledger_s_sum_lets_through(
    measure, limit, loss, spent
):
    """A quotient finds it, and the sum of so many charges decides: they fit, and one more does not."""
    charge = Charge(*loss)
    before = total_of((charge,) * spent, measure, limit)
    runs = before.room(charge)
    assert total_of((charge,) * (spent + runs), measure, limit).fits
    assert not total_of((charge,) * (spent + runs + 1), measure, limit).fits
    assert total_of((), measure, limit).room(charge) == spent + runs


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
