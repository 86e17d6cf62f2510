"""The plan says so when one column decides every distance, and is quiet when that was asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opendp_sim.dsl.advice import advice
from opendp_sim.dsl.plan import plan_file

SPEC = """
spec: opendp_sim/1
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


def test_neighbours_too(tmp_path: Path) -> None:
    release = "release: {mechanism: {ind_knn: {queries: 50, size: 600}}, spend: 100%}"
    np.savez(tmp_path / "asked.npz", carat=np.zeros(3), price=np.zeros(3))
    serve = "serve: session, store: a.session, public_queries: {npz: asked.npz}"
    (text,) = said(tmp_path, "", release, serve)
    assert text.startswith("ind_knn")


def test_it_is_quiet_where_units_were_thought_of(tmp_path: Path) -> None:
    for scale in ("range", "unit", "[4.0, 20000.0]"):
        assert said(tmp_path, f"- rescale: {{scale: {scale}}}", FOURIER) == []
    moments = SKETCH.format(key="second_moments", params="")
    assert said(tmp_path, "- rescale: {scale: unit, centre: none}", FOURIER) == []
    assert said(tmp_path, "- rescale: {scale: range}", moments) == []
