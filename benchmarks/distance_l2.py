"""Sums of l2 and squared l2 distances: noise against the number of directions, embedding error.

First table: random directions and clipping in front of a threshold sketch (and of a moment tree), at
one zCDP budget. Noise is measured over fresh releases of one sketch; the embedding's error without
noise is the relative deviation of single distances and, beside it, of sums over the data. Second
table: squared l2 by count, sum and squared norm.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks._distances import Built, runs
from benchmarks._results import parser, table, write_section
from opendp_sim.domains.rows import RealRows

COMMAND = "python -m benchmarks.distance_l2 --write"
RHO, COLUMNS, CLIP = 0.5, 32, 3.0
BALL = RealRows(width=COLUMNS, lower=(-1.0,), upper=(1.0,))


def in_ball(rng: np.random.Generator, count: int) -> np.ndarray:
    x = rng.standard_normal((count, COLUMNS)) * np.geomspace(1, 0.2, COLUMNS)
    return x / np.linalg.norm(x, axis=1, keepdims=True) * rng.random((count, 1)) ** 0.3


def steps(directions: int, seed: int, sketch) -> tuple:
    return (
        ("clip_rows", {"norm": "l2", "bound": 1.0}),
        ("quantize", {"bits": 12}),
        ("l1_embedding", {"directions": directions, "seed": seed, "clip": CLIP, "bits": 10}),
        sketch,
    )


def sliced(directions: int, x: np.ndarray, queries: np.ndarray) -> list[object]:
    exact = cdist(queries, x)
    built = Built(BALL, steps(directions, 0, ("threshold_sketch", {"thresholds": 128})), x)
    plain = built.ask(None, queries)["distance"][:, 0]
    times = 1000 if directions <= 256 else 600
    errors, _ = runs(built, built.noise(rho=RHO), queries, plain, times)
    measured = math.sqrt(np.square(errors).mean())
    tree = {"levels": 7, "tuned_for": "gaussian"}
    other = Built(BALL, steps(directions, 0, ("moment_tree", tree)), x)
    base = other.ask(None, queries)["distance"][:, 0]
    twice, _ = runs(other, other.noise(rho=RHO), queries, base, times // 6)
    # One distance at a time, over fresh directions: the relative deviation of the embedding alone.
    ratios = []
    for seed in range(1, 41):
        again = Built(
            BALL, steps(directions, seed, ("threshold_sketch", {"thresholds": 1})), x[:50]
        )
        images = again.rows.values
        unit = again.stages[-1].domain.unit
        pairs = cdist(images[:10], images[10:], "cityblock") * unit / cdist(x[:10], x[10:50])
        ratios.append(pairs)
    spread = float(np.std(ratios, axis=0).mean())
    total = float(np.abs(plain / exact.sum(axis=1) - 1).mean())
    row = [
        directions,
        measured,
        math.sqrt(np.square(twice).mean()),
        spread,
        0.7555 / math.sqrt(directions),
        spread / (0.7555 / math.sqrt(directions)),
        total,
    ]
    print(row, flush=True)
    return row


def squared(x: np.ndarray) -> list[list[object]]:
    rows: list[list[object]] = []
    rng = np.random.default_rng(3)
    inside = in_ball(rng, 20)
    edge = inside / np.linalg.norm(inside, axis=1, keepdims=True)
    for name, queries in (("|y| = B", edge), ("|y| = B / 2", edge / 2), ("y = 0", edge * 0)):
        built = Built(
            BALL,
            (
                ("clip_rows", {"norm": "l2", "bound": 1.0}),
                ("quantize", {"bits": 16}),
                ("moments_sketch", {}),
            ),
            x,
        )
        truth = (cdist(queries, x) ** 2).sum(axis=1)
        errors, deviation = runs(built, built.noise(rho=RHO), queries, truth, 4000)
        measured = math.sqrt(np.square(errors).mean())
        predicted = math.sqrt(np.square(deviation).mean())
        rows.append([name, measured, predicted, measured / predicted, 2 * math.sqrt(2 / RHO)])
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    rng = np.random.default_rng(0)
    x, queries = in_ball(rng, 1000), in_ball(rng, 20)
    slices = [sliced(k, x, queries) for k in (64, 128, 256, 512, 1024)]
    squares = squared(x)
    head = [
        "directions",
        "noise, threshold sketch",
        "noise, moment tree",
        "embedding error",
        "0.755 / sqrt(k)",
        "ratio",
        "error of the sums without noise",
    ]
    single = math.sqrt(math.pi / 2) * 2 * CLIP / math.sqrt(2 * RHO)
    text = table(head, slices) + (
        f"\n\nrho = {RHO}, norms up to B = 1 in {COLUMNS} columns, projections clipped at {CLIP:g} B. "
        f"Closed form of the noise: sqrt(pi/2) 2c / sqrt(2 rho) = {single:.4g} for every k (moment "
        f"tree: at most {2 * single:.4g}). The embedding error is that of one distance, over 40 "
        "draws of directions.\n\n"
    )
    text += table(
        ["query", "deviation measured", "predicted", "ratio", "2 sqrt(2) B^2 / sqrt(rho)"], squares
    )
    text += f"\n\nSquared l2, rho = {RHO}, B = 1, 4,000 releases."
    print(text)
    if options.write:
        write_section("Distances: l2 and squared l2", text, COMMAND)


if __name__ == "__main__":
    main()
