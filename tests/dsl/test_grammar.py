"""The grammar is one: the reader and the JSON Schema accept the same specs, mutated ones too."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from opendp_sim.core.randomness import public_generator
from opendp_sim.domains.records import Column
from opendp_sim.dsl import Refused, plan_file
from opendp_sim.dsl.grammar.budget import BUDGET
from opendp_sim.dsl.grammar.data import COLUMNS_READER, ColumnWords
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.grammar.schema import json_schema
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.dsl.text.yaml_document import parse
from tests._tiers import some

ROOT = Path(__file__).parents[2]
SPECS = [*sorted((ROOT / "specs").glob("*.yaml")), ROOT / "tests" / "golden" / "small.yaml"]
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    0.5,
    -2.5,
    "",
    "word",
    "solve",
    "none",
    "exact",
    "a.csv",
    [],
    [1],
    [0, 1],
    [1.5, "a"],
    {},
    {"a": 1},
    {"digits": {}},
    "digits",
    "row",
    "1/3",
    "50%",
)
WORDS = (
    "extra",
    "from",
    "save",
    "serve",
    "steps",
    "release",
    "replace",
    "reserve",
    "bounds",
    "public",
)
BEYOND = (
    # What a schema cannot say: names that must exist, sums, orders, and what records say of several
    # parameters at once.
    "OS102", "OS308", "OS401", "OS405",
    "names two things", "no built-in dataset", "names no column", "parameters that go together",
    "only one column names the person", "is less stable", "a public dataset has no ledger",
    "`columns.", "must be [lowest, highest]",
)  # fmt: skip


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    found = json_schema()
    Draft202012Validator.check_schema(found)
    return Draft202012Validator(json.loads(json.dumps(found)))


def data_of(path: Path) -> Any:
    return parse(path.read_text(), path.name, Notes()).data


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(found for key, inner in inside for found in places(inner, (*path, key)))]


def mutated(spec: Any, draw: Any) -> Any:
    """Return a copy with one value replaced, removed, renamed or added."""
    spec = copy.deepcopy(spec)
    every = places(spec)[1:]
    *above, last = every[draw.integers(len(every))]
    holder = spec
    for part in above:
        holder = holder[part]
    kind = draw.integers(4)
    if kind == 0:
        holder[last] = copy.deepcopy(VALUES[draw.integers(len(VALUES))])
    elif kind == 1:
        del holder[last]
    elif kind == 2 and isinstance(holder, dict):
        holder[f"{last}x"] = holder.pop(last)
    elif isinstance(holder, dict):
        holder[WORDS[draw.integers(len(WORDS))]] = copy.deepcopy(VALUES[draw.integers(len(VALUES))])
    else:
        holder.append(copy.deepcopy(VALUES[draw.integers(len(VALUES))]))
    return spec


def disagreement(spec: Any, schema: Draft202012Validator) -> str:
    """Say how reader and schema differ about ``spec``; nothing where they agree."""
    findings = draft_of(copy.deepcopy(spec)).notes.findings
    accepted = schema.is_valid(spec)
    if not accepted and not findings:
        error = next(schema.iter_errors(spec))
        return f"the schema alone refuses {list(error.path)}: {error.message[:200]}"
    strict = [f for f in findings if not any(said in f"{f.code} {f.title}" for said in BEYOND)]
    if accepted and strict:
        return f"the reader alone refuses {strict[0].path}: {strict[0].title} ({strict[0].label})"
    return ""


@pytest.mark.few(4)
@pytest.mark.parametrize("times", [15, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize("path", some(SPECS, 3), ids=lambda path: path.stem)
def test_reader_and_schema_agree_on_mutated_specs(path, times, schema):
    draw = public_generator(15, "mutated", path.stem)
    good = data_of(path)
    assert not disagreement(good, schema)
    for _ in range(times):
        spec = mutated(good, draw)
        assert not disagreement(spec, schema), spec


def test_a_word_and_its_former_name_are_one_too_many(schema):
    spec = data_of(ROOT / "specs" / "digit-density.yaml")
    spec["outputs"]["answers"]["query"] = {"builtin": "digits_test"}
    (found,) = draft_of(copy.deepcopy(spec)).notes.findings
    assert (found.code, found.label, found.help) == ("OS303", "written twice", "keep `queries`.")
    assert not schema.is_valid(spec)


@pytest.mark.parametrize("word", ["faces", "sensitivity"])
def test_a_finding_stands_at_the_word_that_was_written(word, tmp_path):
    text = (ROOT / "specs" / "digit-density.yaml").read_text()
    claimed = f"{word}: {{linf: 0.5}}"
    path = tmp_path / "small.yaml"
    path.write_text(re.sub(r"sensitivity: \{.*?\}", claimed, text))
    with pytest.raises(Refused) as caught:
        plan_file(path)
    document, (finding,) = caught.value.document, caught.value.findings
    span = document.locate(finding.path)
    assert document.lines[span.line - 1][span.column - 1 :].startswith("0.5")
    assert claimed in document.lines[span.line - 1]


def codes(notes):
    return [finding.code for finding in notes.findings]


def test_a_column_is_written_as_it_was_read():
    words = {
        "x": {"dtype": "array[f32, 3]", "bounds": [0.0, 1.0]},
        "day": {"dtype": "date", "bounds": ["2024-01-01", "2024-01-31"]},
        "kind": {"dtype": "category", "keys": ["a", "b"]},
        "person": {"dtype": "int64", "role": "privacy_id"},
    }
    notes = Notes()
    records = COLUMNS_READER.read(words, ("columns",), notes)
    assert not notes.findings
    assert {c.name: ColumnWords.of(c).plain() for c in records.columns} == words
    assert records.columns[1] == Column("day", "date", (19723.0, 19753.0))


def test_two_columns_that_name_the_person_are_one_too_many():
    notes = Notes()
    COLUMNS_READER.read(
        {n: {"dtype": "str", "role": "privacy_id"} for n in "ab"}, ("columns",), notes
    )
    assert [finding.path for finding in notes.findings] == [("columns", "b", "role")]


@pytest.mark.parametrize(
    ("value", "code"), [({}, "OS401"), ({"rho": -1.0}, "OS401"), ({"rho": "x"}, "OS304")]
)
def test_a_budget_that_bounds_nothing_is_refused(value, code):
    notes = Notes()
    assert BUDGET.read(value, ("budget",), notes) is None
    assert codes(notes) == [code]
