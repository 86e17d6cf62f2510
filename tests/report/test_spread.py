"""A certificate's page compares the noise with the answers that were released, a plan's with 100."""

from __future__ import annotations

from pathlib import Path

import pytest

from opendp_sim.dsl.how_wrong import how_wrong
from opendp_sim.dsl.plan import plan_file
from opendp_sim.report.answered import rows_of
from opendp_sim.report.spread import spread_of

SPEC = Path(__file__).parents[2] / "specs" / "digit-density.yaml"


@pytest.fixture(scope="module")
def plan():
    return plan_file(SPEC)


def test_noise_is_a_part_of_the_middle_answer(plan, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("density:0,density:1,lower:0\n10,40,1\n44.3,90,nan\n", encoding="utf-8")
    (told,) = spread_of(plan, "densities", file).values()
    assert "The answers in this file run from 10 to 90, half of them below 42.1: " in told
    assert told.endswith("of that the noise is 11%.")  # 4.43 of 42.15
    assert rows_of(plan, "densities", file, 1)[1] == [
        {"density:0": "10", "density:1": "40", "lower:0": "1"}
    ]


def test_of_chosen_classes_it_says_how_many_leads_are_not_safe(plan, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("label,margin,score:0\na,1,5\nb,12,5\na,13,5\nb,40,9\n", encoding="utf-8")
    assert how_wrong(plan)["answers"].size == pytest.approx(12.525, rel=1e-3)
    (told,) = spread_of(plan, "answers", file).values()
    assert told.endswith("half of them below 12.5: 50% of them are not safe by this rule.")


def test_shares_of_the_records_are_not_compared_with_records(tmp_path):
    """11.1 records were told as 38.9 times an answer of .286."""
    plan = plan_file(SPEC.with_name("writers-density.yaml"))
    (name,) = (n for n, o in plan.outputs.items() if o.posts)
    file = tmp_path / "a.csv"
    file.write_text("density\n0.25\n0.35\n", encoding="utf-8")
    assert spread_of(plan, name, file) == {}
    assert "divided by the number of records" in how_wrong(plan)[name].whole


@pytest.mark.parametrize(
    "text",
    ["density:0\n", "density:0\n-3\n-1\n", "other\n3\n", "density:0\nnan\n", ""],
    ids=["no row", "below 0", "another column", "no number", "empty"],
)
def test_where_there_is_nothing_to_compare_with_nothing_is_said(plan, tmp_path, text):
    file = tmp_path / "a.csv"
    file.write_text(text, encoding="utf-8")
    assert spread_of(plan, "densities", file) == {}
    assert spread_of(plan, "densities", tmp_path / "a.json") == {}
