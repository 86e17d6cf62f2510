"""Sketches beside the formulas of the check scripts: trees, moments, frequencies with and without public points."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks._kernels import exact_flat, noisy, pipeline
from benchmarks.oracles import apart
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.postprocessing._impl.expected_error import Asked, expected_kernel_error

Lines = list[list[str]]


def noise_of_sketches() -> Lines:
    """A sum's noise at any number of frequencies or hashes is 1 / sqrt(2 rho) (mixture_rff, race_noise)."""
    grid, rows = GridRows(width=5, unit=0.01, lower=(-500,), upper=(500,)), []
    given = {"frequencies": 4000, "kernel": {"gaussian": {"bandwidth": 2.0}}, "features": "random"}
    hashed = {"buckets": 64, "family": {"p_stable_l2": {"width": 4.0}}}
    for name, key, words in (
        ("mixture_rff: 4,000 frequencies", "fourier_sketch", given),
        ("race_noise: 400 hashes", "race_sketch", {"repetitions": 400, **hashed}),
    ):
        claim = lookup(key).from_spec({**words, "seed": 0}).bind(grid, Symmetric())
        factor = claim.capabilities["kernel_sums"].noise_factor()
        length = math.sqrt(claim.output.blocks[0].l2_squared)  # without the number of records
        whole = claim.output.sensitivity.bound("l2", 1)
        text = f"{factor * length:.4f}; {factor * whole:.4f} with the number of records"
        rows.append([f"{name}, noise over 1 / sqrt(2 rho)", text])
    return rows


def trees(of: ModuleType) -> Lines:
    """Sums of distances on a line without noise, and the noise of both."""
    generator, rows = np.random.default_rng(5), []
    grid = GridRows(width=1, unit=1.0, lower=(0,), upper=(4095,))
    x, asked = generator.integers(0, 4096, 3000), generator.integers(0, 4096, 200)
    for levels in (4, 8, 12):
        claim = lookup("moment_tree")(levels=levels, tuned_for="gaussian").bind(grid, Symmetric())
        flat = np.zeros(claim.output.size, dtype=np.int64)
        claim.accumulate(Rows(x[:, None].astype(float)), flat)
        reader = claim.capabilities["distance_sums"]
        reading = reader.reading(claim.output.split(flat), None, 0.05)
        own = reading.at(Rows(asked[:, None].astype(float))).values[0]
        tree, widths = of.moment_tree_g(x.astype(float), 4096.0, levels, np.inf, generator)
        theirs = [of.moment_query(tree, widths, float(y)) for y in asked]
        rows.append([f"moment_tree_lib: sums of distances, {levels} levels", apart(own, theirs)])
        if levels == 12:
            length = claim.output.sensitivity.bound("l2", 1)
            most = reader.spread(None, 0.0) * length * math.sqrt(1 / (2 * 0.5)) / 4096
            text = f"{most:.3f} here, {math.sqrt(2 / 0.5):.3f} there"
            rows.append(["tree_paper_vs_moment: largest noise, rho .5, range 1", text])
    return rows


def frames(of: ModuleType) -> Lines:
    """`rescale`, and norms from the middle of the box."""
    low, high = np.array([0, 50, 0.0]), np.array([4, 75, 20000.0])
    space = RealRows(width=3, lower=tuple(low), upper=tuple(high))
    made = lookup("rescale")().bind(space, Symmetric()).function(Rows(of.x))
    grid = GridRows(width=16, unit=1.0, lower=(0,), upper=(3840,))
    claim = lookup("moments_sketch")().bind(grid, Symmetric())
    reader = claim.capabilities["distance_sums"]
    middle = np.full(16, 1920.0)
    generator = np.random.default_rng(0)
    asked = generator.integers(0, 3841, (50, 16)).astype(float)
    flat = np.zeros(claim.output.size, dtype=np.int64)
    found = reader.reading(claim.output.split(flat), None, 0.05).at(Rows(asked))
    q, b = np.square(asked - middle).sum(axis=1), float(of.Bc)
    length = claim.output.sensitivity.bound("l2", 1)
    theirs = np.sqrt(4 * b * b + 4 * q * 2 * b + 4 * q * q)  # shares 1/4, 1/2, 1/4 of rho
    own = np.sqrt(found.variance) * length
    own = own[0] if own.ndim > 1 else own
    same = np.array_equal(made.values, of.z + 0.0)
    return [
        ["frame_and_centre: rescaled rows", "equal in every bit" if same else "differ"],
        ["frame_and_centre: squared norm bound", apart(reader.bound_squared, of.Bc)],
        ["frame_and_centre, l2sq_moments: deviations of 50 queries", apart(own, theirs)],
    ]


