"""A certificate's page compares the noise with the answers that were released, a plan's with 100."""

from __future__ import annotations

from pathlib import Path

import pytest

from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.report.answer import released_parts, spread_of

SPEC = Path(__file__).parents[2] / "specs" / "digit-density.yaml"


@pytest.fixture(scope="module")
def plan():
    return plan_file(SPEC)


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


def test_bars_and_intervals_are_of_one_column_and_in_its_unit(tmp_path):
    """Bars of counts, in records, had the intervals and the noise of means."""
    text = SPEC.with_name("penguins-means.yaml").read_text("utf-8").partition("outputs:")[0]
    spec, file = tmp_path / "totals.yaml", tmp_path / "totals.csv"
    spec.write_text(
        f"{text}outputs: {{table: {{from: noisy, post: [totals], save: totals.csv}}}}\n"
    )
    names = ("count", "count_error", "sum", "sum_error", "mean", "noise_error", "lower", "upper")
    head = ",".join(f"{name}:{label}" for name in names for label in ("Adelie", "Gentoo"))
    numbers = "150,120,1,1,5900,5700,9,9,39,47,0.5,0.6,38,46,40,48"
    file.write_text(f"column,{head}\n0,{numbers}\n", encoding="utf-8")
    drawn = released_parts(plan_file(spec), "table", file)[0]
    assert "mean, in units of the column" in drawn.body
    assert "by at most 1.1 to 1.3" in drawn.note
