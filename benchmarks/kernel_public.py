"""Kernel sums with public points as a control variate, beside none: errors and coverage.

Tables on [0, 1] by public bounds; 400 held-out rows are the queries and the public points. Bandwidths are .7 of
the median distance. Fresh noise and a fresh seed for each release. Wheels of ``_tables`` in ``--packages``.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from benchmarks._kernels import exact_flat, exact_sums, noisy, pipeline, through
from benchmarks._results import parser, table, write_section
from benchmarks._tables import digits, keel
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows

EPSILONS, RELEASES, QUERIES = (0.1, 0.5, 1.0, 2.0, None), 6, 400


def datasets(folder: Path):
    for name in ("satimage", "optdigits", "digits"):
        values, _, lower, upper = digits() if name == "digits" else keel(folder, name)
        x = (values - lower) / (upper - lower)
        yield name, x[np.random.default_rng(2).permutation(len(x))]


def sketches(bandwidth: float, features: str | None) -> dict[str, dict]:
    gaussian = {"gaussian": {"bandwidth": bandwidth}}
    fourier = {"frequencies": 1000, "kernel": gaussian}
    if features:
        return {"fourier_sketch": {**fourier, "features": features}}
    return {
        "fourier_sketch": fourier,
        "race_sketch": {
            "repetitions": 500,
            "buckets": 512,
            "family": {"p_stable_l2": {"width": bandwidth}},
        },
    }


def errors(x: np.ndarray, key: str, params: dict) -> dict[str, list[str]]:
    """Texts by epsilon: mean |error| over n in thousandths, its standard error, and coverage."""
    asked, rows = x[:QUERIES], x[QUERIES:]
    space = RealRows(width=x.shape[1], lower=(0.0,), upper=(1.0,))
    found: dict[tuple[str, float | None], list[tuple[float, float]]] = {}
    for seed in range(RELEASES):
        stages = pipeline(space, {"quantize": {"bits": 12}}, {key: {**params, "seed": seed}})
        reader, unit = stages[-1].claim.capabilities["kernel_sums"], stages[-1].domain.unit
        grid = through(stages[:1], rows)
        flat = exact_flat(stages[1:], grid)
        for epsilon in EPSILONS:
            of = noisy(stages, flat, epsilon)
            at = of.queries(Rows(asked))
            truth = exact_sums(grid.values * unit, at.values * unit, reader)
            for public in ("none", "queries"):
                query = lookup("density")(public=public).bind(of.released, Symmetric())
                answer = query.function(of.arrays, at)
                off = np.abs(answer["density"][:, 0] - truth).mean() / len(rows) * 1e3
                inside = (answer["lower"][:, 0] <= truth) & (truth <= answer["upper"][:, 0])
                found.setdefault((public, epsilon), []).append((off, inside.mean()))
    texts: dict[str, list[str]] = {}
    for (public, _), cells in found.items():
        (mean, covered), error = np.mean(cells, axis=0), np.std(cells, axis=0)[0]
        text = f"{mean:.3g} ± {error / math.sqrt(RELEASES - 1):.1g} ({covered:.1%})"
        texts.setdefault(public, []).append(text)
    return texts


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--packages", type=Path, required=True)
    given.add_argument("--features", help="Fourier sketches alone, with these frequencies")
    options = given.parse_args()
    rows: list[list[object]] = []
    for name, x in datasets(options.packages):
        gaps = np.linalg.norm(x[:200, None] - x[None, 200:300], axis=2)
        for key, params in sketches(0.7 * float(np.median(gaps)), options.features).items():
            for public, texts in errors(x, key, params).items():
                rows.append([f"{name}, {len(x) - QUERIES} x {x.shape[1]}", key, public, *texts])
                print(rows[-1], flush=True)
    named = (f"epsilon {e}" if e else "no noise" for e in EPSILONS)
    text = (
        f"{table(['data', 'sketch', 'public', *named], rows)}\n\nMean |error| of a kernel sum a record, "
        f"times 1,000, ± one standard error over {RELEASES} releases, and how many of the 95 % intervals "
        "hold the exact sum. zCDP at delta = 1e-6. " + " ".join((__doc__ or "").split())
    )
    print(text)
    if options.write:
        write_section(
            "Kernels: public points",
            text,
            "python -m benchmarks.kernel_public --write --packages FOLDER",
        )


if __name__ == "__main__":
    main()
