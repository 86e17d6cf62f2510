"""Made data and specs for tests of engines: persons in all parts, equal rows, texts, empty files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from opendp_sim.dsl import plan_of
from opendp_sim.dsl.builder import program
from opendp_sim.dsl.run.execute import data_of
from opendp_sim.dsl.run.inputs import open_private, open_public

COLUMNS: dict[str, Any] = {
    "user": {"dtype": "int64", "role": "privacy_id"},
    "name": {"dtype": "str"},
    "item": {"dtype": "int64"},
    "x": {"dtype": "array[f32, 3]", "bounds": [-1, 1]},
}
RACE = {
    "race_sketch": {
        "repetitions": 5,
        "buckets": 8,
        "seed": 1,
        "family": {"p_stable_l2": {"width": 0.5}},
    }
}
ROWS = [{"select": {"features": "x"}}, {"quantize": {"bits": 8}}]
STEPS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "race": ("row", [*ROWS, RACE]),
    "fourier": (
        "row",
        [
            *ROWS,
            {
                "fourier_sketch": {
                    "frequencies": 4,
                    "kernel": {"gaussian": {"bandwidth": 1.0}},
                    "seed": 2,
                }
            },
        ],
    ),
    "lattice": (
        "row",
        [
            *ROWS,
            {
                "fourier_sketch": {
                    "frequencies": 400,
                    "kernel": {"gaussian": {"bandwidth": 1.0}},
                    "features": "deterministic",
                    "seed": 2,
                }
            },
        ],
    ),
    "moments": ("row", [*ROWS, {"moments_sketch": {}}]),
    "tree": ("row", [*ROWS, {"distance_tree": {"levels": 4}}]),
    "thresholds": ("row", [*ROWS, {"threshold_sketch": {"thresholds": 8}}]),
    "slices": ("row", [*ROWS, {"slice_sketch": {"directions": 20, "thresholds": 8, "seed": 1}}]),
    "persons": (
        "user",
        [{"bound_contributions": {"by": "user", "max_rows": 3, "seed": 5}}, *ROWS, RACE],
    ),
    "text_persons": ("name", [{"bound_contributions": {"by": "name", "max_rows": 2}}, *ROWS, RACE]),
    "votes": ("user", [{"vote_counts": {"item": "item", "max_items": 2, "seed": 2}}]),
    "words": ("user", [{"vote_counts": {"item": "name"}}]),
    "listed": ("user", [{"vote_counts": {"item": "item", "items": [0, 1, 2, 3, 4]}}]),
    "by_row": ("row", [{"vote_counts": {"item": "item"}}]),
    "by_row_user": ("row", [{"vote_counts": {"item": "item", "user": "name", "universe": 4}}]),
}
SCALES = {"lattice": 1e9, "race": 1000.0, "fourier": 1000.0}


def plan_for(name: str, folder: Path, source: Any = None, **entry: Any) -> Any:
    """Return the plan of one spec over the files of a folder."""
    of, steps = STEPS[name]
    votes = "vote_counts" in steps[-1] and "items" not in steps[-1]["vote_counts"]
    columns = {k: dict(v) for k, v in COLUMNS.items()}
    if of == "name":
        columns["user"].pop("role")
        columns["name"]["role"] = "privacy_id"
    made = program("made", folder=str(folder)).data(
        "r", source=source or {"parquet": "files"}, columns=columns, **{"ingest": "enforce"} | entry
    )
    budget: dict[str, Any] = {"rho": 100.0}
    if votes:
        budget = {
            "epsilon": 1.0,
            "delta": 1e-5,
            "reserve": {"mechanisms": 5e-6, "conversion": 5e-6},
        }
    made = made.privacy(
        unit={"add_remove": 1, "of": of}, measure="approx_zcdp" if votes else "zcdp", budget=budget
    ).stage("s", "r", steps=steps)
    release: dict[str, Any] = {
        "noise": "gaussian",
        "scale": SCALES.get(name, 1e7 if of == "row" else 1000.0),
    }
    if votes:
        release = {"mechanism": {"top_k": {"k": 2}}, "spend": "100%"}
    end = "o.json" if votes else "o.npz"
    return plan_of(made.stage("n", "s", release=release).output("o", "n", save=end).draft())


def table(rows: int = 400, seed: int = 0) -> dict[str, Any]:
    """Return columns with a fifth of the rows doubled; the first person is in every part."""
    g = np.random.default_rng(seed)
    user = g.integers(0, 40, rows)
    user[::17] = 7
    x = np.clip(g.normal(size=(rows, 3)), -1, 1).astype(np.float32)
    same = g.integers(0, rows, rows // 5)
    x[same], user[same] = x[0], user[0]
    item = np.minimum(g.zipf(1.4, rows), 9) - 1
    name = np.array([f"é{u % 30}" for u in user.tolist()], dtype=object)
    return {"user": user, "name": name, "item": item, "x": x}


def write(folder: Path, data: dict[str, Any], files: int = 3, groups: int = 2) -> None:
    """Write columns as Parquet files with an empty one among them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "files").mkdir(exist_ok=True)
    flat = {n: v for n, v in data.items() if v.ndim == 1}
    flat |= {f"x_{j}": data["x"][:, j] for j in range(3)}
    whole = pa.table({n: pa.array(v) for n, v in flat.items()})
    cuts = np.linspace(0, len(whole), files + 1).astype(int)
    for at in range(files):
        part = whole.slice(cuts[at], cuts[at + 1] - cuts[at])
        size = max(1, -(-len(part) // groups))
        pq.write_table(part, folder / "files" / f"p{at}.parquet", row_group_size=size)
    pq.write_table(whole.slice(0, 0), folder / "files" / "p00.parquet")


def one_machine(plan: Any, release: str = "n") -> Any:
    """Return what one machine makes of a plan's release, before noise."""
    nothing = lambda _phase, _rows: None  # noqa: E731 - told nothing
    inputs = open_private(plan, {}, nothing, open_public(plan, {}, nothing))
    return data_of(plan.releases[release], inputs, 1, nothing)


def same(one: Any, two: Any) -> bool:
    """Compare two sums, bit for bit."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(
            one[k].dtype == two[k].dtype and one[k].tolist() == two[k].tolist() for k in one
        )
    return bool(one.dtype == two.dtype and np.array_equal(one, two))


def checked(engine: Any) -> Any:
    """Return what a check that went well yields."""
    from opendp_sim.engines.check import CheckResult

    yield CheckResult(engine.name, 0.1, equal=True, told=None)


def kinds(folder: Path) -> list[str]:
    """Return what a folder's ledger holds, in order."""
    from opendp_sim.accounting.ledger.ledger import Ledger

    with Ledger.open(folder / "l.ledger") as held:
        return [entry.kind for entry in held.entries]
