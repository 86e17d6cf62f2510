"""Absurd sizes are refused from the parameters alone: bytes, and what to lower."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app

SPEC = """
spec: opendp_sim/1
name: large
data:
  people:
    source: {{npz: people.npz}}
    columns: {{x: {{dtype: "array[f32, {columns}]", bounds: [0, 16]}}}}
privacy: {{unit: {{add_remove: 1, of: row}}, measure: zcdp, budget: {{epsilon: 1.0, delta: 1.0e-6}}}}
flow:
  rows:
    from: people
    steps:
      - select: {{features: x}}
      - quantize: {{bits: 8}}
      - {step}
      - race_sketch: {{repetitions: {r}, buckets: {w}, family: {{p_stable_l2: {{width: 6.0}}}}, seed: 7}}
  noisy: {{from: rows, release: {{noise: gaussian, scale: solve, spend: 100%}}}}
outputs:
  density: {{from: noisy, save: out.npz}}
"""
JL = "jl_projection: {dimension: %d, seed: 1}"


@pytest.mark.parametrize(
    ("columns", "step", "r", "w", "lower"),
    [
        (65536, "quantize: {bits: 8}", 65536, 2, "repetitions"),
        (65536, JL % 65536, 8, 8, "dimension"),
        (4, JL % 2, 65536, 2**20, "repetitions"),
    ],
)
def test_what_memory_cannot_hold_is_refused_in_bytes(
    tmp_path: Path, columns: int, step: str, r: int, w: int, lower: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for module in ("core.memory", "dsl.plan"):
        monkeypatch.setattr(f"opendp_sim.{module}.machine_memory", lambda: 2**34)
    if step.startswith("quantize"):
        text = SPEC.replace("      - {step}\n", "").format(columns=columns, r=r, w=w)
    else:
        text = SPEC.format(columns=columns, step=step, r=r, w=w)
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    done = CliRunner().invoke(app, ["check", str(file)])
    assert done.exit_code == 1, done.stderr
    assert "error[OS103]" in done.stderr
    assert "bytes" in done.stderr
    assert lower in done.stderr


@pytest.mark.parametrize(
    ("raw", "place"),
    [(b"spec: opendp_sim/1\nname: a\xff\n", ":2:8"), (b"# c\n- 1\n", ":2:1"), (b"\n", ":1:1")],
)
def test_what_is_no_spec_at_all_is_refused_with_its_line(
    tmp_path: Path, raw: bytes, place: str
) -> None:
    file = tmp_path / "spec.yaml"
    file.write_bytes(raw)
    done = CliRunner().invoke(app, ["check", str(file)])
    assert done.exit_code == 1
    assert f"{file}{place}\n" in done.stderr
