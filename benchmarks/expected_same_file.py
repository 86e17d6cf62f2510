"""Expected errors with the same public file as `--like` and as `public:`, beside what releases measure.

Rows of each table are put in a random order: 100 are the queries, 3,000 the data, and 400 the public points, which are
both points like the data and points whose sums are exact. Columns are divided by the deviations of all rows of the
table: an accuracy bench looks at them. Every release has a fresh seed and fresh noise.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks._kernels import exact_flat, noise_for, pipeline
from benchmarks._results import parser, table, write_section
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows, with_points
from opendp_sim.postprocessing._impl.expected_error import Asked, expected_kernel_error

SIZE, POINTS, QUERIES, EPSILON = 3000, 400, 100, 8.0
METRIC = {"l1": "cityblock", "l2": "euclidean"}
TABLES = {"pulsar": "x", "skin": "x", "occupancy": "x_train", "newsgroups_minilm": "x_train"}
SKETCHES = {
    "Gaussian": {
        "fourier_sketch": {"frequencies": 300, "kernel": {"gaussian": {"bandwidth": 4.0}}}
    },
    "Laplacian": {
        "fourier_sketch": {"frequencies": 300, "kernel": {"laplacian": {"bandwidth": 8.0}}}
    },
    "RACE": {
        "race_sketch": {
            "repetitions": 300,
            "buckets": 256,
            "family": {"p_stable_l2": {"width": 8.0}},
        }
    },
}


def scaled(folder: Path, name: str) -> np.ndarray:
    """Up to eight columns in units of their deviations, in a random order of rows."""
    with np.load(folder / f"{name}.npz") as file:
        rows = np.asarray(file[TABLES[name]], dtype=np.float64)
    rows = rows[np.random.default_rng(0).permutation(len(rows))][:, :8]
    return np.clip((rows - rows.mean(axis=0)) / rows.std(axis=0), -4.0, 4.0)


def measure(rows: np.ndarray, step: dict, seeds: int) -> list[float]:
    """Return errors expected by the same file and by another, the measured one, and its relative error."""
    space = RealRows(width=rows.shape[1], lower=(-4.0,), upper=(4.0,))
    ((key, params),) = step.items()
    found: list[list[float]] = []
    question = lookup("density")(public="points")
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(rows))
        cuts = np.cumsum([SIZE, QUERIES, POINTS, POINTS])
        data, queries, public, other, _ = np.split(rows[order], cuts)
        stages = pipeline(space, {"quantize": {"bits": 12}}, {key: {**params, "seed": seed}})
        output = stages[-1].claim.output
        mechanism, norm = noise_for(EPSILON, "zcdp", output.sensitivity)
        noise = mechanism.bind(output, output.metric(norm))
        told = [
            expected_kernel_error(
                Asked(stages, noise.noise.deviation, Rows(of), Rows(queries), SIZE, Rows(public)),
                question,
            ).total
            for of in (public, other)
        ]
        flat = exact_flat(stages, Rows(data))
        of = Release.of_sketch(stages, noise.function(flat), noise.noise, {})
        sums = stages[-1].claim.capabilities["kernel_sums"]
        truth = sums.kernel(cdist(data, queries, METRIC[sums.distance])).sum(axis=0)
        asked = with_points(of.queries(Rows(queries)), of.queries(Rows(public)))
        answer = question.bind(of.released, Symmetric()).function(of.arrays, asked)
        off = math.sqrt(np.square(answer["density"][:, 0] - truth).mean())
        found.append([*told, off])
    squares = np.square(found)
    same, apart, off = np.sqrt(squares.mean(axis=0))
    return [
        same,
        apart,
        off,
        squares[:, 2].std(ddof=1) / math.sqrt(seeds) / squares[:, 2].mean() / 2,
    ]


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--seeds", type=int, default=24)
    options = given.parse_args()
    rows = []
    for name in TABLES:
        values = scaled(options.data, name)
        for kind, step in SKETCHES.items():
            same, apart, off, error = measure(values, step, options.seeds)
            ratios = [f"{off / told:.2f} ± {error:.1g}" for told in (same, apart)]
            rows.append([kind, name, float(same), float(apart), float(off), *ratios])
            print(rows[-1], flush=True)
    head = [
        "sketch",
        "data",
        "same file",
        "another file",
        "measured",
        "of the same",
        "of the other",
    ]
    text = f"{table(head, rows)}\n\nRoot mean squares over {options.seeds} seeds. {' '.join((__doc__ or '').split())}"
    print(text)
    if options.write:
        command = "python -m benchmarks.expected_same_file --write --data FOLDER"
        write_section("Expected errors, the same file twice", text, command)


if __name__ == "__main__":
    main()
