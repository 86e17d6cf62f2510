"""Errors of sums of l2 and squared l2 distances over the price of one single query.

The price of a query is the mean absolute error of answering it alone, by Gaussian noise for the largest
distance that a row of the box can have from it: sqrt(2 / pi) range / sqrt(2 rho). ``before``: norms from
zero (squares, imitated in numpy with the noise of its closed form), and `l1_embedding` of 256 directions
with `threshold_sketch`. ``now``: `moments_sketch`, and `slice_sketch` as it comes, of 8,192 directions.
Queries are held-out rows.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.datasets import load_breast_cancer

from benchmarks._distances import Built, rho_of
from benchmarks._results import parser, table, write_section
from benchmarks._tables import DIAMOND_BOUNDS, diamonds, digits, keel
from opendp_sim.domains.rows import RealRows

COMMAND = "python -m benchmarks.distance_price --write --packages FOLDER"
EPSILONS, SEEDS, DIRECTIONS, ASKED = (0.1, 0.5, 1.0, 2.0), 6, 256, 40


def datasets(folder: Path):
    """Tables in [0, 1], by public bounds: positive boxes, as columns usually are."""
    for name in ("penbased", "satimage"):
        values, _, lower, upper = keel(folder, name)
        yield name, (values - lower) / (upper - lower)
    yield "digits", digits()[0] / 16.0
    values, (lower, upper) = diamonds(folder), map(np.array, DIAMOND_BOUNDS)
    rng = np.random.default_rng(1)
    kept = values[rng.permutation(len(values))[:10000]]
    yield "diamonds", np.clip((kept - lower) / (upper - lower), 0, 1)
    found = load_breast_cancer().data
    yield "breast cancer", np.clip(found / (1.25 * found.max(axis=0)), 0, 1)


def by_moments(x, queries, rho: float, rng) -> np.ndarray:
    """What `moments_sketch` was: norms from zero."""
    square = x.shape[1]
    norms = np.square(queries).sum(axis=1)
    split = (1 / 4, 1 / 2, 1 / 4)
    variance = sum(
        factor / (2 * share * rho)
        for factor, share in zip((norms**2, 4 * norms * square, square**2), split, strict=True)
    )
    return (cdist(queries, x) ** 2).sum(axis=1) + rng.normal(0, np.sqrt(variance))


def built_of(space: RealRows, x, steps, seed: int) -> Built:
    """The steps on these rows, with the seed where one is drawn from."""
    seeded = ("l1_embedding", "slice_sketch")
    own = tuple((key, v | ({"seed": seed} if key in seeded else {})) for key, v in steps)
    return Built(space, (("quantize", {"bits": 12}), *own), x)


def one(name: str, values) -> list[list[object]]:
    width = values.shape[1]
    order = np.random.default_rng(0).permutation(len(values))
    queries, x = values[order[:ASKED]], values[order[ASKED:]]
    space = RealRows(width=width, lower=(0.0,), upper=(1.0,))
    farthest = np.square(np.maximum(queries, 1 - queries)).sum(axis=1)
    rows: list[list[object]] = []
    embedded = (
        ("l1_embedding", {"directions": DIRECTIONS}),
        ("threshold_sketch", {"thresholds": 128}),
    )
    for power, steps in ((2, (("moments_sketch", {}),)), (1, (("slice_sketch", {}),))):
        truth = (cdist(queries, x) ** power).sum(axis=1)
        got: dict[tuple[str, float], list[float]] = {}
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            old, new = (built_of(space, x, way, seed) for way in (embedded, steps))
            for epsilon in EPSILONS:
                rho = rho_of(epsilon)
                price = math.sqrt(2 / math.pi) * farthest ** (power / 2) / math.sqrt(2 * rho)
                if power == 2:
                    before = by_moments(x, queries, rho, rng)
                else:
                    before = old.ask(old.noise(rho=rho), queries)["distance"][:, 0]
                off = float((np.abs(before - truth) / price).mean())
                got.setdefault(("before", epsilon), []).append(off)
                found = new.ask(new.noise(rho=rho), queries)["distance"][:, 0]
                off = float((np.abs(found - truth) / price).mean())
                got.setdefault(("now", epsilon), []).append(off)
        for rule in ("before", "now"):
            what = "l2, squared" if power == 2 else "l2"
            cells: list[object] = [f"{name}, {len(x):,} x {width}", what, rule]
            for epsilon in EPSILONS:
                found = np.array(got[rule, epsilon])
                cells.append(f"{found.mean():.2f} ± {found.std(ddof=1) / math.sqrt(SEEDS):.2f}")
            rows.append(cells)
            print(cells, flush=True)
    return rows


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--packages", type=Path, default=Path("packages"))
    given = options.parse_args()
    rows = [row for data in datasets(given.packages) for row in one(*data)]
    text = table(["data", "distance", "", *(f"epsilon {e:g}" for e in EPSILONS)], rows)
    text += (
        f"\n\nMean absolute error over the price, ± one standard error over {SEEDS} releases and draws of "
        f"the directions, {ASKED} queries. The best reference is 1. "
        + " ".join((__doc__ or "").split())
    )
    print(text)
    if given.write:
        write_section("Distances: l2 over the price of one query", text, COMMAND)


if __name__ == "__main__":
    main()
