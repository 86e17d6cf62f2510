"""A spec's text, read again and again: its plan is kept, what it assumes of files is not."""

from __future__ import annotations

import shutil
from pathlib import Path

from opendp_sim.dsl.reading import read_spec

SPECS = Path(__file__).parents[2] / "specs"
TEXT = (SPECS / "penguins-density.yaml").read_text(encoding="utf-8")


def test_a_text_is_planned_once_in_a_folder(tmp_path, monkeypatch):
    seen = read_spec(TEXT, "spec.yaml", str(tmp_path))
    assert read_spec(TEXT, "spec.yaml", str(tmp_path)).plan is seen.plan
    assert read_spec(TEXT, "spec.yaml", str(SPECS)).plan is not seen.plan
    first = read_spec(TEXT, "spec.yaml", ".")
    monkeypatch.chdir(tmp_path)
    here = read_spec(TEXT, "spec.yaml", ".")
    assert here.plan is not first.plan
    assert here.plan.program.folder == "."


def test_files_are_looked_at_each_time(tmp_path):
    """A plan that was right before is refused once its queries are the private file."""
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(SPECS / "data" / "penguins.csv", data)
    seen = read_spec(TEXT, "spec.yaml", str(tmp_path))
    assert seen.plan is not None, seen.findings
    queries = next(o.queries for o in seen.plan.program.outputs if o.queries is not None)
    named = tmp_path / str(queries.argument)
    named.symlink_to(data / "penguins.csv")
    again = read_spec(TEXT, "spec.yaml", str(tmp_path))
    assert again.plan is None
    assert {found.code for found in again.findings} == {"OS704"}
    named.unlink()
    assert read_spec(TEXT, "spec.yaml", str(tmp_path)).plan is not None
