"""Fourier sketches over a lattice: against exact sums, rational phases and its sensitivity."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from opendp_sim.accounting.release.release import Release
from opendp_sim.core.arithmetic.countable import TOO_MANY
from opendp_sim.core.claims import Noise
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.postprocessing.density import Density
from opendp_sim.transformations.sketches.kernels._impl.lattice import LatticeReader, fit_lattice
from tests.transformations.sketches.kernels._kernel_data import (
    bound,
    built,
    grid,
    kernel_values,
    points,
)

UNIT = 1 / 2048
UNEVEN = GridRows(width=3, unit=UNIT, lower=(0, -300, 7), upper=(1000, 300, 7))
WIDE = GridRows(width=2, unit=1.0, lower=(-(2**15),), upper=(2**15 - 1,))


def sketch(domain: GridRows, bandwidth: float, frequencies: int = 3000, **params: Any) -> Any:
    kernel = {"gaussian": {"bandwidth": bandwidth}}
    given = {"frequencies": frequencies, "kernel": kernel, "seed": 3}
    claim = bound("fourier_sketch", domain, **given, **params)
    return claim, claim.capabilities["kernel_sums"]


def asked(domain: GridRows, count: int, seed: int) -> Rows:
    shares = np.random.default_rng(seed).random((count, domain.width))
    lower, upper = (np.broadcast_to(v, domain.width) for v in (domain.lower, domain.upper))
    corners = np.array(list(product((0.0, 1.0), repeat=domain.width)))[:count]
    shares[: len(corners)] = corners
    return Rows(np.rint(lower + shares * (upper - lower)))


@pytest.mark.parametrize(
    ("domain", "bandwidth"),
    [(grid(1), 0.12), (grid(2), 0.16), (grid(2), 30.0), (UNEVEN, 0.2), (WIDE, 9000.0)],
)
def test_answers_are_the_exact_sums_within_the_stated_bias(domain: GridRows, bandwidth: float):
    claim, reader = sketch(domain, bandwidth, features="deterministic")
    rows, queries = asked(domain, 200, 1), asked(domain, 40, 2)
    exact = kernel_values(claim, rows, queries, domain.unit).sum(axis=0)
    found = reader.estimate(built(claim, rows), queries, groups=9)
    error = np.abs(found.groups[:, 0] - exact).max()
    assert error <= len(rows) * reader.bias() < 0.02 * len(rows)
    assert error < 1e-3 * math.sqrt(len(rows))
    assert not found.variance.any()
    assert found.freedom == math.inf


def test_weights_are_the_kernel_s_own_and_sorted_by_an_integer():
    """Oracle: coefficients by a numerical integral, and every vector of a full grid."""
    found = fit_lattice((900, 300), 150.0, 5000, 0, exact=True)
    assert found is not None
    assert found.rest <= 5e-7
    coefficients = []
    for j in found.steps:
        period = found.turn / int(j)
        t = (np.arange(4096) + 0.5) / 4096 * period - period / 2
        copies = sum(np.exp(-np.square((t + z * period) / 150.0)) for z in range(-4, 5))
        m = np.arange(-30, 31)
        coefficients.append((np.cos(2 * np.pi * np.outer(m, t) / period) @ copies) / 4096)
    full = np.multiply.outer(*coefficients)
    own = full[found.head[:, 0] + 30, found.head[:, 1] + 30]
    assert found.weights == pytest.approx(2 * own, abs=1e-12)
    assert found.zero == pytest.approx(full[30, 30], rel=1e-9)
    squares = np.square(found.head * found.steps).sum(axis=1)
    assert (np.diff(squares) >= 0).all()
    outside = full.sum() - found.zero - found.weights.sum()
    assert found.rest == pytest.approx(outside, abs=1e-9)
    both = {tuple(v) for v in found.head.tolist()} | {tuple(v) for v in (-found.head).tolist()}
    assert len(both) == 2 * len(found.head)
    assert (0, 0) not in both


@pytest.mark.parametrize(("domain", "bandwidth"), [(UNEVEN, 0.3), (WIDE, 15000.0)])
def test_features_are_the_table_at_rational_phases(domain: GridRows, bandwidth: float):
    claim, reader = sketch(domain, bandwidth, 500, features="deterministic")
    lattice, size = reader.lattice, len(reader.table)
    assert (size < lattice.turn) == (domain is WIDE)
    rows = asked(domain, 12, 5)
    expected = np.zeros((reader.size, 2), dtype=np.int64)
    for place, m in enumerate(lattice.head):
        for row in rows.values:
            turns = sum(
                Fraction(int(v)) * int(a) * int(j)
                for v, a, j in zip(row, m, lattice.steps, strict=True)
            )
            phase = math.floor(turns * size / lattice.turn) % size
            expected[place] += reader.table[phase] * reader.multipliers[place]
    found = built(claim, rows)
    assert np.array_equal(found["features"][0], expected)
    assert found["total"].tolist() == [12 * reader.weight]


@given(st.integers(-2048, 2048), st.integers(-2048, 2048), st.sampled_from([0.4, 1.0, 8.0]))
def test_one_record_is_within_its_sensitivity(x: int, y: int, bandwidth: float):
    claim, _ = sketch(grid(2), bandwidth, 400, features="deterministic")
    cells = [v.ravel() for v in built(claim, Rows(np.array([[x, y]], float))).values()]
    out = np.concatenate(cells).astype(object)
    assert sum(abs(v) for v in out) <= claim.sensitivity.l1
    assert (1 - 2**-16) * claim.sensitivity.l2_squared <= sum(v * v for v in out)
    assert sum(v * v for v in out) <= claim.sensitivity.l2_squared
    assert max(abs(v) for v in out) <= claim.sensitivity.linf


def test_pieces_orders_and_labels_are_the_same_bits():
    domain = grid(3, labels=("a", "b", "c"))
    claim, _ = sketch(domain, 0.5, 1500, per_label=True)
    rows = Rows(points(9000, 3, seed=4).values, np.arange(9000) % 3)
    whole, parts = (np.zeros(claim.output.size, np.int64) for _ in range(2))
    claim.accumulate(rows, whole)
    order = np.random.default_rng(1).permutation(9000)
    values, labels = np.asfortranarray(rows.values[order]), rows.labels[order]
    for start, stop in ((0, 1), (1, 4100), (4100, 9000)):
        claim.accumulate(Rows(values[start:stop], labels[start:stop].astype(np.int8)), parts)
    assert np.array_equal(whole, parts)


@pytest.mark.few(1)
@pytest.mark.parametrize("columns", [2, 5])
def test_noise_of_answers_is_its_formula(columns: int):
    """400 fixed draws of 40 spread queries: deviation within 4 %, the share of the tail too."""
    claim, reader = sketch(grid(columns), 0.8, 1000)
    draws = np.random.default_rng(columns)
    queries, found, spread = asked(grid(columns), 40, 7), [], []
    for _ in range(400):
        noise = np.rint(draws.normal(0, 1e6, claim.output.size)).astype(np.int64)
        one = reader.estimate(claim.output.split(noise), queries)
        found.append(one.groups[0, 0])
        spread.append(one.variance[0].mean() / one.repetitions)
    formula = 1e6 * reader.noise_factor()
    assert np.std(found) == pytest.approx(formula, rel=0.04)
    if columns == 5:
        assert np.mean(spread) == pytest.approx(one.noise_share * formula**2, rel=0.04)
        assert 0 < one.noise_share < 1


@pytest.mark.long
def test_a_tail_is_unbiased_and_its_error_is_what_it_says():
    """120 seeds: no bias, the sample variance is the variance, the bound holds, random is worse."""
    rows, queries = asked(grid(5), 60, 1), asked(grid(5), 6, 2)
    errors, stated, random = [], [], []
    for seed in range(120):
        kernel = {"gaussian": {"bandwidth": 0.8}}
        for features, into in (("auto", errors), ("random", random)):
            claim = bound(
                "fourier_sketch",
                grid(5),
                frequencies=600,
                kernel=kernel,
                seed=seed,
                features=features,
            )
            reader = claim.capabilities["kernel_sums"]
            exact = kernel_values(claim, rows, queries, UNIT).sum(axis=0)
            one = reader.estimate(built(claim, rows), queries)
            into.append(one.groups[0, 0] - exact)
            if features == "auto":
                assert len(reader.lattice.tail) >= 64
                stated.append(one.variance[0] / one.repetitions)
                limit = len(rows) * reader.spread()
    deviation = np.std(errors, axis=0)
    slack = len(rows) * 1e-3
    assert (np.abs(np.mean(errors, axis=0)) < 5 * deviation / math.sqrt(120) + slack).all()
    assert math.sqrt(np.mean(stated)) == pytest.approx(np.sqrt(np.square(errors).mean()), rel=0.15)
    assert (deviation < limit).all()
    assert np.square(errors).mean() < 0.5 * np.square(random).mean()


def test_median_of_means_shares_the_head():
    claim, reader = sketch(grid(5), 0.8, 1000)
    rows, queries = asked(grid(5), 60, 1), asked(grid(5), 9, 2)
    whole = reader.estimate(built(claim, rows), queries).groups[0]
    each = reader.estimate(built(claim, rows), queries, groups=4).groups
    sizes = np.array([len(reader.lattice.tail[g::4]) for g in range(4)])
    assert np.tensordot(sizes / sizes.sum(), each, axes=1) == pytest.approx(whole)


def test_queries_outside_the_box_have_their_own_bias():
    claim, reader = sketch(grid(2), 0.3, features="deterministic")
    rows = asked(grid(2), 50, 3)
    out = np.linspace(2048, 9000, 60)
    queries = Rows(np.stack([out, np.full(60, 2048.0)], axis=1))
    exact = kernel_values(claim, rows, queries, UNIT).sum(axis=0)
    error = np.abs(reader.estimate(built(claim, rows), queries).groups[0, 0] - exact)
    bias = reader.bias(queries)
    assert (error <= len(rows) * bias + 1e-12).all()
    assert bias[0] == pytest.approx(reader.bias())
    assert bias.max() > 1e-3
    assert bias[-1] < 1e-8


def test_density_widens_by_the_bias_of_each_query():
    space = RealRows(width=1, lower=(0.0,), upper=(1.0,))
    step = lookup("fourier_sketch")(
        frequencies=99, seed=0, kernel={"gaussian": {"bandwidth": 0.2}}, features="deterministic"
    )
    stages = bind_steps(space, Symmetric(), [lookup("quantize")(bits=10), step])
    cells = np.zeros(stages[-1].claim.output.size, np.int64)  # type: ignore[union-attr]
    stages[-1].claim.accumulate(Rows(np.full((1000, 1), 512.0)), cells)  # type: ignore[union-attr]
    of = Release.of_sketch(stages, cells, Noise("discrete_gaussian", 1e4), {})
    answer = Density().bind(of.released, Symmetric())
    found = answer.function(of.arrays, of.queries(Rows(np.array([[0.5], [1.3]]))))
    width = (found["upper"] - found["lower"])[:, 0]
    bias = answer and stages[-1].claim.capabilities["kernel_sums"].bias(  # type: ignore[union-attr]
        of.queries(Rows(np.array([[0.5], [1.3]])))
    )
    assert width[1] - width[0] == pytest.approx(2000 * (bias[1] - bias[0]), rel=1e-6)
    assert not found["sketch_error"].any()


def test_auto_takes_the_lattice_where_it_has_less_error():
    for columns, bandwidth, frequencies, kind in (
        (1, 0.12, 50, LatticeReader),
        (2, 0.16, 1000, LatticeReader),
        (4, 0.8, 2000, LatticeReader),
        (8, 0.6, 2000, None),
        (40, 2.0, 1000, None),
        (1, 1e-4, 1000, None),
    ):
        reader = sketch(grid(columns), bandwidth, frequencies)[1]
        assert isinstance(reader, LatticeReader) == (kind is not None), (columns, bandwidth)
    kernel = {"laplacian": {"bandwidth": 1.0}}
    other = bound("fourier_sketch", grid(1), frequencies=99, seed=1, kernel=kernel)
    assert not isinstance(other.capabilities["kernel_sums"], LatticeReader)


@pytest.mark.parametrize(
    ("columns", "kernel"),
    [(8, {"gaussian": {"bandwidth": 0.6}}), (1, {"laplacian": {"bandwidth": 1.0}})],
)
def test_what_a_lattice_cannot_hold_is_refused(columns: int, kernel: Any):
    given = {"frequencies": 2000, "kernel": kernel, "seed": 0, "features": "deterministic"}
    with pytest.raises(ParameterError, match=r"OS102 fourier_sketch\.features") as error:
        bound("fourier_sketch", grid(columns), **given)
    assert "features: auto" in error.value.hint


def test_the_total_of_the_finest_lattice_stays_in_int64():
    """Its automatic weight was 2**32.86: 2**30.2 records, fewer than are admitted, left int64."""
    line = GridRows(width=1, unit=1.0, lower=(-(2**19),), upper=(2**19,))
    claim, reader = sketch(line, 20.0, 65536, features="deterministic")
    assert isinstance(reader, LatticeReader)
    assert max(block.linf for block in claim.output.blocks) == reader.weight == 2**32 - 1
    assert reader.weight * (TOO_MANY - 1) < 2**63
    cells = built(claim, Rows(np.array([[0.0], [-(2.0**19)]])))
    assert int(cells["total"][0]) == 2 * reader.weight
    assert reader.totals(cells)[0].tolist() == [2.0]


@pytest.mark.parametrize("width", [1, 2, 3])
def test_likely_bias_is_the_root_mean_square_of_one_rows_error(width):
    """Lemma 7: of rows anywhere, one at a time, so that no two errors can cancel; Lemma 5 bounds each."""
    domain = GridRows(width=width, unit=2.0**-20, lower=(0,), upper=(2**20,))
    claim, sums = sketch(domain, 0.2)
    draw = np.random.default_rng(width)
    errors = []
    for _ in range(100):
        row = Rows(draw.integers(0, 2**20 + 1, (1, width)).astype(float))
        near = Rows(np.clip(row.values + np.rint(draw.normal(0, 2**17, (20, width))), 0, 2**20))
        cells = np.zeros(claim.output.size, dtype=np.int64)
        claim.accumulate(row, cells)
        found = sums.estimate(claim.output.split(cells), near).groups[0, 0]
        far = np.linalg.norm(row.values - near.values, axis=1) * domain.unit
        errors.append(found - np.exp(-np.square(far / 0.2)))
    assert np.abs(errors).max() <= sums.bias()
    assert sums.likely_bias() / 6 < np.sqrt(np.mean(np.square(errors))) < 1.1 * sums.likely_bias()
    assert sums.likely_bias() < 0.6 * sums.bias()
    outside = Rows(np.full((1, width), 1.5 * 2**20))
    assert 0.0 < float(sums.likely_bias(outside)[0]) <= float(sums.bias(outside)[0])
