"""Columns, budgets and schemas by themselves: each is read without the section that holds it."""

from __future__ import annotations

import pytest

from opendp_sim.domains.records import Column
from opendp_sim.dsl.grammar.budget import BUDGET
from opendp_sim.dsl.grammar.data import COLUMNS_READER, ColumnWords
from opendp_sim.dsl.text.diagnostic import Notes


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
