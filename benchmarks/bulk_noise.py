"""Bulk noise against OpenDP's own samplers, nanoseconds of CPU time a cell, in one run.

``python benchmarks/bulk_noise.py [--cells N] [--write]``. OpenDP's own samplers and ours alternate; the least
of several runs counts. "bulk" is the sampler on an int64 array (what the language runs); "bulk, in
OpenDP" is the same behind an OpenDP measurement; "by a list" where the vector comes as OpenDP's own list.
The base of the second table is numpy's float normal: no secret generator, and floats.
"""

from __future__ import annotations

import resource
import time
from fractions import Fraction
from functools import partial

import numpy as np
import opendp.prelude as dp
from _results import parser, table, write_figure

from opendp_sim.core import bridge
from opendp_sim.core.randomness import private_bytes
from opendp_sim.measurements.noise._impl.samplers import add_gaussian, add_laplace, add_rounded
from opendp_sim.measurements.noise.gaussian import make_gaussian
from opendp_sim.measurements.noise.laplace import make_laplace

dp.enable_features("contrib")

SCALES = (0.5, 10.0, 1e4)
NATIVE_CELLS = 100_000
ATOM = dp.vector_domain(dp.atom_domain(T="i64"))
FAMILIES = {
    "Laplace": (
        add_laplace,
        dp.m.make_laplace,
        partial(make_laplace, sampler="bulk"),
        dp.l1_distance(T="i64"),
        150,
        40,
    ),
    "Gaussian": (
        add_gaussian,
        dp.m.make_gaussian,
        partial(make_gaussian, sampler="bulk"),
        dp.l2_distance(T=float),
        400,
        25,
    ),
}


FLOAT_HEAD = [
    "law",
    "scale",
    "numpy's float normal, ns/cell",
    "ours, ns/cell",
    "ratio",
    "secret bytes a cell",
    "those bytes alone, ns/cell",
]


def cpu(run, runs):
    best = float("inf")
    for _ in range(runs):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def measure(family, scale, cells, runs):
    add, native, bulk, metric, *_ = FAMILIES[family]
    values, some = np.zeros(cells, np.int64), np.zeros(NATIVE_CELLS, np.int64)
    theirs = native(ATOM, metric, scale)
    ours = bulk(ATOM, metric, scale=scale)
    entry, bridge._ENTRY = bridge._ENTRY, None
    listed = bulk(ATOM, metric, scale=scale)
    bridge._ENTRY = entry
    laps = [
        (
            cpu(lambda: theirs(some), 1) / NATIVE_CELLS,
            cpu(lambda: add(values, [(cells, Fraction(scale))]), 1) / cells,
            cpu(lambda: ours(values), 1) / cells,
            cpu(lambda: listed(values), 1) / cells,
        )
        for _ in range(runs)
    ]
    return [1e9 * min(lap[i] for lap in laps) for i in range(4)]


def floats(cells, runs):
    """Gaussian noise beside numpy's float normal, and beside the secret bytes that it takes alone."""
    values, generator, out = np.zeros(cells, np.int64), np.random.default_rng(0), []
    for name, add in (("discrete", add_gaussian), ("rounded", add_rounded)):
        for scale in SCALES:
            taken = []

            def counted(count, taken=taken):
                taken.append(count)
                return private_bytes(count)

            add(values, [(cells, Fraction(scale))], counted)
            sizes = list(taken)
            laps = [
                (
                    cpu(lambda: generator.standard_normal(cells), 1),
                    cpu(lambda add=add, s=scale: add(values, [(cells, Fraction(s))]), 1),
                    cpu(lambda sizes=sizes: [private_bytes(size) for size in sizes], 1),
                )
                for _ in range(runs)
            ]
            base, ours, secret = (1e9 * min(lap[i] for lap in laps) / cells for i in range(3))
            out.append([name, scale, base, ours, f"{ours / base:.2f}x", sum(sizes) / cells, secret])
    return out


def levels(cells, runs):
    """Per-cell scales: a tree's levels, many short runs of few scales, many scales of few cells."""
    sizes = [max(1, cells >> (20 - i)) for i in range(20)]
    spans = [(size, Fraction(10 + i)) for i, size in enumerate(sizes)]
    short = [(10, Fraction(1 + i % 7)) for i in range(cells // 10)]
    many = [(100, Fraction(1000 + i)) for i in range(1000)]
    shapes = {
        "20 levels of a binary tree": spans,
        "runs of 10 cells, 7 scales": short,
        "1,000 new scales of 100 cells": many,
    }
    out = []
    for name, shape in shapes.items():
        total = sum(size for size, _ in shape)
        values = np.zeros(total, np.int64)
        costs = [
            cpu(lambda add=add, v=values, s=shape: add(v, s), 1 if shape is many else runs)
            for add in (add_laplace, add_gaussian)
        ]
        out.append([name, total, *(1e9 * cost / total for cost in costs)])
    return out


def main():
    options = parser(__doc__ or "")
    options.add_argument("--cells", type=int, default=10**7)
    options.add_argument("--runs", type=int, default=3)
    args = options.parse_args()
    rows = []
    for family, (*_, limit, ratio) in FAMILIES.items():
        for scale in SCALES:
            native, bulk, wrapped, listed = measure(family, scale, args.cells, args.runs)
            rows.append(
                [
                    family,
                    scale,
                    native,
                    bulk,
                    f"{native / bulk:.0f}x",
                    wrapped,
                    listed,
                    f"<= {limit}, >= {ratio}x",
                ]
            )
    head = [
        "law",
        "scale",
        "OpenDP, ns/cell",
        "bulk, ns/cell",
        "ratio",
        "bulk, in OpenDP, ns/cell",
        "by a list",
        "target",
    ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    text = "\n\n".join(
        [
            f"{args.cells:,} cells in bulk, {NATIVE_CELLS:,} in OpenDP's own; least of {args.runs} runs, CPU time, one thread.",
            table(head, rows),
            "Gaussian noise beside numpy's `standard_normal`, alternated:",
            table(FLOAT_HEAD, floats(args.cells // 10, args.runs)),
            "Several scales in one release, ns of CPU time a cell:",
            table(["shape", "cells", "Laplace", "Gaussian"], levels(args.cells // 10, args.runs)),
            f"Greatest resident size of the whole run: {peak:,.0f} MiB (lists made by OpenDP included).",
        ]
    )
    print(text)
    if args.write:
        write_figure("noise/bulk", text, "python benchmarks/bulk_noise.py --write")


if __name__ == "__main__":
    main()
