"""Selection through a spec: what the unit implies, and how bad votes are refused."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from opendp_sim.cli import app

SPEC = (Path(__file__).parent.parent / "specs" / "teacher-votes.yaml").read_text(encoding="utf-8")


def run(folder: Path, spec: str, *command: str):
    path = folder / "votes.yaml"
    path.write_text(spec, encoding="utf-8")
    return CliRunner().invoke(app, [*command, str(path)])


def test_the_distance_of_a_threshold_follows_the_unit(tmp_path):
    stated = run(tmp_path, SPEC, "plan")
    left_out = run(tmp_path, SPEC.replace(", distance: 2", ""), "plan")
    assert stated.exit_code == left_out.exit_code == 0, left_out.output

    def total(found):
        return re.findall(r"rho [\d.e-]+, delta [\d.e-]+", found.output)

    assert total(left_out) == total(stated)
    assert total(stated)


def test_a_distance_below_the_units_is_named_where_no_scale_fits(tmp_path):
    found = run(tmp_path, SPEC.replace("distance: 2", "distance: 1"), "plan")
    assert found.exit_code != 0
    assert "`distance` is below the" in " ".join(found.output.split())
