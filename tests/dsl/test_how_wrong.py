"""How wrong answers will be, in words: every output of every spec has some, and their numbers are the plan's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import opendp_sim as sim
from opendp_sim.dsl.how_wrong import _STATED, _UNKNOWN, Wrong, asked_later, how_wrong, size
from opendp_sim.dsl.plan import plan_file

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_every_output_that_answers_is_told(spec):
    plan = plan_file(spec)
    told = how_wrong(plan)
    for name, output in plan.outputs.items():
        noise = next((v for k, v in output.expected.items() if k.startswith("noise_error")), None)
        if noise is not None:
            assert size(noise) in told[name].whole
            record = max(post.of_a_record for post in output.posts)
            assert record > 0, name
            assert f"{size(noise / record)} records" in told[name].brief
            assert " of 100)" in told[name].brief
        elif name in told:
            assert told[name].text == _UNKNOWN or re.search(r"\d", told[name].text)
    unknown = {name for name, error in told.items() if error.text == _UNKNOWN}
    assert all(plan.outputs[name].decl.post for name in unknown)
    assert not unknown or spec.stem in {"digit-distances", "digit-means", "ink-distances"}


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
    names = [name for name, *_ in _STATED]
    assert names.index("gap_for_95_percent") < names.index("threshold")
    assert names.index("deviation") < names.index("threshold")


@pytest.mark.parametrize(
    ("records", "brief", "beside"),
    [
        (4.428, "(4.4% of 100)", "beside 10,000 it is 0.044%"),
        (49.9, "(50% of 100)", "beside 10,000 it is 0.5%"),
        (257.0, "(26% of 1,000)", "beside 100,000 it is 0.26%"),
        (69217.0, "(6.9% of 1,000,000)", "beside 100,000,000 it is 0.069%"),
        (1e-9, "(hardly anything of 100)", "it is hardly anything"),
    ],
)
def test_an_error_is_told_beside_what_it_is_an_error_of(records, brief, beside):
    error = Wrong("2 of 3 answers within so many records", records, "records")
    assert error.brief.endswith(brief)
    assert error.whole.endswith(beside)


def test_an_error_of_unknown_unit_has_no_share():
    assert Wrong("so wrong").brief == Wrong("so wrong").whole == "so wrong"
    assert "%" not in Wrong("so wrong", float("inf"), "votes").brief


@pytest.mark.parametrize("columns", [{"x": (0, 1)}, {"x": (-90, 600), "y": (-90, 600)}])
def test_what_is_asked_later_has_an_error_too(columns):
    """A recipe only saves its release; what it will answer is told by the questions it can be asked."""
    fit = sim.density(columns, bandwidth=0.3 if len(columns) == 1 else 15.0)
    assert how_wrong(fit.plan) == {}
    told = asked_later(fit.plan)
    assert list(told) == ["density of release"]
    assert "within " in told["density of release"].brief
    assert "records" in told["density of release"].brief
    assert told["density of release"].whole in repr(fit)
    assert "distance of release" in asked_later(sim.means(columns).plan)
    spec = plan_file(next(path for path in SPECS if path.stem == "digit-density"))
    both = asked_later(spec)["density of release"], how_wrong(spec)["densities"]
    assert both[0] == both[1]
