"""Sums of l2 distances from released moments and public points: what slices cannot reach.

To first order in its square a distance is linear in what `moments_sketch` releases, and public points tell the rest: with slope
c = 1 / (2 R), R the root of the mean square distance of the points from the query,
sum |x - y| is read as c sum |x - y|^2 (released) + N / m sum over the m points of (|p - y| - c |p - y|^2).
Imitated in numpy: rows clipped to norm B about their public centre, Gaussian noise of `moments_sketch`'s closed form, m = 1,000 other
rows of the same set as points. ``of other kind`` takes for points only rows of the lower half of the classes: points that do not look like the data.
The price of a query is the mean absolute error of answering it alone, sqrt(2 / pi) (B + |y|) / sqrt(2 rho).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.bench._distances import rho_of
from tests.bench._results import parser, table, write_section

COMMAND = "python -m tests.bench.distance_public --write --data FOLDER"
EPSILONS, QUERIES, POINTS = (0.1, 0.5, 1.0, 2.0), 100, 1000


def sets(folder: Path):
    held = np.load(folder / "newsgroups_minilm.npz", allow_pickle=True)
    labels = np.unique(held["y_train"], return_inverse=True)[1]
    yield "newsgroups, 6,000 x 384", held["x_train"].astype(np.float64), labels, 6000
    held = np.load(folder / "mnist.npz")
    some = np.random.default_rng(0).permutation(len(held["X"]))[:10000]
    rows = held["X"][some].reshape(len(some), -1) / 255.0 - 0.5
    yield "MNIST, 6,000 x 784", rows, held["y"][some].astype(int), 6000
    held = np.load(folder / "pulsar.npz")
    low = np.array([0, 20, -5, -5, 0, 0, -10, -50.0])
    high = np.array([200, 100, 10, 70, 250, 120, 40, 1200.0])
    every = (np.clip(held["x"].astype(np.float64), low, high) - (low + high) / 2) / (high - low)
    yield "pulsar, 12,000 x 8", every, held["y"].astype(int), 12000


def far(rows: np.ndarray, at: np.ndarray) -> np.ndarray:
    squares = np.square(rows).sum(axis=1)[:, None] + np.square(at).sum(axis=1) - 2 * rows @ at.T
    return np.maximum(squares, 0.0)


def errors(rows, points, at, bound: float, rho: float, rng) -> tuple[np.ndarray, np.ndarray]:
    """Return the errors over the price: with the points, and with the moments alone (no points)."""
    count, square = len(rows), far(rows, at)
    truth = np.sqrt(square).sum(axis=0)
    # `moments_sketch`: sums of squares, of rows and a count, each with its third of the noise's square.
    unit = bound**2 * np.sqrt(3 / (2 * rho))
    of_square, of_count = rng.normal(0, unit), rng.normal(0, unit / bound**2)
    of_sum = rng.normal(0, unit / bound / 2**0.5, rows.shape[1])
    sizes = np.square(at).sum(axis=1)
    noisy = square.sum(axis=0) + of_square - 2 * at @ of_sum + sizes * of_count
    known, total = far(points, at), count + of_count
    slope = 0.5 / np.sqrt(known.mean(axis=0))
    read = slope * noisy + total / len(points) * (np.sqrt(known) - slope * known).sum(axis=0)
    alone = np.sqrt(np.maximum(noisy * total, 0.0))
    price = np.sqrt(2 / np.pi) * (bound + np.sqrt(sizes)) / np.sqrt(2 * rho)
    return np.abs(read - truth) / price, np.abs(alone - truth) / price


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--runs", type=int, default=8)
    options = given.parse_args()
    out = []
    for name, every, labels, count in sets(Path(options.data)):
        bound = float(np.sqrt(np.square(every).sum(axis=1).max()))
        lines: dict[str, list[object]] = {
            key: [name, key] for key in ("points", "points of other kind", "no points")
        }
        for epsilon in EPSILONS:
            got: dict[str, list[float]] = {key: [] for key in lines}
            for run in range(options.runs):
                rng = np.random.default_rng(run)
                order = rng.permutation(len(every))
                rows, rest = every[order[:count]], order[count + QUERIES :]
                at = every[order[count : count + QUERIES]]
                half = rest[labels[rest] <= np.median(labels)]
                for key, some in (("points", rest), ("points of other kind", half)):
                    found = errors(rows, every[some[:POINTS]], at, bound, rho_of(epsilon), rng)
                    got[key].append(found[0].mean())
                got["no points"].append(found[1].mean())
            for key, values in got.items():
                error = np.std(values, ddof=1) / np.sqrt(len(values))
                lines[key].append(f"{np.mean(values):.2f} ± {error:.2f}")
        out += lines.values()
        print(list(lines.values()), flush=True)
    head = ["data", "read with", *(f"epsilon {e:g}" for e in EPSILONS)]
    text = table(head, out) + (
        f"\n\nMean absolute error over the price, ± one standard error over {options.runs} runs. "
        + " ".join((__doc__ or "").split())
    )
    print(text)
    if options.write:
        write_section("Distances: l2 with public points", text, COMMAND)


if __name__ == "__main__":
    main()
