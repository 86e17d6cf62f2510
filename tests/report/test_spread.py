"""A certificate's page compares the noise with the answers that were released, a plan's with 100."""

from __future__ import annotations

from pathlib import Path

import pytest

from opendp_sim.dsl.plan.expected_error import how_wrong
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.report.answer import first_answers, spread_of

SPEC = Path(__file__).parents[2] / "specs" / "digit-density.yaml"


@pytest.fixture(scope="module")
def plan():
    return plan_file(SPEC)


def test_noise_is_a_part_of_the_middle_answer(plan, tmp_path):
    file = tmp_path / "a.csv"
    text = "density:0,density:1,noise_error:0,noise_error:1\n10,40,4.43,4.43\n44.3,90,4.43,nan\n"
    file.write_text(text, encoding="utf-8")
    (told,) = spread_of(plan, "densities", file).values()
    assert told == "The middle answer here is 42.1, and its noise 4.43: 10.5% of it."
    assert first_answers(plan, "densities", file, 1)[1] == [
        dict(zip(text.split(maxsplit=1)[0].split(","), ("10", "40", "4.43", "4.43"), strict=True))
    ]


def test_of_chosen_classes_it_says_how_many_leads_are_not_safe(plan, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("label,margin,score:0\na,1,5\nb,17,5\na,18,5\nb,40,9\n", encoding="utf-8")
    assert how_wrong(plan)["answers"].size == pytest.approx(17.57, rel=1e-3)
    (told,) = spread_of(plan, "answers", file).values()
    assert told == "2 of 4 leads here are below the safe lead: noise may have decided."


@pytest.mark.parametrize(
    ("spec", "output", "column"),
    [
        ("flights-regression", "arrival", "prediction"),
        ("digit-fourier", "classes", "margin"),
        ("penguins-density", "species", "margin"),
        ("digit-fourier", "lonely", "score"),
        ("digits-linear", "answers", "margin"),
        ("cancer-distances", "distances", "distance"),
    ],
)
def test_nothing_is_compared_with_a_number_of_another_unit(tmp_path, spec, output, column):
    """Records were told as 157 times a margin of mean kernel values, 76% of a pixel, .9% of a distance."""
    plan = plan_file(SPEC.with_name(f"{spec}.yaml"))
    file = tmp_path / "a.csv"
    file.write_text(f"label,{column}\na,0.25\nb,300\n", encoding="utf-8")
    assert spread_of(plan, output, file) == {}


def test_shares_and_means_are_compared_with_the_noise_beside_them(tmp_path):
    for spec, output, column in (
        ("writers-density", "density", "density"),
        ("cancer-distances", "distances", "distance"),
    ):
        file = tmp_path / f"{spec}.csv"
        file.write_text(f"{column},noise_error\n0.2,0.05\n0.3,0.07\n", encoding="utf-8")
        (told,) = spread_of(plan_file(SPEC.with_name(f"{spec}.yaml")), output, file).values()
        assert told.endswith("its noise 0.06: 24% of it.")


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