def _parts(of: ModuleType, stages) -> list[tuple[np.ndarray, np.ndarray]]:
    """Cosines and sines (D, n) of rows, public points and queries at our frequencies, as the script has them."""
    reader = stages[-1].claim.capabilities["kernel_sums"]
    turn = 2 * math.pi / reader.mechanism.phases
    made = []
    for values in (of.x, of.pub, of.q):
        phases = reader.projection.phases(np.rint(values / stages[-1].domain.unit)) * turn
        made.append((np.cos(phases), np.sin(phases)))
    return made


def _theirs(of: ModuleType, stages) -> tuple[np.ndarray, np.ndarray]:
    """Answers with the public points, and the variance that they foretell: the scripts' formulas."""
    n, m = len(of.x), len(of.pub)
    (c, s), (cp, sp), (cq, sq) = _parts(of, stages)
    apart_ = np.square(cdist(of.q, of.pub)) / of.s**2
    near = np.exp(-apart_)
    rest = cq.T * (c.sum(axis=1) - n / m * cp.sum(axis=1))
    rest += sq.T * (s.sum(axis=1) - n / m * sp.sum(axis=1))
    answers = rest.mean(axis=1) + n / m * near.sum(axis=1)
    of_points = (cq.T * cp.sum(axis=1) + sq.T * sp.sum(axis=1)) / m
    v_m = of_points.var(axis=1, ddof=1) / of.D
    v_1 = (1 + np.exp(-4 * apart_)).mean(axis=1) / 2
    v_2 = (of.D * v_m + near.mean(axis=1) ** 2 - v_1 / m) / (1 - 1 / m)
    return answers, v_m - (1 / m - 1 / n) * (v_1 - v_2) / of.D


def density(of: ModuleType) -> Lines:
    """Newsgroups, 768 frequencies: public points, and the error that public points foretell."""
    space = RealRows(width=of.x.shape[1], lower=(-1.0,), upper=(1.0,))
    kernel = {
        "frequencies": of.D,
        "kernel": {"gaussian": {"bandwidth": of.s}},
        "features": "random",
    }
    made, told, off, close = [], [], [], []
    for seed in range(4):
        steps = {"quantize": {"bits": 14}}, {"fourier_sketch": {**kernel, "seed": seed}}
        stages = pipeline(space, *steps)
        release = noisy(stages, exact_flat(stages, Rows(of.x)), None)
        answers, variance = _theirs(of, stages)
        told.append(np.maximum(variance, 0).mean())
        asked = Asked(stages, 1e-9, Rows(of.pub), Rows(of.q), len(of.x))
        made.append((expected_kernel_error(asked, lookup("density")()).sampling / len(of.x)) ** 2)
        off.append(np.square(_ask(release, of, "none") / len(of.x) - of.t / len(of.x)).mean())
        close.append(float(apart(_ask(release, of, of.pub), answers)))
    root = [f"{1e3 * math.sqrt(np.mean(part)):.2f}" for part in (made, told, off)]
    text = f"{root[0]} here, {root[1]} there, {root[2]} measured"
    return [
        ["control_variate: answers with public points", f"{max(close):.1g}: see below"],
        ["expected_error: foretold, x 1,000 a record, 4 seeds", text],
    ]


def _ask(release, of: ModuleType, public) -> np.ndarray:
    answers = release.ask("density", of.q, public=public)
    return np.asarray(answers["density"], dtype=float).ravel()
