"""`DPLogisticRegression` of waves beside that of columns, and beside one density a class.

Share of right labels on a held-out fifth, at (epsilon, 1e-6) of Gaussian DP, with every default but the
bounds: ends of the columns rounded outward to one digit of their range, or their coding. ``densities`` is
the better, on the answers, of two bandwidths of `classify` with empirical priors, as `DPKernelClassifier`
was. The default bandwidth and number of waves were chosen on banana, phoneme, skin, occupancy, penbased,
satimage and texture; magic, ring, twonorm, pulsar and letter had no part.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._results import parser, table, write_figure
from benchmarks._tables import keel
from opendp_sim.dsl.plan.kernel_choice import gaussian_kernel_step
from opendp_sim.sklearn import DPLogisticRegression
from opendp_sim.sklearn._validation.bounds import box_of
from opendp_sim.sklearn._validation.tables import dtype_of
from opendp_sim.sklearn.base import PrivateEstimator, estimator

COMMAND = "OPENBLAS_NUM_THREADS=1 python -m benchmarks.curved_classes --write --packages FOLDER --data FOLDER"
EPSILONS = (0.1, 0.5, 1.0, 2.0)
PARTS = (0.35, 0.5)
"""Bandwidths of the densities, in those of the waves."""


@estimator
class Densities(DPLogisticRegression):
    """The class of the largest of one Fourier sketch a class."""

    part: float = 0.5

    def fit(self, X: Any, y: Any, groups: Any = None) -> Any:
        array, labels, classes = self._labelled(X, y)
        width = array.shape[1]
        box = box_of(self.bounds, None, width, self)
        step, _ = gaussian_kernel_step(
            self.part * box.usual_bandwidth, width, box.longest, per_label=True
        )
        x = (array, box.column(dtype_of(array), width))
        columns = {"x": x, "label": classes.column(labels)}
        self._released(columns, [*box.steps(), step], groups, features="x", label="label")
        self.classes_ = classes.values
        return self

    def _release(self) -> dict[str, Any]:
        return PrivateEstimator._release(self)

    def predict(self, X: Any) -> Any:
        return self.classes_[self._ask("classify", X, rule="map")["label"]]


def sets(packages: Path, data: Path) -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, columns, labels, public bounds."""
    for name in ("banana", "phoneme", "penbased", "satimage", "magic", "ring", "twonorm"):
        x, y, low, high = keel(packages, name)
        yield name, x, y, (low[0], high[0]) if len({*low, *high}) == 2 else (low, high)
    for name, ends in (("skin", (0, 255)), ("letter", (0, 15))):
        held = np.load(data / f"{name}.npz")
        some = np.random.default_rng(5).permutation(len(held["y"]))[:20_000]
        yield name, held["x"][some], held["y"][some], ends
    held = np.load(data / "occupancy.npz")
    x, y = (np.concatenate([held[f"{c}_train"], held[f"{c}_test"]]) for c in "xy")
    yield "occupancy", x, y, ([15, 10, 0, 300, 0], [30, 50, 2000, 2500, 0.01])
    held = np.load(data / "pulsar.npz")
    low, high = [0, 20, -2, -2, 0, 0, -4, -2], [200, 100, 10, 70, 250, 120, 40, 1200]
    yield "pulsar", held["x"], held["y"], (low, high)


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--packages", type=Path, required=True)
    options.add_argument("--splits", type=int, default=5)
    args, rows = options.parse_args(), []
    for name, values, marks, bounds in sets(args.packages, args.data):
        x, y = values.astype(np.float64), np.unique(marks, return_inverse=True)[1]
        for epsilon in EPSILONS:
            given = {"epsilon": epsilon, "bounds": bounds, "classes": range(int(y.max()) + 1)}
            ways = {
                "columns": DPLogisticRegression(**given),
                "waves": DPLogisticRegression(**given, features="fourier"),
                **{f"densities {part}": Densities(**given, part=part) for part in PARTS},
            }
            found: dict[str, list[float]] = {way: [] for way in ways}
            for split in range(args.splits):
                order = np.random.default_rng(split).permutation(len(y))
                test, train = order[: len(y) // 5], order[len(y) // 5 :]
                for way, est in ways.items():
                    right = est.fit(x[train], y[train]).predict(x[test]) == y[test]
                    found[way].append(100 * float(right.mean()))
            gains = np.subtract(found["waves"], found["columns"])
            spread = np.std(gains, ddof=1) / len(gains) ** 0.5
            means = {way: float(np.mean(each)) for way, each in found.items()}
            best = max(value for way, value in means.items() if "densities" in way)
            cells = [f"{v:.1f}" for v in (means["columns"], means["waves"], best)]
            what = f"{name}, {len(y):,} x {x.shape[1]}, {int(y.max()) + 1} classes"
            rows.append([what, epsilon, *cells, f"{gains.mean():+.1f} ± {spread:.1f}"])
            print(rows[-1], flush=True)
    head = ["set", "epsilon", "columns", "waves", "densities", "waves less columns"]
    text = f"{table(head, rows)}\n\nMean over {args.splits} splits, and the difference's standard error. "
    text += " ".join((__doc__ or "").split())
    print(text)
    if args.write:
        write_figure("linear/curved", text, COMMAND)


if __name__ == "__main__":
    main()
