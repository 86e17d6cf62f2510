"""Form and text stand for one program, both ways; no text makes a plan fail or opens the file."""

from __future__ import annotations

import math
import string

import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("starlette", reason="the extra `studio` is not installed")

from opendp_sim.dsl.reading import read_spec
from opendp_sim.studio.desk import Desk
from opendp_sim.studio.questions import (
    QUESTIONS,
    ChosenColumn,
    Form,
    form_from,
    form_of,
    missing_part,
    recipe_of,
)
from tests.studio.conftest import BODY

NAMES = st.text(string.ascii_letters + string.digits + " _-.:#{}[]'\"<>&é,", min_size=1, max_size=8)
WORDS = st.text(string.ascii_letters + " '\"#é", min_size=1, max_size=6).map(str.strip)
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False).map(lambda v: round(v, 3))


@st.composite
def forms(draw):
    names = draw(st.lists(NAMES, min_size=4, max_size=4, unique=True))
    columns = {}
    question = draw(st.sampled_from(list(QUESTIONS)))
    fewest = 2 if question == "regression" else 1
    for name in names[: draw(st.integers(fewest, 2))]:
        low, size = draw(NUMBERS), draw(st.floats(0.01, 1e6))
        columns[name] = ChosenColumn(low, low + size, round(size * draw(st.floats(0.02, 0.3)), 6))
    keys = draw(st.lists(WORDS.filter(bool), min_size=2, max_size=3, unique=True))
    uses = QUESTIONS[question].uses
    classes = "label" in uses or ("any_label" in uses and draw(st.booleans()))
    items = question == "top"
    person = draw(st.booleans())
    return Form(
        {"csv": draw(st.sampled_from(["a.csv", "some trips.csv"]))},
        question,
        names[2] if person else "row",
        draw(st.integers(1, 5)) if person and not items else 1,
        draw(st.sampled_from(["str", "int64"])) if person else "str",
        {} if items else columns,
        names[3] if classes else "",
        tuple(keys) if classes else (),
        list(columns)[-1] if question == "regression" else "",
        draw(st.integers(50, 10**6)) if question == "session" else 1000,
        draw(st.integers(1, 1000)) if question == "session" else 200,
        names[3] if items else "",
        draw(st.integers(1, 20)) if items else 10,
        "" if items else draw(st.sampled_from(["", "its data sheet: 'page 3'"])),
        draw(st.sampled_from([0.1, 0.5, 1.0, 2.5])),
        draw(st.sampled_from([1e-6, 1e-8])),
        draw(st.sampled_from([3.0, 8.0])),
        draw(st.sampled_from([1e-6, 1e-5])),
    )


@pytest.mark.parametrize("cases", [2, pytest.param(120, marks=pytest.mark.long)])
def test_a_form_is_read_back_from_its_text(cases):
    @settings(max_examples=cases, deadline=None, derandomize=True, database=None)
    @given(forms())
    def check(form):
        assert not missing_part(form)
        recipe = recipe_of(form)
        seen = read_spec(recipe.to_yaml(), "spec.yaml", ".")
        assert seen.plan is not None, seen.findings
        assert seen.plan.program.hash == recipe.plan.program.hash
        back = form_of(seen.plan)
        assert back is not None
        assert recipe_of(back).plan.program.hash == recipe.plan.program.hash
        again = form_from(back.plain(), back.source)
        assert recipe_of(again).plan.program.hash == recipe.plan.program.hash

    check()


@pytest.mark.parametrize(
    ("unit", "low", "high", "text"),
    [
        ("?", 0, 1, "Choose the column of the person."),
        ("", 0, 1, "Say whether a row is a person."),
        ("row", 9, 1, "Write a lower bound below the upper one: age has none."),
        ("row", math.nan, 1, "Write the bounds of age."),
    ],
)
def test_a_form_says_what_it_lacks(unit, low, high, text):
    form = Form({"csv": "t.csv"}, unit=unit, columns={"age": ChosenColumn(low, high, 0.1)})
    assert missing_part(form) == text


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seed: 0", "seed: 5"),
        ("ingest: enforce", "ingest: refuse"),
        ("add_remove: 1", "replace: 1"),
        ("frequencies: 2000", "frequencies: 500"),
        ("save: t-density.npz", "post: [density: {}], save: t-density.csv"),
        ("measure: gdp", "measure: zcdp"),
        ("name: t-density", "name: other"),
        ("bits: 20", "bits: 12"),
    ],
)
def test_a_text_that_says_more_than_a_form_has_no_form(old, new):
    columns = {name: ChosenColumn(**chosen) for name, chosen in BODY["columns"].items()}
    text = recipe_of(Form({"csv": "t.csv"}, unit="row", columns=columns)).to_yaml()
    assert form_of(read_spec(text, "s", ".").plan) is not None
    assert old in text
    seen = read_spec(text.replace(old, new), "s", ".")
    assert seen.plan is None or form_of(seen.plan) is None


@pytest.mark.parametrize("cases", [8, pytest.param(300, marks=pytest.mark.long)])
def test_no_text_breaks_a_plan(cases, tmp_path):
    (tmp_path / "t.csv").write_text("x,y,z\na,1,2\n", encoding="utf-8")
    desk = Desk(tmp_path / "t.csv")
    whole = desk.plan({"form": BODY | {"columns": {"x": {"low": 0, "high": 1, "near": 0.1}}}})
    words = sorted(set(whole["yaml"].replace(":", " ").split()))
    (tmp_path / "t.csv").unlink()  # a plan never opens it

    @settings(max_examples=cases, deadline=None, derandomize=True, database=None)
    @given(
        st.one_of(
            st.text(max_size=60),
            st.tuples(st.sampled_from(words), st.text(max_size=12)).map(
                lambda both: whole["yaml"].replace(both[0], both[1], 1)
            ),
        )
    )
    def check(text):
        assert desk.plan({"yaml": text})["state"] in ("draft", "refused", "planned")

    check()
