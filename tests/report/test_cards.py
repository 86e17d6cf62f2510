"""A notebook's cards of a plan, a release, a ledger and an audit are made from one kind of statement."""

from __future__ import annotations

import re

import opendp_sim as sim
from opendp_sim.accounting.claim_text import ProtectedUnit, Statement, html_card
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.release.release import Release
from opendp_sim.dsl.plan.statements import tell
from tests._small import write_small
from tests.report.audits import report


def rows(card):
    return dict(re.findall(r"<tr><th.*?>(.*?)</th><td.*?>(.*?)</td></tr>", card))


def test_a_plan_its_release_and_its_ledger_say_the_same(tmp_path):
    done = sim.apply(write_small(tmp_path))
    plan = rows(done.plan._repr_html_())
    release = Release.load(done.files["release"])
    shown = rows(release._repr_html_())
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        spent = rows(ledger._repr_html_())
    said = tell(done.plan)
    for card in (plan, shown, spent):
        assert card["who"] == said.who.line
        assert f"guess right {said.attacker.right}% of the time at most" in card["privacy"]
    assert plan["error"].startswith("density: 95% of answers within ±")
    assert shown["cost"] == "epsilon 1, delta 1e-6"
    assert "density" in shown["asks"]
    assert spent["spent"].endswith("of epsilon 3, delta 1e-05")
    assert "left" in spent


def test_an_audit_s_card_says_that_it_is_no_proof():
    assert rows(report()._repr_html_())["found"] == "No problem found. This is not a proof."
    assert rows(report(refuted=True)._repr_html_())["verdict"] == "refuted"


def test_hostile_text_of_a_card_is_text():
    card = html_card("<b>\x1b", [Statement("<i>", "", "<script>\u202e")])
    assert "<b>" not in card
    assert "<script>" not in card
    assert "\x1b" not in card
    assert "\u202e" not in card


def test_a_unit_is_read_as_ledgers_state_it():
    assert ProtectedUnit.of_text("add_remove 1 of row") == ProtectedUnit()
    assert ProtectedUnit.of_text("replace 2 of a b") == ProtectedUnit("a b", 2, replaced=True)
    assert ProtectedUnit.read({"of": "u", "add_remove": 3}) == ProtectedUnit("u", 3)
