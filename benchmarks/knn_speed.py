"""CPU time of exact and hashed prediction against the bare product and a loop over neighbours."""

from __future__ import annotations

import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import opendp.prelude as dp

from benchmarks._knn import rho_of
from benchmarks._results import parser, table, write_figure
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.knn._impl.predictor import Predictor
from opendp_sim.measurements.knn._impl.public_votes import QueryRows
from opendp_sim.measurements.knn._impl.vote_noise import add_rounded_gaussian
from opendp_sim.measurements.knn.ind_knn import IndKnn

dp.enable_features("contrib")
N, D, M, CLASSES = 50_000, 768, 256, 10
RHO = rho_of(2.0)


def made():
    """Clusters, a few hundred columns of noise: neighbours at a cosine of about 0.5."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, D))
    grid = GridRows(
        width=D, labels=tuple(range(CLASSES)), unit=2.0**-9, lower=(-4096,), upper=(4096,)
    )

    def rows(count):
        place = rng.integers(0, 40, count)
        values = centres[place] + rng.normal(size=(count, D))
        return np.rint(values * 512).clip(-4096, 4096), place % CLASSES

    x, y = rows(N)
    return grid, Rows(x, y.astype(np.int64)), rows(M)[0], rows(M)[0]


def least(run, times=3):
    """The least CPU time of some runs; later queries find fewer active records, as in life."""
    found = []
    for _ in range(times):
        start = time.process_time()
        out = run()
        found.append(time.process_time() - start)
    return min(found), out


def answered_by_loop(near, row, labels, purses, scales):
    """Answer one query with a Python step for each selected record, as published programs do."""
    c1 = 1 / (2 * scales.count**2)
    count = len(near) + int(add_rounded_gaussian(np.zeros(1, np.int64), scales.count)[0])
    _, scale = scales.of_votes(count)
    votes = [0.0] * CLASSES
    for i in near:
        purses[i] -= c1
        weight = min(255.0 * row[i] / 2048**2, (2 * max(purses[i], 0.0)) ** 0.5 * scale)
        purses[i] -= weight * weight / (2 * scale * scale)
        votes[labels[i]] += weight
    noise = add_rounded_gaussian(np.zeros(CLASSES, np.int64), scale)
    return int(np.argmax(np.array(votes) + noise))


def scanned(row, limit, purses, scales):
    """Look at every record in Python."""
    c1 = 1 / (2 * scales.count**2)
    return [i for i in range(len(row)) if row[i] >= limit and purses[i] >= c1]


def main():
    args = parser(__doc__).parse_args()
    grid, data, public, queries = made()
    rows = []
    common = {"rho": RHO, "queries": 2000, "size": N}
    exact = Predictor(IndKnn(**common), grid, data)
    exact.refer(public)
    pool = exact._pool
    seen = pool.lens.see_queries(queries, pool.dtype)
    wide = pool.seen_rows.astype(np.float64), seen.astype(np.float64)
    bare, _ = least(lambda: wide[1] @ wide[0].T)
    single, _ = least(lambda: seen @ pool.seen_rows.T)
    whole, _ = least(lambda: exact.predict(queries))

    def add(name, seconds, count, note=""):
        rows.append([name, 1000 * seconds / count, seconds / count * M / bare, note])

    add("bare product, float64", bare, M)
    add("bare product, float32 (also exact here)", single, M)
    add("Ind-KNN, exact, batch of 256", whole, M, "must be <= 3 x the bare product")
    alone, _ = least(lambda: [exact.predict(q[None]) for q in queries[:32]])
    add("Ind-KNN, exact, one by one", alone, 32)
    with_reuse = Predictor(IndKnn(**common, reuse=True), grid, data)
    with_reuse.refer(public)
    add("Ind-KNN, exact, reuse, batch of 256", least(lambda: with_reuse.predict(queries))[0], M)
    for name, search in (
        ("codes of 256 sign bits", {"sign_codes": {}}),
        ("30 tables of 12 bits", {"sign_hashes": {"tables": 30, "bits": 12}}),
    ):
        hashed = Predictor(IndKnn(**common, search=search), grid, data)
        hashed.refer(public)
        limit = int(np.median(hashed._limits(hashed._reference.seen)))
        found = hashed._pool.coder.recall(hashed._cosine(limit, hashed._pool.lens))
        note = f"finds a record at the threshold with probability {found:.2f}"
        add(
            f"Ind-KNN, {name}, batch of 256", least(lambda h=hashed: h.predict(queries))[0], M, note
        )
        lone, _ = least(lambda h=hashed: [h.predict(q[None]) for q in queries[:32]])
        add(f"Ind-KNN, {name}, one by one", lone, 32, "must be <= 2 ms")

    some = 8
    limits = exact._limits(QueryRows.of(seen[:some])).tolist()
    labels, purses, scales = data.labels.tolist(), [RHO] * N, exact._scales
    few = wide[1][:some]

    def after_a_product():
        for row, limit in zip((few @ wide[0].T).tolist(), limits, strict=True):
            answered_by_loop(scanned(row, limit, purses, scales), row, labels, purses, scales)

    def as_published():
        for query, limit in zip(few, limits, strict=True):
            row = wide[0] @ query
            near = np.flatnonzero(row >= limit)
            answered_by_loop(near.tolist(), row, labels, purses, scales)

    def record_by_record():
        for query, limit in zip(few[:2], limits, strict=False):
            row = [float(record @ query) for record in wide[0]]
            answered_by_loop(scanned(row, limit, purses, scales), row, labels, purses, scales)

    ours, ours_alone = whole / M, alone / 32
    for name, program, count in (
        (
            "Loop A: one matrix product for the batch, then Python over all records",
            after_a_product,
            some,
        ),
        ("Loop B: one numpy product a query, then Python over its neighbours", as_published, some),
        ("Loop C: Python over all records, products too", record_by_record, 2),
    ):
        each = least(program, times=2)[0] / count
        add(
            name,
            each * count,
            count,
            f"{each / ours:.0f} x ours in batches, {each / ours_alone:.1f} x ours one by one",
        )
    selected = np.mean([np.sum(row >= t) for row, t in zip(few @ wide[0].T, limits, strict=True)])
    text = table(["", "CPU ms a query", "x bare product", ""], rows)
    text += (
        f"\n\nn = {N:,}, d = {D}, {CLASSES} classes, epsilon 2, T = 2,000; {selected:.0f} records near a query. "
        "One BLAS thread; least of three runs (of two, the loops). The loops are given float products and float "
        "purses, and the package's noise. Twenty times a straightforward loop was asked: loop C is one, A and B lean "
        f"on a library product, which is most of what a batch of ours costs. Load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    )
    print(text)
    if args.write:
        write_figure("knn/speed", text, "python -m benchmarks.knn_speed --write")


if __name__ == "__main__":
    main()
