"""Absurd sizes are refused from the parameters alone: bytes, and what to lower."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.cli import app
from opendp_sim.core.arithmetic.grid import PhaseProjection
from opendp_sim.core.arithmetic.lazy_matrices import AT_ONCE
from opendp_sim.core.errors import SpaceError
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.execute import apply
from opendp_sim.dsl.run.inputs import open_public
from opendp_sim.transformations.row_maps.jl_projection import JlProjection

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
    for module in ("core.memory", "dsl.plan.plan"):
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


LARGE = [
    SPEC.format(columns=784, step="quantize: {bits: 8}", r=65536, w=64),
    SPEC.format(columns=4096, step=JL % 65536, r=4, w=64),
    SPEC.format(columns=784, step="l1_embedding: {directions: 65536, seed: 1}", r=4, w=64),
    SPEC.format(columns=784, step="quantize: {bits: 8}", r=4, w=64).replace(
        "race_sketch: {repetitions: 4, buckets: 64, family: {p_stable_l2: {width: 6.0}}",
        "fourier_sketch: {frequencies: 65536, kernel: {gaussian: {bandwidth: 6.0}}",
    ),
]


@pytest.mark.parametrize("text", LARGE)
def test_nothing_large_is_drawn_to_check_or_plan(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(*_given: object) -> None:
        raise AssertionError("drawn")

    monkeypatch.setattr(
        "opendp_sim.transformations.row_maps.jl_projection._Dense.signs", property(drawn)
    )
    usual = PhaseProjection.fit

    def fit(matrix: Any, offset: Any, magnitude: int, where: str) -> PhaseProjection:
        assert matrix.size <= AT_ONCE
        return usual(matrix, offset, magnitude, where)

    monkeypatch.setattr(PhaseProjection, "fit", fit)
    file = tmp_path / "spec.yaml"
    file.write_text(
        text.replace("      - quantize: {bits: 8}\n" * 2, "      - quantize: {bits: 8}\n")
    )
    done = CliRunner().invoke(app, ["plan", str(file)])
    assert done.exit_code == 0, (done.stderr, done.exception)
    if "jl_projection" in text:
        with pytest.raises(AssertionError):  # what would have been seen
            open_public(plan_file(file), {}, lambda _phase, _rows: None)


def test_what_only_large_draws_can_tell_is_refused_before_a_charge(tmp_path: Path) -> None:
    text = SPEC.format(columns=784, step="quantize: {bits: 8}", r=1024, w=64)
    text = text.replace("      - quantize: {bits: 8}\n" * 2, "      - quantize: {bits: 8}\n")
    text = text.replace("width: 6.0", "width: 1.0e-12").replace(
        "    columns:", "    ledger: {file: people.ledger, limit: {rho: 9.0}}\n    columns:"
    )
    (tmp_path / "spec.yaml").write_text(text)
    plan = plan_file(tmp_path / "spec.yaml")
    with pytest.raises(SpaceError, match="OS203"):
        apply(plan)  # there is no people.npz: nothing was opened either
    with Ledger.open(tmp_path / "people.ledger") as ledger:
        assert not ledger.entries


def test_the_type_of_a_large_projection_holds_for_any_signs() -> None:
    grid = GridRows(width=8, unit=1.0, lower=(0,), upper=(16,), l2=20)
    small = JlProjection(dimension=4, seed=1)
    drawn = small.bind(grid, Symmetric()).output
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("opendp_sim.transformations.row_maps.jl_projection._AT_ONCE", 0)
        stated = small.bind(grid, Symmetric()).output
    assert isinstance(drawn, GridRows)
    assert isinstance(stated, GridRows)
    assert drawn.l2 is not None
    assert stated.l2 is not None
    assert stated.l2 >= drawn.l2
    assert stated.lower <= drawn.lower
    assert stated.upper >= drawn.upper
    longest = math.isqrt(8 * 20**2)  # Cauchy and Schwarz, whatever the signs
    for signs in itertools.product((-1, 1), repeat=8):
        reached = 16 * max(signs.count(1), signs.count(-1))
        assert max(-stated.lower[0], stated.upper[0]) >= min(reached, longest)


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


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("source", "mib"),
    [
        ("{npz: people.npz}", 0),
        ("{csv: t.csv}", 34 + 6),
        ("{parquet: t.parquet}", 34 + 12 + 2 * 16 + 6 * 2 + 2 * 6 + 2 * 4 / 64),
    ],
)
def test_the_memory_of_a_plan_counts_what_reads_the_file(
    tmp_path: Path, source: str, mib: float
) -> None:
    """pyarrow, two readers with a row group and pieces each, and their blocks."""
    text = SPEC.format(columns=4, step=JL % 2, r=8, w=8)
    found = []
    for name, one in (("npz", "{npz: people.npz}"), ("other", source)):
        file = tmp_path / f"{name}.yaml"
        file.write_text(text.replace("{npz: people.npz}", one))
        found.append(plan_file(file).plain()["memory_bytes"])
    assert found[1] - found[0] == mib * 2**20
