"""The code beside numpy scripts that were written from the mathematics alone.

The scripts (``class_means.py``, ``linear_gd.py``, ``det_fourier.py``, ``_shared.py``) lie in ``--checks``; both sides get the same numbers. A difference is relative to the largest number, unless it says bits.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
from scipy.special import ndtri

import opendp_sim.prelude  # noqa: F401 - fills the registry
from benchmarks._results import parser, table, write_section
from opendp_sim.accounting.measures.conversion import zcdp_to_epsilon
from opendp_sim.core.arithmetic.class_means import ReleasedSums, ShrunkMeans
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.linear._impl.descent import CLIP, gradient, residuals
from opendp_sim.measurements.selection._impl.gaussian_tail import threshold_for
from opendp_sim.transformations.sketches.kernels._impl.lattice import fit_lattice


def apart(ours: object, theirs: object) -> str:
    ours, theirs = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    return f"{np.abs(ours - theirs).max() / np.abs(theirs).max():.1g}"


def linear(oracle) -> list[list[str]]:
    generator, same, summed = np.random.default_rng(0), 0, 0
    for _ in range(20):
        width, classes = generator.integers(2, 400), generator.integers(2, 30)
        x = oracle.grid_rows(generator.normal(size=(500, width))).astype(np.float32)
        labels = generator.integers(0, classes, 500)
        weights = np.rint(generator.normal(size=(width + 1, classes)) * 300).astype(np.float32)
        theirs = oracle.residuals(x, labels, weights, 20, CLIP)
        same += np.array_equal(residuals(x, labels, weights, 10).T, theirs)
        found = oracle.gradient(x, labels, weights, 20, CLIP)
        summed += np.array_equal(gradient(x, labels, weights, 10), found)
    rows = [["residuals of linear_model, 20 random batches", f"{same} of 20 equal in every bit"]]
    return [*rows, ["its gradients, the same batches", f"{summed} of 20 equal in every bit"]]


def means(oracle) -> list[list[str]]:
    generator = np.random.default_rng(1)
    sizes = np.array([4000, 900, 300, 90, 30, 10])
    sums = sizes[:, None] * generator.normal(size=(6, 30)) / 9 + generator.normal(size=(6, 30)) * 4
    means_, kept, *_ = oracle.shrink(sums, sizes.astype(float), 4.0, 13.0, "js")
    own = ShrunkMeans.of(ReleasedSums(sums, sizes.astype(float), 4.0, 13.0, np.zeros(30)))
    twenty = np.concatenate([sizes, np.full(200, 5000)])
    many = np.concatenate([sums, generator.normal(size=(200, 30)) * 500])
    theirs = oracle.shrink(many, twenty.astype(float), 4.0, 13.0, "js")[1]
    wide = ShrunkMeans.of(ReleasedSums(many, twenty.astype(float), 4.0, 13.0, np.zeros(30)))
    name = "class means, what is kept of a class's distance"
    return [
        [
            f"{name}, 6 classes of 10 to 4,000",
            f"{np.abs(own.kept - kept).max():.1g} apart: see below",
        ],
        [f"{name}, 206 classes", f"{np.abs(wide.kept - theirs).max():.1g} apart"],
        ["class means themselves, 6 classes", apart(own.means, means_)],
    ]


def lattice(oracle) -> list[list[str]]:
    rows = []
    for width, sigma, bits in ((1, 0.06, 12), (2, 0.08, 12), (3, 0.12, 11)):
        span, steps = 2**bits, sigma * 2**bits
        own = fit_lattice((span,) * width, steps, 65536, 0, True)
        axes = [oracle.axis(own.turn, j, steps) for j in own.steps]
        theirs = 2 * np.prod([a[np.abs(own.head[:, i])] for i, a in enumerate(axes)], axis=0)
        rows.append([f"lattice weights, {width} columns", apart(own.weights, theirs)])
        each = [a[0] + 2 * a[1:].sum() for a in axes]
        whole = own.zero + own.weights.sum() + own.rest
        rows.append([f"lattice, all weights, {width} columns", apart(whole, np.prod(each))])
        alias = 1.0
        for j in own.steps:
            period = own.turn / j
            powers = [((period - span) / steps) ** 2, (period / steps) ** 2]
            alias *= 1 + np.exp(-powers[0]) + np.exp(-powers[1])
            alias += 3 * np.exp(-(((2 * period - span) / steps) ** 2))
        rows.append(
            [f"lattice, alias {alias - 1:.1e}, {width} columns", apart(1 + own.alias, alias)]
        )
    grid = GridRows(width=2, unit=1.0, lower=(0,), upper=(255,))
    given = {"frequencies": 4000, "kernel": {"gaussian": {"bandwidth": 40.0}}, "seed": 0}
    claim = lookup("fourier_sketch")(**given, features="deterministic").bind(grid, Symmetric())
    reader = claim.capabilities["kernel_sums"]
    x = np.random.default_rng(3).integers(0, 256, (400, 2)).astype(float)
    flat = np.zeros(claim.output.size, dtype=np.int64)
    claim.accumulate(Rows(x), flat)
    found = reader.estimate(claim.output.split(flat), Rows(x[:50])).groups[0, 0]
    rows.append(
        ["kernel sums of a lattice, bias bound 1e-5", apart(found, oracle.exact(x, x[:50], 40.0))]
    )
    return rows


def budgets(shared) -> list[list[str]]:
    epsilons = (0.1, 0.5, 1.0, 2.0)
    back = [zcdp_to_epsilon(shared.rho_of(e), 1e-6) for e in epsilons]
    rows = [["zCDP to (epsilon, 1e-6), there and back", apart(back, epsilons)]]
    sigma, delta = 10.57, 1 / 2293
    least = threshold_for(sigma, delta / 2, 1)
    tight = 1 - sigma * float(ndtri(delta / 2))
    text = f"{least}, the least whole number beside {tight:.2f} of a real normal"
    return [*rows, ["threshold of a stable set, scale 10.57", text]]


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--checks", type=Path, required=True)
    given = options.parse_args()
    sys.path.insert(0, str(given.checks))
    names = ("_shared", "linear_gd", "class_means", "det_fourier")
    shared, *rest = (importlib.import_module(name) for name in names)
    rows = budgets(shared)
    for way, oracle in zip((linear, means, lattice), rest, strict=True):
        rows += way(oracle)
    text = table(["what", "difference"], rows) + "\n\n" + " ".join((__doc__ or "").split())
    print(text)
    if given.write:
        write_section("Oracles", text, "python -m benchmarks.oracles --write --checks FOLDER")


if __name__ == "__main__":
    main()
