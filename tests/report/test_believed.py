"""What a page asks to believe: a plain sentence for each of a certificate's, about this program."""

from __future__ import annotations

from pathlib import Path

import pytest

from opendp_sim.accounting.certificate.certificate import assumptions
from opendp_sim.accounting.claim_text import ProtectedUnit, delta_in_words, unit_statement
from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.accounting.measures.group_and_repeat import of_units
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.report.trust import UNIT_SENTENCE, assumptions_of, not_promised
from tests._small import write_small

SPECS = Path(__file__).parents[2] / "specs"


@pytest.mark.parametrize("ingest", ["refuse", "enforce", "assume"])
def test_a_page_asks_to_believe_what_its_certificate_assumes(ingest):
    """In the same words, and about the unit in those of this program."""
    stated = assumptions(ingest, by_person=False)
    plan = plan_file(SPECS / "digit-density.yaml")
    assert UNIT_SENTENCE in stated
    found = assumptions_of(plan, stated)
    assert found[1:] == [text for text in stated if text != UNIT_SENTENCE]
    assert found[0].startswith("Nobody has more than one row in `digits`")


def test_a_column_of_names_is_no_plural():
    """Of a column `person` a page told of "a person with several `person`" and "the number of `person`"."""
    plan = plan_file(SPECS / "bright-pixels.yaml")
    said = [assumptions_of(plan, assumptions("refuse", by_person=True))[0]]
    said += [text for text, _ in not_promised(plan)]
    unit = ProtectedUnit("image")
    said += [unit_statement(unit).text, delta_in_words(1e-6, unit)]
    found = [
        text for text in said if "several" in text or "than one" in text or "number of" in text
    ]
    assert len(found) == 4
    assert all("value of `image`" in text or "values of `image`" in text for text in found), found


@pytest.mark.parametrize(
    ("unit", "said", "steps"),
    [
        ("{add_remove: 1, of: row}", "one row in `points`; whoever has is protected less.", 2),
        ("{add_remove: 3, of: row}", "3 rows in `points`; whoever has is protected less.", None),
        ("{replace: 1, of: row}", "one row in `points`", 0),
    ],
)
def test_a_belief_names_the_unit_and_a_change_is_two_steps(tmp_path, unit, said, steps):
    spec = write_small(tmp_path, ("{add_remove: 1, of: row}", unit))
    plan = plan_file(spec)
    found = assumptions_of(plan, assumptions("refuse", by_person=False))
    assert len(found) == len(assumptions("refuse", by_person=False))
    assert said in found[0]
    told = [more for _, more in not_promised(plan) if "counts as two steps" in more]
    assert len(told) == (steps != 0)
    if told:
        assert ("times in 100" in told[0]) is (steps == 2)
    if steps == 2:
        two = of_units(attacker_of(plan.privacy.measure, plan.total), steps)
        assert f"at most {two.right} times in 100" in told[0]
