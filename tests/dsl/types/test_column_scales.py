"""The plan says so when one column decides every distance, and is quiet when that was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.dsl.plan.advice import advice
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.text.diagnostic import Refused

SPEC = """
spec: opendp_sim/2
name: stones
data:
  stones:
    source: {{npz: stones.npz}}
    columns:
      carat: {{dtype: float64, bounds: [0.0, 4.0]}}
      price: {{dtype: float64, bounds: [0.0, 20000.0]}}
      kind: {{dtype: category, keys: [a, b]}}
privacy:
  unit: {{add_remove: 1, of: row}}
  measure: zcdp
  budget: {{epsilon: 1.0, delta: 1.0e-6}}
flow:
  rows:
    from: stones
    steps:
      - select: {{features: [carat, price], label: kind}}
      {rescale}
      - quantize: {{bits: 12}}
  noisy:
    from: rows
    {release}
outputs:
  all: {{from: noisy, {output}}}
"""
SKETCH = "steps: [{key}: {{{params}}}]\n    release: {{noise: gaussian, scale: solve, spend: 100%}}"
FOURIER = SKETCH.format(
    key="fourier_sketch", params="frequencies: 9, kernel: {gaussian: {bandwidth: 0.3}}, seed: 1"
)
LAPLACIAN = SKETCH.format(
    key="fourier_sketch", params="frequencies: 9, kernel: {laplacian: {bandwidth: 0.3}}, seed: 1"
)


def said(tmp_path: Path, rescale: str, release: str, output: str = "save: out/a.npz") -> list[str]:
    np.savez(
        tmp_path / "stones.npz",
        carat=np.zeros(3),
        price=np.zeros(3),
        kind=np.array(["a", "b", "a"]),
    )
    path = tmp_path / "stones.yaml"
    path.write_text(SPEC.format(rescale=rescale, release=release, output=output), "utf-8")
    return [text for text in advice(plan_file(path)) if "rescale" in text]


def test_one_column_decides_and_the_other_has_no_steps(tmp_path: Path) -> None:
    """Reproduced: a carat of [0, 4] beside a price of [0, 20000] at 12 bits has one step."""
    (text,) = said(tmp_path, "", FOURIER)
    for part in (
        "fourier_sketch on stones",
        "`price` holds 100.0%",
        "`carat` has 1 grid steps",
        "4,096",
    ):
        assert part in text
    (text,) = said(tmp_path, "", LAPLACIAN)
    assert "holds 100.0%" in text


@pytest.mark.parametrize(
    ("key", "steps"),
    [
        ("moments_sketch", "moments_sketch: {}"),
        ("threshold_sketch", "threshold_sketch: {thresholds: 9}"),
        ("jl_projection", "jl_projection: {dimension: 2, seed: 1}}, {moments_sketch: {}"),
    ],
)
def test_distances_and_projections_too(tmp_path: Path, key: str, steps: str) -> None:
    release = f"steps: [{{{steps}}}]\n    release: {{noise: gaussian, scale: solve, spend: 100%}}"
    (text,) = said(tmp_path, "", release)
    assert text.startswith(f"{key} on stones")


def test_it_is_quiet_where_units_were_thought_of(tmp_path: Path) -> None:
    for scale in ("range", "unit", "[4.0, 20000.0]"):
        assert said(tmp_path, f"- rescale: {{scale: {scale}}}", FOURIER) == []
    moments = SKETCH.format(key="second_moments", params="")
    assert said(tmp_path, "- rescale: {scale: unit, centre: none}", FOURIER) == []
    assert said(tmp_path, "- rescale: {scale: range}", moments) == []


def planned_at(tmp_path: Path, rescale: str, release: str) -> Path:
    said(tmp_path, rescale, release)
    return tmp_path / "stones.yaml"


def test_who_skips_the_plan_is_told_too(tmp_path: Path) -> None:
    path = str(planned_at(tmp_path, "", FOURIER))
    for command in ("plan", "apply"):
        run = CliRunner().invoke(app, [command, path])
        assert "1 remark on this plan; `-v` shows all" in run.output
    for command in (["check"], ["apply", "-v"]):
        run = CliRunner().invoke(app, [*command, path])
        assert run.exit_code == 0, run.output
        text = " ".join(run.output.split())
        assert "advice fourier_sketch on stones: column `price` holds 100.0%" in text
    run = CliRunner().invoke(app, ["check", path, "--json"])
    assert "holds 100.0%" in json.loads(run.output)["advice"][0]


def test_a_rescale_that_stands_there_is_to_be_changed(tmp_path: Path) -> None:
    moments = SKETCH.format(key="second_moments", params="")
    told = {}
    for rescale in ("", "- rescale: {scale: unit}"):
        with pytest.raises(Refused) as refused:
            said(tmp_path, rescale, moments)
        told[rescale] = " ".join(str(refused.value).split())
    assert "put `rescale: {scale: range}` before" in told[""]
    assert "change the `rescale` before" in told["- rescale: {scale: unit}"]


def test_a_plan_names_the_unit_of_each_column(tmp_path: Path) -> None:
    path = str(planned_at(tmp_path, "- rescale: {scale: range}", FOURIER))
    run = CliRunner().invoke(app, ["plan", path, "-v"])
    text = " ".join(run.output.split())
    assert "`carat` 4 about 2, `price` 20000 about 10000" in text
    assert "distances, bandwidths count in units" in text
