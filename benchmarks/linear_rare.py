"""How many records a class needs for `linear_model` to find it: recall of unequal classes, beside one without noise.

Five classes of 60, 25, 10, 4 and 1 % of the records, drawn from a table in a random order; ``records x root`` is the
number of a class's records times the root of twice rho; recall is over 200 other records of each class, less than
which the table may have for a class. MNIST is every second pixel both ways; newsgroups, in five groups of classes, are all columns, and the first
16 of a random rotation.
"""

from __future__ import annotations

import itertools
import math
import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from benchmarks._distances import rho_of
from benchmarks._results import parser, table, write_section
from benchmarks.linear_model import by_gradients
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.linear.linear_model import LinearModel

SHARES = (0.6, 0.25, 0.1, 0.04, 0.01)
EPSILONS, SIZES = (0.1, 0.5, 1.0, 2.0), (2000, 6000)
EDGES = (0, 2, 4, 8, 16, 32, 64, math.inf)


def tables(folder):
    with np.load(folder / "mnist.npz") as file:
        yield "mnist", file["X"][:, ::2, ::2].reshape(len(file["X"]), -1) / 255.0, file["y"]
    with np.load(folder / "newsgroups_minilm.npz") as file:
        x = file["x_train"].astype(np.float64)
        y = np.unique(file["y_train"], return_inverse=True)[1]
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(x.shape[1],) * 2))[0]
    joined = y // 4  # five groups of four
    yield "newsgroups, groups", np.clip(x, -0.25, 0.25) * 4, joined
    yield "newsgroups, groups, 16 columns", np.clip((x @ turn)[:, :16] * 4, -1, 1), joined


def split(x, y, size, rng):
    labels = rng.permutation(np.unique(y))[:5]
    train, test, to, of = [], [], [], []
    for at, (label, share) in enumerate(zip(labels, SHARES, strict=True)):
        mine = rng.permutation(np.flatnonzero(y == label))
        count = min(max(1, round(size * share)), len(mine) - 200)
        train.append(mine[:count])
        to.append(np.full(count, at))
        test.append(mine[-200:])
        of.append(np.full(200, at))
    return x[np.concatenate(train)], np.concatenate(to), x[np.concatenate(test)], np.concatenate(of)


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--splits", type=int, default=3)
    options = given.parse_args()
    found = {name: [] for name, *_ in tables(options.data)}
    for name, x, y in tables(options.data):
        bits = 2**11
        for size in SIZES:
            for split_ in range(options.splits):
                xs, to, queries, of = split(x, y, size, np.random.default_rng(split_))
                grid = GridRows(
                    width=x.shape[1],
                    labels=tuple("abcde"),
                    unit=1 / bits,
                    lower=(-bits if x.min() < 0 else 0,),
                    upper=(bits,),
                    rounding=0.5,
                )
                rows, asked = (np.rint(part * bits) for part in (xs, queries))
                counts = np.bincount(to, minlength=5)
                for epsilon in EPSILONS:
                    rho = rho_of(epsilon)
                    model = LinearModel(rho=rho)
                    told = [
                        by_gradients(grid, Rows(rows, to), asked, model, noisy=noisy)
                        for noisy in (True, False)
                    ]
                    for at in range(5):
                        recalls = [float((np.ravel(t)[of == at] == at).mean()) for t in told]
                        found[name].append((counts[at] * math.sqrt(2 * rho), *recalls))
        print(name, len(found[name]), flush=True)
    rows = []
    for name, each in found.items():
        cells = np.array(each)
        for low, high in itertools.pairwise(EDGES):
            some = cells[(cells[:, 0] >= low) & (cells[:, 0] < high)]
            if len(some):
                means = some[:, 1:].mean(axis=0)
                rows.append([name, f"{low} to {high}", len(some), *(f"{m:.2f}" for m in means)])
    text = f"{table(['data', 'records x root', 'cells', 'recall', 'without noise'], rows)}\n\n{' '.join((__doc__ or '').split())}"
    print(text)
    if options.write:
        write_section(
            "Linear model: rare classes",
            text,
            "python -m benchmarks.linear_rare --write --data FOLDER",
        )


if __name__ == "__main__":
    main()
