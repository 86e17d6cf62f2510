"""Gaussian kernel sums in few columns: random frequencies, the lattice, and one query's own price.

Rows are columns of tables on [0, 1] by public bounds; queries are held-out rows; fresh noise, and a
fresh seed, for each release. Wheels of ``_tables`` in the folder ``--packages``.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from benchmarks._kernels import exact_flat, exact_sums, noisy, pipeline, rho_for, through
from benchmarks._results import parser, table, write_section
from benchmarks._tables import DIAMOND_BOUNDS, diamonds, keel
from opendp_sim.domains.rows import RealRows, Rows

EPSILONS, RELEASES, QUERIES, FREQUENCIES = (0.1, 0.5, 1.0, 2.0), 6, 200, 2000
WIDTHS = {1: 0.06, 2: 0.1, 3: 0.2, 4: 0.3, 6: 0.5}


def datasets(folder: Path):
    for name in ("penbased", "satimage"):
        values, _, lower, upper = keel(folder, name)
        yield name, (values - lower) / (upper - lower)
    values, (lower, upper) = diamonds(folder), map(np.array, DIAMOND_BOUNDS)
    kept = values[np.random.default_rng(1).permutation(len(values))[:12000]]
    yield "diamonds", np.clip((kept - lower) / (upper - lower), 0, 1)


def errors(x: np.ndarray, bandwidth: float, features: str) -> tuple[list[str], float]:
    """Mean |error| over n in thousandths, by epsilon; without noise; the bias stated."""
    space = RealRows(width=x.shape[1], lower=(0.0,), upper=(1.0,))
    asked, rows = x[:QUERIES], x[QUERIES:]
    found: dict[float | None, list[float]] = {e: [] for e in (*EPSILONS, None)}
    for seed in range(RELEASES):
        step = {
            "frequencies": FREQUENCIES,
            "kernel": {"gaussian": {"bandwidth": bandwidth}},
            "seed": seed,
            "features": features,
        }
        stages = pipeline(space, {"quantize": {"bits": 12}}, {"fourier_sketch": step})
        reader = stages[-1].claim.capabilities["kernel_sums"]
        grid, unit = through(stages[:1], rows), stages[-1].domain.unit
        flat = exact_flat(stages[1:], grid)
        for epsilon, into in found.items():
            of = noisy(stages, flat, epsilon)
            at = of.queries(Rows(asked))
            values = reader.estimate(of.arrays, at).groups[0, 0]
            exact = exact_sums(grid.values * unit, at.values * unit, reader)
            into.append(np.abs(values - exact).mean() / len(rows) * 1e3)
    texts = [
        f"{np.mean(v):.3g} ± {np.std(v) / math.sqrt(RELEASES - 1):.1g}" for v in found.values()
    ]
    return texts, float(reader.bias())


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--packages", type=Path, required=True)
    options = given.parse_args()
    rows: list[list[object]] = []
    for name, found in datasets(options.packages):
        x = found[np.random.default_rng(2).permutation(len(found))]
        for width, bandwidth in WIDTHS.items():
            some = x[:, :width]
            count = len(x) - QUERIES
            for features in ("random", "auto"):
                texts, bias = errors(some, bandwidth, features)
                rows.append([f"{name}, {count} x {width}", bandwidth, features, *texts, bias * 1e3])
                print(rows[-1], flush=True)
            prices = [f"{math.sqrt(1 / math.pi / rho_for(e)) / count * 1e3:.3g}" for e in EPSILONS]
            rows.append([f"{name}, {count} x {width}", bandwidth, "one query", *prices, "0", 0.0])
    header = [
        "data",
        "bandwidth",
        "features",
        *(f"epsilon {e}" for e in EPSILONS),
        "no noise",
        "bias",
    ]
    text = (
        f"{table(header, rows)}\n\nMean |error| of a kernel sum a record, times 1,000, ± one standard "
        f"error over {RELEASES} releases; {QUERIES} held-out queries, at most {FREQUENCIES:,} "
        "frequencies, zCDP at delta = 1e-6. ``random`` is what was shipped before, ``auto`` the "
        "default now, ``one query`` the price of a single sum at the same budget. "
        "``bias`` is the bound that intervals are widened by."
    )
    print(text)
    if options.write:
        write_section(
            "Kernels: lattice",
            text,
            "python -m benchmarks.kernel_lattice --write --packages FOLDER",
        )


if __name__ == "__main__":
    main()
