"""Blocks are cut by the widest stage of a chain: memory does not follow what a row map makes of a record."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.cli import app
from opendp_sim.core.claims import Stable, Stage
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import GridRows, Rows, length, take
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.io import blocks
from opendp_sim.io.blocks import rows_at_once, widest
from opendp_sim.io.fold import build_sketch, collect_rows
from opendp_sim.testing import Case
from tests.cases import cases

ROW_MAPS = {key: case for key, case in cases().items() if case.is_row_map}
WIDER: dict[str, dict[str, Any]] = {
    "fourier_features": {"frequencies": 60, "bandwidth": 1.0, "seed": 1},
    "jl_projection": {"dimension": 70, "seed": 1},
    "l1_embedding": {"directions": 80, "seed": 1},
}


@pytest.mark.parametrize("key", sorted(ROW_MAPS))
def test_no_row_map_ever_has_more_than_its_share(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The law: with any limit, whatever made the blocks, every call of a map gets at most so many rows,
    # and the rows are the same bits.
    case = ROW_MAPS[key]
    mechanism = case.mechanism.model_copy(update=WIDER.get(key, {}))
    claim = mechanism.bind(case.domain, case.metric)
    assert isinstance(claim, Stable)
    data = _data(case)
    made: list[tuple[int, int]] = []

    def spied(function: Any) -> Any:
        def called(block: Any) -> Any:
            out = function(block)
            made.append((length(out), out.values.shape[1] if isinstance(out, Rows) else 1))
            return out

        return called

    changes: dict[str, Any] = {}
    if claim.function is not None:
        changes["function"] = spied(claim.function)
    if claim.survey is not None:
        survey = claim.survey
        changes["survey"] = lambda opened: spied(survey(opened))
    stages: tuple[Stage, ...] = (
        Stage(mechanism, case.domain, case.metric, replace(claim, **changes)),
    )
    if isinstance(claim.output, Records):  # what collects rows wants some at the end
        rest = bind_steps(
            claim.output,
            claim.output_metric or case.metric,
            [lookup("select")(features=["x", "age"], label="kind")],
        )
        stages += rest
    expected = collect_rows(stages, lambda: iter([data]))
    width = widest(stages)[0]
    assert width == expected.values.shape[1]
    assert sum(rows for rows, _ in made) == (made[0][0] if len(made) == 1 else -1)
    made.clear()
    monkeypatch.setattr(blocks, "_WIDE", 2 * width)
    monkeypatch.setattr(blocks, "_FEWEST", 1)
    found = collect_rows(stages, lambda: iter([data]))
    assert rows_at_once(stages) == 2
    assert max(rows for rows, _ in made) <= 2
    assert found.values.tobytes() == expected.values.tobytes()
    assert found.values.dtype == expected.values.dtype


def _data(case: Case) -> Any:
    """Return some members of a case's domain: by hand, as a search is no test of memory."""
    domain: Any = case.domain
    n = 11
    if isinstance(domain, Records):
        made = {
            column.name: _cells(column, domain.no_records()[column.name], n)
            for column in domain.columns
        }
        assert domain.member(made)
        return made
    low, high = (
        np.broadcast_to(np.array(end, float), domain.width) for end in (domain.lower, domain.upper)
    )
    values = np.random.default_rng(3).uniform(low, high, (n, domain.width))
    if isinstance(domain, GridRows):
        values = np.clip(np.rint(values * 0.3), low, high)
    labels = None if domain.labels is None else np.arange(n) % len(domain.labels)
    rows = Rows(values, labels, np.arange(n) % 4 if domain.ids else None)
    assert domain.member(rows)
    return rows


def _cells(column: Column, none: Any, n: int) -> Any:
    if column.keys:
        return np.arange(n) % len(column.keys)
    if none.dtype.kind == "O":
        return np.array([f"p{i % 4}" for i in range(n)], dtype=object)
    low, high = column.bounds or (0, 1)
    values = np.linspace(np.max(low), np.min(high), n).astype(none.dtype)
    return np.repeat(values[:, None], column.width, axis=1).reshape(n, *none.shape[1:])


