"""A hybrid on a linear model: does it beat the hybrid on class means, or the linear model alone?

All at the same loss (delta = 1e-6), 1,000 held-out queries. ``linear_model`` has the whole loss. The hybrids have half of it for their
base, and ask `ind_knn`, with the other half, about the 30 % of the queries with the smallest gap: ``on means`` is the shipped one,
``on a linear model`` takes `linear_model` in its place, and the neighbours' answers on these queries. ``whoever is right`` is a hybrid
that knows on these queries which of its two parts to believe: more than any rule can reach.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks._distances import rho_of
from benchmarks._results import parser, table, write_section
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.knn.hybrid_knn import HybridKnn
from opendp_sim.measurements.knn.ind_knn import IndKnn
from opendp_sim.measurements.linear.linear_model import LinearModel

COMMAND = "OPENBLAS_NUM_THREADS=1 python -m benchmarks.knn_linear_base --write --data FOLDER"
EPSILONS, QUERIES, HARD, STEPS = (0.5, 1.0, 2.0), 1000, 0.3, 4096
RULES = ("linear_model", "hybrid on means", "hybrid on a linear model", "whoever is right")


def sets(folder: Path):
    held = np.load(folder / "newsgroups_minilm.npz", allow_pickle=True)
    both = np.unique(np.concatenate([held["y_train"], held["y_test"]]), return_inverse=True)[1]
    cut = len(held["y_train"])
    yield "newsgroups, 11,293 x 384", held["x_train"], both[:cut], held["x_test"], both[cut:]
    held = np.load(folder / "mnist.npz")
    some = np.random.default_rng(1).permutation(len(held["X"]))[:5000]
    rows, asked = (part.reshape(len(part), -1) / 255.0 for part in (held["X"][some], held["Xt"]))
    yield "MNIST, 5,000 x 784", rows, held["y"][some].astype(int), asked, held["yt"].astype(int)


def one(x, y, asked, truth, epsilon: float) -> dict[str, float]:
    low, high = (
        int(np.rint(f(x.min() if f is np.floor else x.max()) * STEPS)) for f in (np.floor, np.ceil)
    )
    seen, queries = (
        np.clip(np.rint(part * float(STEPS)), low, high).astype(np.float64) for part in (x, asked)
    )
    grid = GridRows(
        x.shape[1], tuple(range(int(y.max()) + 1)), unit=1 / STEPS, lower=(low,), upper=(high,)
    )
    rows, rho = Rows(seen, y.astype(np.int64)), rho_of(epsilon)

    def logits(loss: float) -> np.ndarray:
        claim = LinearModel(rho=loss).bind(grid, Symmetric())
        shape = x.shape[1] + 1, len(grid.labels or ())
        released = {"weights": np.reshape(claim.function(rows), shape)}
        return claim.capabilities["class_scores"].scores(released, queries)

    alone, base = logits(rho).argmax(axis=1), logits(rho / 2)
    best = np.sort(base, axis=1)
    hard = np.argsort(best[:, -1] - best[:, -2], kind="stable")[: int(HARD * len(truth))]
    asking = IndKnn(rho=rho / 2, queries=len(hard), size=len(x)).bind(grid, Symmetric()).start(rows)
    found = base.argmax(axis=1)
    right = found == truth
    voted = found.copy()
    voted[hard] = asking(Rows(queries[hard])).labels
    shipped = (
        HybridKnn(rho=rho, queries=len(truth), size=len(x)).bind(grid, Symmetric()).start(rows)
    )
    means = np.concatenate([shipped(Rows(part)).labels for part in np.array_split(queries, 4)])
    shares = (alone == truth, means == truth, voted == truth, right | (voted == truth))
    return dict(zip(RULES, (100 * float(share.mean()) for share in shares), strict=True))


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--runs", type=int, default=3)
    options = given.parse_args()
    rows = []
    for name, x, y, held, labels in sets(Path(options.data)):
        cells: dict[str, list[object]] = {rule: [name, rule] for rule in RULES}
        for epsilon in EPSILONS:
            got = []
            for run in range(options.runs):
                some = np.random.default_rng(run).permutation(len(held))[:QUERIES]
                got.append(one(x, y, held[some], labels[some], epsilon))
                print(name, epsilon, got[-1], flush=True)
            for rule in RULES:
                shares = [run[rule] for run in got]
                error = np.std(shares, ddof=1) / np.sqrt(len(shares))
                cells[rule].append(f"{np.mean(shares):.1f} ± {error:.1f}")
        rows += cells.values()
    text = table(["data", "rule", *(f"epsilon {e:g}" for e in EPSILONS)], rows)
    text += f"\n\nAccuracy in percent ± one standard error over {options.runs} runs. " + " ".join(
        (__doc__ or "").split()
    )
    print(text)
    if options.write:
        write_section("Private prediction: a linear base", text, COMMAND)


if __name__ == "__main__":
    main()
