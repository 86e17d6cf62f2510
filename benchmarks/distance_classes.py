"""Classification by nearest noisy class mean, with and without random projection.

Accuracy on the test set against epsilon (at delta = 1e-6), beside the same rule without noise; the time
of building all classes against the bare sum of the rows (process CPU, one BLAS thread), and the time
of answering all test queries. Bounds are public choices made before any run: unit norm for sentence
embeddings, norm 10 for pixels between 0 and 1.
"""

from __future__ import annotations

import os
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from benchmarks._distances import Built, rho_of
from benchmarks._results import parser, table, write_section
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.postprocessing.nearest_class import NearestClass

COMMAND = "python -m benchmarks.distance_classes --write"
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0)
TIMES = 5


def mnist(folder):
    found = np.load(folder / "mnist.npz")
    x, xt = (found[k].reshape(-1, 784) / 255.0 for k in ("X", "Xt"))
    return x, found["y"].astype(np.int64), xt, found["yt"].astype(np.int64), 10.0, 0.0


def newsgroups(folder):
    found = np.load(folder / "newsgroups_minilm.npz")
    x, xt = (found[k].astype(np.float64) for k in ("x_train", "x_test"))
    names, y = np.unique(found["y_train"], return_inverse=True)
    return x, y, xt, np.searchsorted(names, found["y_test"]), 1.0, -1.0


def alternated(first, second, times: int = 25) -> tuple[float, float]:
    """The least time of each, over alternated runs."""
    spent: list[list[float]] = [[], []]
    for _ in range(times):
        for own, function in zip(spent, (first, second), strict=True):
            start = time.process_time()
            function()
            own.append(time.process_time() - start)
    return min(spent[0]), min(spent[1])


def one(name: str, data, dimension: int | None) -> list[list[object]]:
    x, y, queries, truth, bound, low = data
    labels = tuple(range(int(y.max()) + 1))
    space = RealRows(width=x.shape[1], lower=(low,), upper=(1.0,), labels=labels)
    steps: list = [("clip_rows", {"norm": "l2", "bound": bound}), ("quantize", {"bits": 10})]
    sketch: dict = {"squares": False, "per_label": True}
    if dimension:
        steps.append(("jl_projection", {"dimension": dimension, "seed": 1}))
        sketch["radius"] = 1.2 * bound
    steps.append(("moments_sketch", sketch))
    built = Built(space, tuple(steps), Rows(x, y))
    claim = built.stages[-1].claim
    out = np.zeros(claim.output.size, dtype=np.int64)
    rows = built.rows
    build, bare = alternated(lambda: claim.accumulate(rows, out), lambda: rows.values.sum(axis=0))
    asked = Rows(queries, np.zeros(len(queries), dtype=np.int64))

    def accuracy(noise) -> tuple[float, float]:
        release = built.release(noise)
        images = release.queries(asked)
        rule = NearestClass().bind(release.released, built.stages[0].metric)
        start = time.process_time()
        found = rule.function(release.arrays, images)["label"]
        return float((found == truth).mean()), time.process_time() - start

    plain, _ = accuracy(None)
    row: list[object] = [name, dimension or "none", plain]
    for epsilon in EPSILONS:
        noise = built.noise(rho=rho_of(epsilon))
        found = [accuracy(noise) for _ in range(TIMES)]
        row.append(float(np.mean([a for a, _ in found])))
    asking = min(t for _, t in found)
    row += [f"{1e3 * build:.1f}", f"{build / bare:.2f}", f"{1e6 * asking / len(queries):.1f}"]
    print(row, flush=True)
    return [row]


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    rows: list[list[object]] = []
    for name, load in (("MNIST pixels", mnist), ("20 newsgroups, MiniLM", newsgroups)):
        data = load(options.data)
        for dimension in (None, 128, 32):
            rows += one(name, data, dimension)
    head = [
        "data",
        "projected to",
        "no noise",
        *(f"epsilon {e:g}" for e in EPSILONS),
        "build, ms",
        "build / bare sum",
        "query, us",
    ]
    text = table(head, rows) + (
        f"\n\nAccuracy on the test sets (10,000 images; 7,528 posts), mean of {TIMES} releases; one "
        "release of all class means at delta = 1e-6. Build: all classes, from quantized (and "
        "projected) rows. MNIST: CC BY-SA 3.0; 20 Newsgroups: free for research."
    )
    print(text)
    if options.write:
        write_section("Distances: classification by nearest noisy mean", text, COMMAND)


if __name__ == "__main__":
    main()