def test_persons_keep_the_same_rows_however_blocks_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = GridRows(width=3, unit=1.0, lower=(-9,), upper=(9,), ids=True)
    steps = [
        lookup("bound_contributions")(max_rows=2, seed=4),
        lookup("fourier_features")(frequencies=20, bandwidth=2.0, seed=1),
        lookup("moments_sketch")(squares=False),
    ]
    stages = bind_steps(grid, IdDistance("id"), steps)
    values = np.random.default_rng(1).integers(-9, 10, (60, 3)).astype(float)
    data = Rows(values, None, np.arange(60) % 7)

    def opened() -> Iterator[Any]:
        yield take(data, slice(0, 41))
        yield take(data, slice(41, 60))

    expected = build_sketch(stages, opened)
    monkeypatch.setattr(blocks, "_WIDE", 120)
    monkeypatch.setattr(blocks, "_FEWEST", 1)
    for workers in (1, 3):
        told: list[int] = []
        found = build_sketch(stages, opened, workers=workers, on_block=told.append)
        assert np.array_equal(found, expected)
        assert max(told) <= 3
        assert sum(told) == 60


def test_a_wide_row_map_stays_within_its_plan() -> None:
    # 8,192 records as 4,096 numbers each are 256 MiB; the blocks are 32 MiB each.
    grid = GridRows(width=2, unit=1.0, lower=(-9,), upper=(9,))
    steps = [
        lookup("fourier_features")(frequencies=2048, bandwidth=4.0, seed=1),
        lookup("moments_sketch")(squares=False),
    ]
    stages = bind_steps(grid, Symmetric(), steps)
    data = Rows(np.random.default_rng(1).integers(-9, 10, (8192, 2)).astype(float))
    tracemalloc.start()
    build_sketch(stages, lambda: iter([data]), workers=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 8 * rows_at_once(stages) * 4096
    assert peak < 200 * 2**20


def test_small_blocks_are_joined_before_a_large_sketch_alone() -> None:
    """In order, and with the same bits; a small sketch takes them as they come."""
    records = Records((Column("x", "array[f64, 2]", bounds=(-9.0, 9.0)),))
    values = np.random.default_rng(1).uniform(-9, 9, (70_000, 2))

    def opened() -> Iterator[Any]:
        return ({"x": values[at : at + 1000]} for at in range(0, len(values), 1000))

    for levels, longest in ((4, 1000), (16, 2**19)):
        steps = [
            lookup("select")(features=["x"]),
            lookup("quantize")(bits=16),
            lookup("distance_tree")(levels=levels),
        ]
        stages = bind_steps(records, Symmetric(), steps)
        told: list[int] = []
        found = build_sketch(stages, opened, workers=1, on_block=told.append)
        assert max(told) == min(longest, len(values))
        assert sum(told) == len(values)
        assert np.array_equal(found, build_sketch(stages, lambda: iter([{"x": values}]), workers=1))
    parts = [{"x": values[:3]}, {"x": values[3:5]}, {"x": values[5:6]}]
    assert [len(one["x"]) for one in blocks.joined(parts, 4)] == [5, 1]
    assert [len(one["x"]) for one in blocks.joined(parts, 2)] == [3, 2, 1]


SPEC = """
spec: opendp_sim/1
name: wide
data:
  people:
    source: {npz: people.npz}
    columns:
      x: {dtype: "array[f32, 4]", bounds: [0, 16]}
      y: {dtype: category, keys: [a, b]}
privacy: {unit: {add_remove: 1, of: row}, measure: zcdp, budget: {epsilon: 1.0, delta: 1.0e-6}}
flow:
  rows:
    from: people
    steps:
      - select: {features: x, label: y}
      - quantize: {bits: 8}
      - fourier_features: {frequencies: 16384, bandwidth: 6.0, seed: 7}
  model: {from: rows, release: {mechanism: {linear_model: {MORE}}, spend: 100%}}
outputs:
  weights: {from: model, save: out.npz}
"""


def test_the_widest_features_plan_blocks_that_a_small_machine_holds(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC.replace("MORE", ""))
    assert plan_file(file).plain()["memory_bytes"] < 2**30
    done = CliRunner().invoke(app, ["plan", "-v", str(file)])
    assert done.exit_code == 0, done.output
    assert "262,144 bytes a record" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("size", "limit", "lower"), [("size: 200000", 2**34, "size"), ("", 2**28, "frequencies")]
)
def test_what_the_machine_cannot_hold_names_bytes_and_parameter(
    tmp_path: Path, size: str, limit: int, lower: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opendp_sim.dsl.plan.plan.machine_memory", lambda: limit)
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC.replace("MORE", size))
    for command in ("check", "plan"):
        done = CliRunner().invoke(app, [command, str(file)])
        assert done.exit_code == 1
        said = " ".join(done.stderr.split())
        assert "error[OS103]" in said
        assert "bytes" in said
        assert "`frequencies` of `fourier_features`" in said
        assert lower in said
