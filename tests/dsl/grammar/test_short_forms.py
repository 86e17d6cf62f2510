"""An output that states its stage, and a release that is a share, are the program of the long text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opendp_sim.dsl import plan_file, program
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.plan import plan_of
from opendp_sim.dsl.text import yaml_document as yaml
from opendp_sim.dsl.text.diagnostic import Notes, Refused, pretty

HEAD = """\
spec: opendp_sim/2
name: rides
data:
  rides:
    source: {memory: rides}
    columns: {x: {dtype: float64, bounds: [0, 1]}, hour: {dtype: category, keys: [5, 6]}}
privacy: {unit: {add_remove: 1, of: row}, measure: MEASURE, budget: {epsilon: 1.0, delta: 1.0e-6}}
"""
LONG = """\
flow:
  grid: {from: rides, steps: [select: {features: x}, quantize: {bits: 8}]}
  map_released:
    from: grid
    steps:
      - fourier_sketch: {frequencies: 50, kernel: {gaussian: {bandwidth: 0.1}}, seed: 3}
    release: {noise: NOISE, scale: solve, spend: 60%}
    expect: {stability: 1}
  hours_released:
    from: rides
    steps: [vote_counts: {item: hour}]
    release: {noise: NOISE, spend: 40%}
outputs:
  map: {from: map_released, post: [density: {}], save: map.npz}
  hours: {from: hours_released, post: [counts: {}], save: hours.csv}
"""
SHORT = """\
flow:
  grid: {from: rides, steps: [select: {features: x}, quantize: {bits: 8}]}
outputs:
  map:
    from: grid
    steps: [fourier_sketch: {frequencies: 50, kernel: {gaussian: {bandwidth: 0.1}}, seed: 3}]
    expect: {stability: 1}
    release: 60%
    post: [density]
    save: map.npz
  hours: {from: rides, steps: [vote_counts: {item: hour}], release: 2/5, post: [counts], save: hours.csv}
"""


def text_of(body: str, measure: str = "zcdp", noise: str = "gaussian") -> str:
    head = HEAD.replace("MEASURE", measure)
    if measure == "pure":
        head = head.replace(", delta: 1.0e-6", "")
    return (head + body).replace("NOISE", noise)


def draft(text: str) -> Any:
    notes = Notes()
    document = yaml.parse(text, "spec.yaml", notes)
    return draft_of(document.data, document=document, notes=notes)


def findings(text: str) -> list[tuple[str, tuple[Any, ...]]]:
    with pytest.raises(Refused) as caught:
        plan_of(draft(text))
    return [(one.code, one.path) for one in caught.value.findings]


@pytest.mark.parametrize(
    ("measure", "noise"),
    [("zcdp", "gaussian"), ("gdp", "gaussian"), ("pure", "laplace"), ("approx_zcdp", "gaussian")],
)
def test_both_texts_have_one_hash_and_one_plan(measure, noise):
    long, short = (draft(text_of(body, measure, noise)) for body in (LONG, SHORT))
    assert not long.notes.findings
    assert not short.notes.findings
    assert short.program.canonical == long.program.canonical
    assert short.program.hash == long.program.hash
    assert plan_of(short).total == plan_of(long).total


def test_a_builder_writes_the_same():
    made = (
        program("rides")
        .data(
            "rides",
            source={"memory": "rides"},
            columns={"x": {"dtype": "float64", "bounds": [0, 1]}},
        )
        .privacy(unit={"add_remove": 1, "of": "row"}, measure="pure", budget={"epsilon": 1.0})
    )
    kernel = {"gaussian": {"bandwidth": 0.1}}
    waves = [
        {"select": {"features": "x"}},
        {"quantize": {"bits": 8}},
        {"fourier_sketch": {"frequencies": 50, "kernel": kernel, "seed": 3}},
    ]
    made.output("map", "rides", steps=waves, release="100%", post=["density"], save="map.npz")
    stage = made.build().plain()["flow"]["map_released"]
    assert stage["steps"][2]["fourier_sketch"]["kernel"]["gaussian"]["bandwidth"] == 0.1 * 2**0.5
    again = draft(made.to_yaml())
    assert not again.notes.findings
    assert again.program.hash == made.build().hash


def test_a_size_is_solved_from_an_error_in_an_output_too():
    goal = "frequencies: {error: 1000, size: 20000, of: map}"
    solved = [
        plan_of(draft(text_of(body).replace("frequencies: 50", goal))) for body in (LONG, SHORT)
    ]
    assert solved[0].program.hash == solved[1].program.hash
    assert "error" not in solved[0].program.canonical


@pytest.mark.parametrize(
    ("old", "new", "code", "path"),
    [
        (
            "frequencies: 50",
            "frequencies: 0",
            "OS101",
            "outputs.map.steps[0].fourier_sketch.frequencies",
        ),
        ("item: hour", "item: day", "OS204", "outputs.hours.steps[0].vote_counts"),
        ("release: 2/5", "release: 50%", "OS401", "outputs.hours.release.spend"),
        ("release: 2/5", "release: 150%", "OS401", "outputs.hours.release"),
        ("release: 2/5", "relase: 40%", "OS303", "outputs.hours.relase"),
        (", release: 2/5", "", "OS307", "outputs.hours.from"),
        ("  hours: {from: rides", "  hours: {from: nowhere", "OS303", "outputs.hours.from"),
        ("  grid: {", "  hours_released: {", "OS303", "outputs.hours"),
        ("stability: 1", "stability: 0", "OS301", "outputs.map.expect.stability"),
    ],
)
def test_what_is_wrong_is_found_where_it_is_written(old, new, code, path):
    text = text_of(SHORT)
    assert text.count(old) == 1
    found = [(where, pretty(place)) for where, place in findings(text.replace(old, new))]
    assert (code, path) in found


def test_without_a_stage_anywhere_the_flow_is_missing():
    text = text_of(SHORT)
    start, end = text.index("flow:"), text.index("outputs:")
    whole = text[:start] + text[end:].replace("from: grid", "from: rides").replace(
        "steps: [fourier", "steps: [select: {features: x}, quantize: {bits: 8}, fourier"
    )
    assert not draft(whole).notes.findings
    bare = text[:start] + "outputs:\n  map: {from: rides, save: map.npz}\n"
    assert ("OS305", ("?flow",)) in findings(bare)


def test_the_dashboard_is_ten_lines_after_its_columns():
    """Count, histogram, mean, quantile, density and top-k under one ledger."""
    path = Path(__file__).parents[3] / "specs" / "flights-dashboard.yaml"
    text = path.read_text("utf-8")
    outputs = text[text.index("outputs:") :].splitlines()[1:]
    assert len(outputs) <= 10
    assert {*plan_file(path).outputs} == {"totals", "quantiles", "density", "hours", "top"}


@pytest.mark.parametrize("share", ["1e99999999", "1e-9999999999", "1E+99999999%"])
def test_a_share_of_a_far_exponent_is_refused_at_once(share):
    """Written out it has a hundred million digits."""
    for release in (f"'{share}'", f"{{noise: gaussian, scale: solve, spend: '{share}'}}"):
        found = findings(text_of(SHORT).replace("release: 2/5", f"release: {release}"))
        assert found[0][0] == "OS401"
