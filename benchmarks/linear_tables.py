"""`linear_model` on tables with its constants, beside the former ones: a whole constant cell, kappa 1.2.

Share of right labels on a held-out fifth, at (epsilon, 1e-6) of Gaussian DP, with the default rules
(whitened up to 10 columns). Both descents of a split see the same rows, one after the other. The
constants were chosen on all of these sets but letter. Bounds are round numbers or the columns' coding.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

from benchmarks._results import parser, table, write_figure
from benchmarks._tables import keel
from opendp_sim.accounting.measures.gaussian import mu_squared_down
from opendp_sim.domains.rows import GridRows
from opendp_sim.measurements.linear._impl.descent import Descent, ScaledRecords
from opendp_sim.measurements.linear._impl.scaled import GRID_SIDE, ScaledRows
from opendp_sim.measurements.linear.linear_model import LinearModel, LinearReader

COMMAND = "OPENBLAS_NUM_THREADS=1 python -m benchmarks.linear_tables --write --packages FOLDER --data FOLDER"
EPSILONS, STEPS = (0.1, 0.5, 1.0, 2.0), 1000
Set = tuple[str, np.ndarray, np.ndarray, np.ndarray | float, np.ndarray | float]


class FormerRows(ScaledRows):
    constant = GRID_SIDE  # type: ignore[assignment]


class FormerDescent(Descent):
    def rate(self, size: float | None) -> float:
        return super().rate(size) * 1.2 / (2.4 if self.whiten else 4.8)


def sets(packages: Path, data: Path) -> Iterator[Set]:
    for name in ("penbased", "satimage"):
        yield (name, *keel(packages, name))
    x, y = load_breast_cancer(return_X_y=True)
    high = 10.0 ** np.ceil(np.log10(x.max(axis=0)))
    yield "breast cancer", x, y, 0.0, np.where(high / 2 > x.max(axis=0), high / 2, high)
    held = np.load(data / "occupancy.npz")
    x, y = (np.concatenate([held[f"{c}_train"], held[f"{c}_test"]]) for c in "xy")
    yield "occupancy", x, y, np.array([15, 10, 0, 300, 0]), np.array([30, 50, 2000, 2500, 0.01])
    held = np.load(data / "pulsar.npz")
    low, high = [0, 20, -2, -2, 0, 0, -4, -2], [200, 100, 10, 70, 250, 120, 40, 1200]
    yield "pulsar", held["x"], held["y"], np.array(low), np.array(high)
    held = np.load(data / "skin.npz")
    some = np.random.default_rng(5).permutation(len(held["y"]))[:10_000]
    yield "skin", held["x"][some], held["y"][some], 0.0, 255.0
    held = np.load(data / "letter.npz")
    yield "letter", held["x"], held["y"], 0.0, 15.0


def right(descent: Descent, train: ScaledRecords, queries: np.ndarray, labels: np.ndarray) -> float:
    width = descent.scaled.width
    flat = descent.run(train)
    first = width * width if descent.whiten else 0
    found = {
        "whitening": flat[:first].reshape(-1, width),
        "weights": flat[first:].reshape(width, -1),
    }
    scores = LinearReader(descent, tuple(range(descent.classes))).scores(found, queries)
    return 100 * float((scores.argmax(axis=1) == labels).mean())


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--packages", type=Path, required=True)
    options.add_argument("--splits", type=int, default=5)
    args, rows = options.parse_args(), []
    for name, x, marks, low, high in sets(args.packages, args.data):
        y = np.unique(marks, return_inverse=True)[1].astype(np.int64)
        steps = np.rint(np.clip((x - low) / (high - low), 0.0, 1.0) * STEPS)
        labels = tuple(range(int(y.max()) + 1))
        grid = GridRows(width=x.shape[1], labels=labels, lower=(0,), upper=(STEPS,))
        cells = []
        for epsilon in EPSILONS:
            rho = float(mu_squared_down(epsilon, 1e-6)) / 2
            now = LinearModel(rho=rho).descent(grid)
            former = FormerDescent(
                FormerRows(grid, False), len(labels), rho, now.steps, now.whiten, None
            )
            found = []
            for split in range(args.splits):
                order = np.random.default_rng(split).permutation(len(y))
                test, train = order[: len(y) // 5], order[len(y) // 5 :]
                found.append(
                    [
                        right(
                            d, ScaledRecords(d.scaled(steps[train]), y[train]), steps[test], y[test]
                        )
                        for d in (former, now)
                    ]
                )
            error = np.std(found, axis=0, ddof=1) / len(found) ** 0.5
            cells += [
                f"{m:.1f} ± {e:.1f}" for m, e in zip(np.mean(found, axis=0), error, strict=True)
            ]
        rows.append([f"{name}, {len(y):,} x {x.shape[1]}", *cells])
        print(rows[-1], flush=True)
    head = ["set", *(f"{which}, epsilon {e:g}" for e in EPSILONS for which in ("former", "now"))]
    text = (
        f"{table(head, rows)}\n\nMean over {args.splits} splits and its standard error. "
        + " ".join((__doc__ or "").split())
    )
    print(text)
    if args.write:
        write_figure("linear/tables", text, COMMAND)


if __name__ == "__main__":
    main()
