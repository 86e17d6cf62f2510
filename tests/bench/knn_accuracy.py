"""Accuracy of private prediction against epsilon, and against the number of queries."""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from tests.bench import _knn as k
from tests.bench._results import parser, table, write_section

EPSILONS = (0.5, 1.0, 2.0)
GRID = {
    "mnist": ([0.03, 0.1], [100, 300, 1000]),
    "newsgroups": ([0.1, 0.3], [50, 150, 400]),
    "digits": ([0.2, 0.5], [20, 60]),
}
LINEAR = [(20, 4.0, 0.5), (40, 8.0, 0.5), (80, 8.0, 0.3)]


def tuned_private(data, epsilon, queries, count):
    rates, ks = GRID[data.name]
    scored = [
        (k.private_knn(data, epsilon, queries, r, n, count=min(400, queries)), r, n)
        for r in rates
        for n in ks
    ]
    _, rate, n = max(scored)
    return k.private_knn(data, epsilon, queries, rate, n, count=count), f"rate {rate}, k {n}"


def column(data, epsilon, queries, through, *, full):
    """All methods at one budget; ``full`` adds those that do not depend on the number of queries."""
    rho, out = k.rho_of(epsilon), {}
    count = min(queries, len(data.queries))
    knn = lambda **changed: k.ind_knn(data, rho, queries, count, **changed)  # noqa: E731
    out["Ind-KNN, cosine"] = knn()
    out["Ind-KNN, rbf"] = knn(kernel="rbf")
    if full:
        out["Ind-KNN, cosine, reuse"] = knn(reuse=True)
        out["Ind-KNN, rbf, reuse"] = knn(kernel="rbf", reuse=True)
        out["Ind-KNN, cosine, sign codes (recall 0.9)"] = knn(search={"sign_codes": {}})
        out["Ind-KNN, cosine, 60 tables of 8 bits"] = knn(
            search={"sign_hashes": {"tables": 60, "bits": 8}}
        )
    out["Hybrid"] = hybrid(data, rho, queries, count)
    out["Private kNN, tuned on the test labels"], chosen = tuned_private(
        data, epsilon, queries, count
    )
    if full:
        out["Noisy class means"] = k.class_means(data, rho, through)
        rng = np.random.default_rng(0)
        out["Noisy gradient descent, linear, tuned on the test labels"] = max(
            k.noisy_gradient(data, rho, through, *settings, rng) for settings in LINEAR
        )
    return out, chosen


def hybrid(data, rho, queries, count):
    from opendp_sim.measurements._knn_hybrid import Hybrid
    from opendp_sim.measurements.hybrid_knn import HybridKnn

    setting = HybridKnn(rho=rho, queries=queries, size=data.size)
    service = Hybrid(setting, data.grid, data.train)
    return k.share_right(data, service.predict(data.queries[:count]).labels, count)


def main():
    options = parser(__doc__)
    options.add_argument("--sets", nargs="+", default=["digits", "newsgroups", "mnist"])
    args = options.parse_args()
    for name in args.sets:
        start = time.process_time()
        data = k.load(name, args.data)
        through = k.seen(data)
        queries = min(2000, len(data.queries))
        results, notes = {}, []
        for epsilon in EPSILONS:
            found, chosen = column(data, epsilon, queries, through, full=True)
            notes.append(f"epsilon {epsilon:g}: {chosen}")
            for method, value in found.items():
                results.setdefault(method, []).append(round(value, 1))
            print(name, epsilon, json.dumps(found), file=sys.stderr, flush=True)
        best = max(k.plain_knn(data, through, n) for n in (5, 20))
        results["kNN without privacy (best of k = 5, 20)"] = [round(best, 1)] * 3
        rows = [[method, *values] for method, values in results.items()]
        text = table(["% right", *(f"epsilon {e:g}" for e in EPSILONS)], rows)
        text += "\n\nAgainst the number of queries, epsilon 2:\n\n"
        counts = [n for n in (200, 500, 1000, 2000) if n <= queries]
        many = {}
        for n in counts:
            for method, value in column(data, 2.0, n, through, full=False)[0].items():
                many.setdefault(method, []).append(round(value, 1))
        text += table(
            ["% right", *(f"T = {n}" for n in counts)], [[m, *v] for m, v in many.items()]
        )
        text += (
            f"\n\n{name}: {data.size:,} records, {data.grid.width} columns, {len(data.grid.labels)} "
            f"classes, T = {queries} held-out queries, delta = 1e-5, one run each (deviation of a cell "
            f"about {100 * (0.1 / queries) ** 0.5:.1f} points from the queries alone). Ind-KNN and hybrid use their "
            "defaults, no label of the test set seen; private kNN and the linear model are given the "
            f"best of a grid chosen on the test labels ({'; '.join(notes)}). CPU time of the section "
            f"{time.process_time() - start:.0f} s."
        )
        print(text)
        if args.write:
            write_section(
                f"Private prediction: accuracy, {name}",
                text,
                f"python -m tests.bench.knn_accuracy --sets {name} --write",
            )


if __name__ == "__main__":
    main()
