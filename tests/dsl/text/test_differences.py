"""What a spec and a certificate differ in is named by its field, and no value is told."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.dsl.text.compare_documents import differences, told_differences
from tests._small import write_small


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ({"a": 1}, {"a": 1}, ""),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "`a.b[1]` differs"),
        ({"a": 1, "b": 2}, {"a": 1}, "`b` (only in the spec) differs"),
        ({"a": 1}, {"a": 1, "c": 2}, "`c` (only in the certificate) differs"),
        ({"a": 1}, {"a": True}, "`a` differs"),
        (dict.fromkeys("abcdefg", 1), dict.fromkeys("abcdefg", 2), "`d`, `e` and more differ"),
    ],
)
def test_fields_that_differ_are_named(ours, theirs, told):
    said = told_differences(ours, theirs)
    assert said.endswith(told)
    assert bool(said) == bool(list(differences(ours, theirs)))


def test_a_plan_document_names_the_part_that_was_edited(tmp_path):
    spec = write_small(tmp_path)
    document = tmp_path / "small.plan"
    assert CliRunner().invoke(app, ["plan", str(spec), "-o", str(document)]).exit_code == 0
    spec.write_text(spec.read_text().replace("epsilon: 1.0", "epsilon: 3.25"))
    shown = CliRunner().invoke(app, ["apply", str(document)])
    said = " ".join((shown.stdout + shown.stderr).split())
    assert shown.exit_code == 1
    assert "a spec that was edited since: " in said
    assert "`privacy.budget.epsilon`" in said
