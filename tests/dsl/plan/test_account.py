"""The losses of a program, worked out apart from everything else that a plan says."""

from __future__ import annotations

from pathlib import Path

from opendp_sim.dsl.plan.accountant import account
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.text.diagnostic import Notes
from tests._small import write_small


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
