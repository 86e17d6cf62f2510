"""Check an engine's whole machinery on public generated data."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from opendp_sim.core.errors import SimError
from opendp_sim.core.randomness import public_generator
from opendp_sim.dsl.builder import program
from opendp_sim.dsl.plan.plan import Plan, plan_of
from opendp_sim.engines.engine import Engine, Local

_RACE = {
    "race_sketch": {
        "repetitions": 20,
        "buckets": 16,
        "seed": 1,
        "family": {"p_stable_l2": {"width": 0.5}},
    }
}
_ROWS: list[Any] = [{"select": {"features": "x"}}, {"quantize": {"bits": 10}}, _RACE]
_CHECKS: dict[str, tuple[str, list[Any]]] = {
    "rows": ("row", _ROWS),
    "persons": ("user", [{"bound_contributions": {"max_rows": 3}}, *_ROWS]),
    "votes": ("user", [{"vote_counts": {"item": "item", "items": [0, 1, 2, 3, 4, 5]}}]),
}


@dataclass(frozen=True)
class CheckResult:
    """Hold one check's result, with its failure in words, or None."""

    name: str
    seconds: float
    equal: bool
    told: str | None


def check(
    engine: Engine, folder: str | Path | None = None, rows: int = 20_000, device: str | None = None
) -> Iterator[CheckResult]:
    """Run a job without files, then compare three sums.

    Over made files, bit for bit. The task is the one that `apply` runs before it charges; the sums are
    compared with one thread's.

    Args:
        engine: what is looked at.
        folder: where made files go; one that every worker sees. Default a temporary folder.
        rows: records made.
        device: the card of each worker.
    """
    start, told = time.perf_counter(), None
    try:
        engine.try_public_task(device)
    except SimError as error:
        told = str(error)
    yield CheckResult("task", time.perf_counter() - start, told is None, told)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        _write(Path(made), rows)
        for name, (of, steps) in _CHECKS.items():
            plan = _plan(Path(made), of, steps)
            start, told, equal = time.perf_counter(), None, False
            try:
                found = engine.sums(plan, device, public=True)["sum"]
                equal = bool(np.array_equal(found, Local(1, 1).sums(plan)["sum"]))
            except SimError as error:
                told = str(error)
            yield CheckResult(name, time.perf_counter() - start, equal, told)


def _plan(folder: Path, of: str, steps: list[Any]) -> Plan:
    columns: dict[str, Any] = {
        "user": {"dtype": "int64", "role": "privacy_id"},
        "item": {"dtype": "int64"},
        "x": {"dtype": "array[f64, 4]", "bounds": [-1, 1]},
    }
    made = program("engine-check", folder=str(folder))
    made = made.data("made", source={"parquet": "made-*.parquet"}, columns=columns)
    made = made.privacy(unit={"add_remove": 1, "of": of}, measure="zcdp", budget={"rho": 1.0})
    made = made.stage("sketch", "made", steps=steps)
    made = made.stage("sum", "sketch", release={"noise": "gaussian", "scale": 1000.0})
    return plan_of(made.output("out", "sum", save="out.npz").draft())


def _write(folder: Path, rows: int) -> None:
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

    generator = public_generator(0, "engine check")
    x = generator.uniform(-1, 1, size=(rows, 4))
    columns = {
        "user": generator.integers(0, rows // 4, rows),
        "item": generator.integers(0, 8, rows),
        **{f"x_{at}": x[:, at] for at in range(4)},
    }
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    for at in range(3):
        part = table.slice(at * rows // 3, rows // 3)
        pq.write_table(part, folder / f"made-{at}.parquet", row_group_size=max(1, rows // 9))
