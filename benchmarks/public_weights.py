"""Densities of 5, 9 and 16 columns: 2,000 frequencies, frequencies by size, and weights of public points.

Mean absolute error of 300 kernel sums that are public points too, in prices: the mean absolute error of one query with
Gaussian noise at the same (epsilon, delta). `default` has 2,000 frequencies and no points; the others have the
frequencies of the declared size: without points, with points of equal weights, and with fitted ones, all of one
release. `covered` is the share of 95 % intervals of fitted weights that hold the sum. Also CPU seconds.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import math
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
from scipy.spatial.distance import cdist

import opendp_sim as sim
from benchmarks._results import parser, table, write_figure
from opendp_sim.accounting.measures.gaussian import mu_squared_down

WIDTHS = {"casp, 5 columns": 0.25, "casp, 9 columns": 0.35, "letter, 16 columns": 0.4}
"""Bandwidths of exp(-(r / h)^2)."""
ROWS, ASKED = 8000, 300
EQUAL = "opendp_sim.postprocessing._impl.control_variate.halves_of"


def rows_of(which: str, folder: Path) -> np.ndarray:
    """Return rows in [0, 1], shuffled once."""
    name, columns = which.split(",", maxsplit=1)[0], int(which.split()[1])
    order = np.random.default_rng(0)
    rows = np.load(folder / f"{name}.npz")["x"].astype(float)
    if name == "letter":
        rows /= 15
    else:
        low, high = np.quantile(rows, [0.001, 0.999], axis=0)
        rows = (np.clip(rows, low, high) - low) / (high - low)
    return rows[order.permutation(len(rows))][:, :columns]


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--seeds", type=int, default=2)
    given.add_argument("--epsilon", type=float, nargs="*", default=[0.1, 1.0, 8.0])
    options, found = given.parse_args(), []
    for which, h in WIDTHS.items():
        rows = rows_of(which, options.data)
        asked, data = rows[:ASKED], rows[800 : 800 + ROWS]
        truth = np.exp(-cdist(asked, data, "sqeuclidean") / h**2).sum(axis=1)
        names = [f"c{j}" for j in range(rows.shape[1])]
        for epsilon in options.epsilon:
            price = math.sqrt(2 / math.pi / float(mu_squared_down(epsilon, 1e-6)))
            several = []
            for seed in range(options.seeds):
                errors, releases, seconds = [], [], []
                for size in (None, ROWS):
                    recipe = sim.density(
                        dict.fromkeys(names, (0, 1)), bandwidth=h / math.sqrt(2), seed=seed, size=size,
                        epsilon=epsilon,
                    )  # fmt: skip
                    with tempfile.TemporaryDirectory() as into:
                        began = time.process_time()
                        releases.append(
                            recipe.apply(
                                {c: data[:, j].copy() for j, c in enumerate(names)}, into=into
                            )
                        )
                        seconds.append(time.process_time() - began)
                for release, public, equal in (
                    (releases[0], "none", True),
                    (releases[0], "queries", True),
                    (releases[0], "queries", False),
                    (releases[1], "none", True),
                    (releases[1], "queries", True),
                    (releases[1], "queries", False),
                ):
                    began = time.process_time()
                    if equal:
                        with mock.patch(EQUAL, return_value=None):
                            answer = release.density(asked, public=public)
                    else:
                        answer = release.density(asked, public=public)
                    errors.append(np.abs(np.ravel(answer["density"]) - truth).mean() / price)
                took = time.process_time() - began
                low, high = (np.ravel(answer[end]) for end in ("lower", "upper"))
                covered = np.mean((low <= truth) & (truth <= high))
                width = np.mean(high - low) / 2 / price
                several.append([*errors, covered, width, *seconds, took])
            found.append([which, epsilon, *(float(v) for v in np.mean(several, axis=0))])
            print([f"{v:.3g}" if isinstance(v, float) else v for v in found[-1]], flush=True)
    head = ["rows", "epsilon"]
    head += [
        f"{d}, {w}"
        for d in ("2,000 frequencies", "by size")
        for w in ("no points", "equal", "fitted")
    ]
    head += ["covered", "half an interval", "fit, 2,000, s", "fit, by size, s", "answer, s"]
    text = table(head, found)
    print(text)
    if options.write:
        write_figure("kernels/public-weights", text, "python -m benchmarks.public_weights --write")


if __name__ == "__main__":
    main()
