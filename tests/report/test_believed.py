"""What a page asks to believe: a plain sentence for each of a certificate's, about this program."""

from __future__ import annotations

from pathlib import Path

import pytest

from opendp_sim.accounting.certificate.certificate import assumptions
from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.accounting.measures.group_and_repeat import of_units
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.report.trust import (
    PLAIN,
    QUERIES,
    SEEDS,
    TRUST_COLUMNS,
    UNIT_SENTENCE,
    assumptions_of,
    not_promised,
)
from tests._small import write_small

SPECS = Path(__file__).parents[2] / "specs"


def test_each_plain_sentence_stands_for_one_of_a_certificate():
    """A reworded certificate would leave the plain words without a sentence to stand for."""
    stated = {
        text
        for ingest in ("refuse", "enforce", "assume")
        for text in assumptions(ingest, by_person=True)
    }
    assert {*PLAIN, UNIT_SENTENCE, TRUST_COLUMNS, QUERIES, SEEDS} <= stated


@pytest.mark.parametrize(
    ("unit", "said", "steps"),
    [
        ("{add_remove: 1, of: row}", "one row in `points`; whoever has is protected less: the", 2),
        (
            "{add_remove: 3, of: row}",
            "3 rows in `points`; whoever has is protected less than",
            None,
        ),
        ("{replace: 1, of: row}", "one row in `points`", 0),
    ],
)
def test_a_belief_names_the_unit_and_a_change_is_two_steps(tmp_path, unit, said, steps):
    spec = write_small(tmp_path, ("{add_remove: 1, of: row}", unit))
    plan = plan_file(spec)
    found = assumptions_of(plan, assumptions("refuse", by_person=False))
    assert len(found) == len(assumptions("refuse", by_person=False))
    assert said in found[0]
    assert not any("2**31" in text or "lemma" in text for text in found)
    told = [more for _, more in not_promised(plan) if "counts as two steps" in more]
    assert len(told) == (steps != 0)
    if told:
        assert ("times in 100" in told[0]) is (steps == 2)
    if steps == 2:
        two = of_units(attacker_of(plan.privacy.measure, plan.total), steps)
        assert f"at most {two.right} times in 100" in told[0]


@pytest.mark.parametrize(
    ("spec", "has", "not_has"),
    [
        ("bright-pixels", ("(types)",), ("queries", "seeds", "matrices", "bounds")),
        ("teacher-votes", ("(types, widths, bounds)",), ("The queries are public", "seeds")),
        ("digit-means", ("(types, widths, bounds, labels)", "The queries are public"), ("seeds",)),
        ("digit-density", ("(types, widths, bounds, labels)", "queries are public", "seeds"), ()),
        ("writers-density", ("seeds", "queries are public"), ()),
        ("digits-session", ("queries are public",), ("seeds",)),
    ],
)
def test_a_page_asks_to_believe_what_its_release_has(spec, has, not_has):
    plan = plan_file(SPECS / f"{spec}.yaml")
    by_person = plan.privacy.unit.of != "row"
    text = " ".join(assumptions_of(plan, assumptions("refuse", by_person=by_person)))
    assert all(word in text for word in has)
    assert not any(word in text for word in not_has)


def test_a_person_s_name_is_what_a_belief_is_about():
    plan = plan_file(SPECS / "writers-density.yaml")
    name = plan.privacy.unit.of
    assert name != "row"
    assert f"Nobody has more than one `{name}` in" in assumptions_of(plan, [UNIT_SENTENCE])[0]
