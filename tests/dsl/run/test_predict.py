"""`plan --like --size`: expected errors from public points, part by part, and the refusal of the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.core.errors import SimError
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.answer import reference
from opendp_sim.dsl.run.predict import predict_errors

SPECS = Path(__file__).parents[3] / "specs"
CITIES, TUMOURS = (str(SPECS / "data" / f"{name}-queries.csv") for name in ("cities", "cancer"))


def test_the_command_prints_it_beside_the_plan() -> None:
    spec = str(SPECS / "cities-smooth.yaml")
    run = CliRunner().invoke(app, ["plan", spec, "--like", CITIES, "--size", "500"])
    assert run.exit_code == 0
    assert "predicted mixture_density: off by" in " ".join(run.output.split())
    run = CliRunner().invoke(app, ["plan", spec, "--like", CITIES, "--json"])
    parts = json.loads(run.output)["predicted"]["mixture_density"]
    assert set(parts) == {"noise", "sampling", "maps", "bias", "least", "total"}


def test_classes_are_refused() -> None:
    for spec in ("digit-density.yaml", "cancer-distances.yaml"):
        points = "digits_test" if spec.startswith("digit") else TUMOURS
        with pytest.raises(SimError, match="OS607"):
            predict_errors(plan_file(SPECS / spec), reference(points), 100)
