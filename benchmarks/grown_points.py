"""Densities of 5 to 20 columns without points and with points grown from the release, the default.

Mean absolute error of 300 kernel sums of 8,000 records in prices: the mean absolute error of one query with Gaussian
noise at the same (epsilon, delta). `none` is `sim.density(points="none")` of 2,000 frequencies, `grown` the default of
8,000 with moments of the columns, of releases of their own. `stated` is the mean absolute error that the answers with
grown points state, of `noise_error` and `sketch_error`; `covered` the share of 95 % intervals that hold the sum, `half`
half an interval in prices, `s` CPU seconds of the release and of the first answer together, of 8,000 records. Constants were chosen on `clouds` and `skewed`, drawn below, and on projections
of MNIST and newsgroups; numbers of points and rounds came with a prototype that was tried on casp and letter, and pulsar
had shown that a judge is needed (`grown_points.md`). `narrow` rows of up to three columns have a kernel of a fifth, or
a hundredth in two columns, of the usual width, which a lattice of 2,000 frequencies does not hold. `more` is what the
default's error is more than without points, by pairs of releases with one seed of frequencies, and its scatter.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import itertools
import math
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.spatial.distance import cdist

import opendp_sim as sim
from benchmarks._results import parser, table, write_figure
from benchmarks.public_weights import WIDTHS, rows_of as measured
from opendp_sim.accounting.measures.gaussian import mu_squared_down

CHOSEN_ON = ("clouds, 6", "clouds, 12", "clouds, 20", "skewed, 6", "skewed, 12", "skewed, 20")
ROWS = (*WIDTHS, "pulsar, 8 columns", "occupancy, 5 columns", "skin, 3 columns, narrow")
_NARROW = {2: 0.01, 3: 0.2}
COUNT, ASKED = 8000, 300


def rows_of(which: str, folder: Path) -> tuple[np.ndarray, float]:
    """Return rows in [0, 1], shuffled once, and the bandwidth of exp(-(r / h)^2)."""
    if which in WIDTHS:
        return measured(which, folder), WIDTHS[which]
    name, columns = which.split(",", maxsplit=1)[0], int(which.split()[1])
    draw = np.random.default_rng(columns)
    if name == "pulsar":
        rows = np.load(folder / "pulsar.npz")["x"].astype(float)[:, :columns]
    elif name == "skin":
        rows = np.load(folder / "skin.npz")["x"].astype(float)[:, :columns]
    elif name == "occupancy":
        held = np.load(folder / "occupancy.npz")
        rows = np.concatenate([held[part] for part in ("x_train", "x_test", "x_test2")])
        rows = rows.astype(float)[:, :columns]
    elif name == "clouds":
        middles = draw.normal(size=(6, columns))
        shapes = draw.normal(size=(6, columns, columns)) * 0.35 / math.sqrt(columns)
        of = draw.choice(6, 20_000, p=draw.dirichlet(np.full(6, 2.0)))
        heavy = draw.standard_t(6, size=(20_000, columns))
        rows = middles[of] + np.einsum("nij,nj->ni", shapes[of], heavy)
    else:
        mixed = np.eye(columns) + 0.6 * draw.normal(size=(columns, columns)) / math.sqrt(columns)
        rows = np.exp(0.8 * draw.normal(size=(20_000, columns)) @ mixed)
    low, high = np.quantile(rows, [0.001, 0.999], axis=0)
    rows = ((np.clip(rows, low, high) - low) / (high - low))[draw.permutation(len(rows))]
    apart = cdist(rows[:500], rows[:500])
    share = 0.55 * (_NARROW[columns] if which.endswith("narrow") else 1.0)
    return rows, share * float(np.median(apart[apart > 0]))


def measured_cell(given: tuple[str, float, int, Path]) -> list[object]:
    """Return a line of the table."""
    which, epsilon, seeds, folder = given
    rows, h = rows_of(which, folder)
    asked, data = rows[:ASKED], rows[ASKED : ASKED + COUNT]
    truth = np.exp(-cdist(asked, data, "sqeuclidean") / h**2).sum(axis=1)
    names = [f"c{j}" for j in range(rows.shape[1])]
    price = math.sqrt(2 / math.pi / float(mu_squared_down(epsilon, 1e-6)))
    several = []
    for seed in range(seeds):
        errors, stated, took = [], 0.0, 0.0
        for points in ("none", "auto"):
            recipe = sim.density(
                dict.fromkeys(names, (0, 1)), bandwidth=h / math.sqrt(2), seed=seed, points=points,
                epsilon=epsilon,
            )  # fmt: skip
            began = time.process_time()
            with tempfile.TemporaryDirectory() as into:
                release = recipe.apply(
                    {c: data[:, j].copy() for j, c in enumerate(names)}, into=into
                )
            answer = release.density(asked)
            took = time.process_time() - began
            value, low, high = (np.ravel(answer[c]) for c in ("density", "lower", "upper"))
            errors += [
                float(np.abs(value - truth).mean() / price),
                float(np.mean((low <= truth) & (truth <= high))),
                float(np.mean(high - low) / 2 / price),
            ]
            parts = [np.ravel(answer[c]) for c in ("noise_error", "sketch_error")]
            stated = math.sqrt(2 / math.pi) * float(np.hypot(*parts).mean()) / price
        several.append([*errors, stated, took])
    mean = [float(v) for v in np.mean(several, axis=0)]
    more = np.array([of[3] - of[0] for of in several])
    scatter = float(more.std(ddof=1) / math.sqrt(len(more))) if len(more) > 1 else math.nan
    return [which, epsilon, *mean, mean[3] / mean[0], float(more.mean()), scatter]


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--seeds", type=int, default=4)
    given.add_argument("--epsilon", type=float, nargs="*", default=[0.1, 1.0, 8.0])
    given.add_argument("--rows", nargs="*", default=ROWS)
    given.add_argument("--workers", type=int, default=1)
    options, found = given.parse_args(), []
    asked = itertools.product(options.rows, options.epsilon, [options.seeds], [options.data])
    with ProcessPoolExecutor(options.workers) as pool:
        for line in pool.map(measured_cell, asked):
            found.append(line)
            print([f"{v:.3g}" if isinstance(v, float) else v for v in line], flush=True)
    head = ["rows", "epsilon", "none", "covered", "half", "grown", "covered", "half", "stated", "s"]
    text = table([*head, "grown / none", "more", "scatter"], found)
    print(text)
    if options.write:
        write_figure("kernels/grown-points", text, "python -m benchmarks.grown_points --write")


if __name__ == "__main__":
    main()
