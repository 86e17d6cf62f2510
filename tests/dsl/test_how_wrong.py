"""How wrong answers will be, in words: every output of every spec has some, and their numbers are the plan's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opendp_sim.dsl.how_wrong import _STATED, _UNKNOWN, how_wrong, size
from opendp_sim.dsl.plan import plan_file

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_every_output_that_answers_is_told(spec):
    plan = plan_file(spec)
    told = how_wrong(plan)
    for name, output in plan.outputs.items():
        noise = next((v for k, v in output.expected.items() if k.startswith("noise_error")), None)
        if noise is not None:
            assert size(noise) in told[name]
            record = max(post.of_a_record for post in output.posts)
            assert record > 0, name
            assert f"{size(noise / record)} records" in told[name]
        elif name in told:
            assert told[name] == _UNKNOWN or re.search(r"\d", told[name])
    assert _UNKNOWN not in told.values() or spec.stem in {
        "digit-distances",
        "digit-means",
        "ink-distances",
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.4283, "4.43"),
        (69217.1, "69,200"),
        (999.9, "1,000"),
        (0.00123, "0.00123"),
        (-5e4, "-50,000"),
    ],
)
def test_a_size_has_three_digits(value, text):
    assert size(value) == text


def test_the_most_telling_fact_comes_first():
    names = [name for name, _ in _STATED]
    assert names.index("gap_for_95_percent") < names.index("threshold")
    assert names.index("deviation") < names.index("threshold")
