"""CPU seconds of builds: a sketch's sum in memory, and a whole `apply`; for two versions of the code in turn.

``PYTHONPATH=FOLDER python benchmarks/builds.py`` prints one line for the code in FOLDER.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from ruamel.yaml import YAML

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.execute import apply

KERNEL = {"gaussian": {"bandwidth": 1.0}}
FAMILY = {"p_stable_l2": {"width": 1.0}}
SKETCHES = {
    "race_sketch": {"repetitions": 200, "buckets": 256, "family": FAMILY, "seed": 1},
    "fourier_sketch": {"frequencies": 500, "kernel": KERNEL, "seed": 1, "features": "random"},
    "threshold_sketch": {"thresholds": 1000},
    "moments_sketch": {},
    "moment_tree": {"levels": 10},
    "distance_tree": {"levels": 10},
    "second_moments": {},
}


def timed(work, times: int) -> float:
    taken = []
    for _ in range(times):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def in_memory(key: str, params: dict) -> float:
    rows = Rows(np.random.default_rng(0).uniform(-1, 1, (200_000, 16)))
    space = RealRows(width=16, lower=(-1.0,), upper=(1.0,))
    steps = [lookup("quantize")(bits=10), lookup(key)(**params)]
    stages = bind_steps(space, Symmetric(), steps)
    grid, claim = resolve(stages, list)(rows), stages[-1].claim

    def build() -> None:
        if claim.accumulate is None:
            claim.function(grid)
        else:
            claim.accumulate(grid, np.zeros(claim.output.size, dtype=np.int64))

    return timed(build, 4)


def applied(key: str, params: dict) -> float:
    with tempfile.TemporaryDirectory() as folder:
        rows = np.random.default_rng(0).uniform(-1, 1, (300_000, 16))
        np.savez(Path(folder, "rows.npz"), x=rows)
        spec = {
            "spec": "opendp_sim/1",
            "name": "build",
            "data": {
                "rows": {
                    "source": {"npz": "rows.npz"},
                    "columns": {"x": {"dtype": "array[f64, 16]", "bounds": [-1, 1]}},
                }
            },
            "privacy": {
                "unit": {"add_remove": 1, "of": "row"},
                "measure": "zcdp",
                "budget": {"epsilon": 1.0, "delta": 1e-6},
            },
            "flow": {
                "noisy": {
                    "from": "rows",
                    "steps": [
                        {"select": {"features": "x"}},
                        {"quantize": {"bits": 10}},
                        {key: params},
                    ],
                    "release": {"noise": "gaussian", "scale": "solve", "spend": "100%"},
                }
            },
            "outputs": {"out": {"from": "noisy", "save": "out.npz"}},
        }
        YAML(typ="safe").dump(spec, Path(folder, "spec.yaml"))
        plan = plan_file(Path(folder, "spec.yaml"))
        return timed(lambda: apply(plan), 1)


if __name__ == "__main__":
    found = {key: (in_memory(key, p), applied(key, p)) for key, p in SKETCHES.items()}
    print(json.dumps({key: [round(s, 4) for s in pair] for key, pair in found.items()}))
