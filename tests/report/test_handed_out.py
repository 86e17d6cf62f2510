"""What a page says of the data and of what is handed out: from declarations, never from data."""

from __future__ import annotations

from pathlib import Path

import pytest

from opendp_sim.report.disclosures import disclosures
from tests._plans import planned


def handed_out(plan):
    """Yield the word and the text of each dataset and output."""
    return ((one.word, one.text) for one in disclosures(plan))


SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_every_dataset_and_output_is_told(spec):
    plan = planned(spec)
    told = dict(handed_out(plan))
    assert list(told) == [
        *(f"in: {entry.name}" for entry in plan.program.data),
        *(
            word
            for name, output in plan.outputs.items()
            for word in (f"asked: {name}", f"out: {name}")
            if word.startswith("out") or output.decl.query is not None
        ),
    ]
    assert all(told.values())


def test_the_page_says_whose_rows_are_used_and_where_they_are_from():
    told = dict(handed_out(planned(next(p for p in SPECS if p.stem == "writers-density"))))
    (data,) = (text for name, text in told.items() if name.startswith("in: "))
    assert "of one `writer` at most 2 rows are used" in data
    assert "writer (names who is protected)" in data
    told = dict(handed_out(planned(next(p for p in SPECS if p.stem == "digit-density"))))
    assert "`digits`, which comes with this package: pixels (64 numbers" in told["in: digits"]


@pytest.mark.parametrize(
    ("name", "output", "told"),
    [
        (
            "bright-pixels",
            "pixels",
            "the names of 4 items at most, with their ranks and no counts; the names",
        ),
        (
            "flights-places",
            "places",
            "the names of all items that pass, with their ranks and noisy counts",
        ),
        (
            "bright-pixels-published",
            "size_set",
            "one number from 1 to 12: how many items stand out; no item",
        ),
        (
            "bright-pixels-published",
            "adaptive_set",
            "the names of 12 items at most, in an order that tells",
        ),
        (
            "teacher-votes",
            "answers",
            "for each of 10 questions at most 3 of 4 labels, or no answer; the votes",
        ),
    ],
)
def test_a_selection_says_what_it_gives_away(name, output, told):
    found = dict(handed_out(planned(next(p for p in SPECS if p.stem == name))))
    assert found[f"out: {output}"].startswith(told)
    assert ("taken from the private data" in found[f"out: {output}"]) == (
        name in {"bright-pixels", "flights-places"}
    )
