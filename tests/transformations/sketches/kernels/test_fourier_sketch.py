"""What is true of Fourier sketches alone: exactness, unbiasedness, noise and sampling error."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.domains.rows import GridRows, Rows, take
from opendp_sim.measurements.noise._impl.samplers import add_gaussian
from opendp_sim.transformations.sketches.kernels._impl import fourier as module
from opendp_sim.transformations.sketches.kernels._impl.fourier import drawn_phases, phase_table
from opendp_sim.transformations.sketches.kernels._impl.kernels import GaussianKernel
from opendp_sim.transformations.sketches.kernels.fourier_sketch import FourierSketch
from tests._seeded import stream
from tests._tiers import some
from tests.transformations.sketches.kernels._kernel_data import (
    KERNELS,
    bound,
    built,
    distances,
    grid,
    kernel_values,
    points,
)

UNIT = 1 / 2048


@pytest.mark.parametrize("phases", [4, 8, 64, 4096])
def test_table_pairs_are_no_longer_than_claimed_and_turn_into_each_other(phases: int) -> None:
    table = phase_table(phases)
    assert np.square(table).sum(axis=1).max() <= 4096**2
    assert np.square(table).sum(axis=1).min() > (4096 - 1.5) ** 2
    quarter = phases // 4
    turned = np.stack([-table[:, 1], table[:, 0]], axis=1)
    assert np.array_equal(np.roll(table, -quarter, axis=0), turned)
    mirrored = table[::-1] * np.array([1, -1])
    assert np.array_equal(table, mirrored)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_features_are_the_exact_rational_phases(kernel: Any) -> None:
    """Every feature equals the table at floor(x . a + b) mod P, computed in rationals."""
    claim = bound(
        "fourier_sketch",
        grid(3),
        features="random",
        frequencies=6,
        kernel=kernel,
        seed=8,
        phases=16,
    )
    reader = claim.capabilities["kernel_sums"]
    rows = points(12, 3, seed=1)
    rows.values[0], rows.values[1] = -2048, 2048
    expected = np.zeros((6, 2), dtype=np.int64)
    for j, folded in enumerate(reader.projection.folded):
        *direction, offset = map(Fraction, folded)
        for row in rows.values:
            phase = sum((Fraction(v) * a for v, a in zip(row, direction, strict=True)), offset)
            expected[j] += reader.table[math.floor(phase) % 16]
    assert np.array_equal(built(claim, rows)["features"][0], expected)


@pytest.mark.few(2)
@pytest.mark.parametrize("phases", [4, 64])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_estimates_are_unbiased_however_coarse_the_phases(kernel: Any, phases: int) -> None:
    """Fixed seed, no noise: every query within 4 standard errors of the exact sum."""
    claim = bound(
        "fourier_sketch",
        grid(4),
        features="random",
        frequencies=6000,
        kernel=kernel,
        seed=5,
        phases=phases,
    )
    rows, queries = points(300, 4, seed=2), points(20, 4, seed=3, reach=3000)
    exact = kernel_values(claim, rows, queries, UNIT)
    reader = claim.capabilities["kernel_sums"]
    found = reader.estimate(built(claim, rows), queries)
    deviation = np.sqrt(found.variance[0] / found.repetitions)
    assert np.abs((found.groups[0, 0] - exact.sum(axis=0)) / deviation).max() < 4
    assert (
        deviation <= 1.05 * reader.sketch_deviation(distances(claim, rows, queries, UNIT))
    ).all()


@pytest.mark.few(1)
@pytest.mark.parametrize("kernel", some(KERNELS, 3), ids=str)
def test_sampling_error_is_its_formula(kernel: Any) -> None:
    """Root mean square over 400 seeds within 10 % of the exact pairwise formula.

    Per frequency, Var = sum over pairs of (k(x + x' - 2y) + k(x - x')) / 2 - k(x-y) k(x'-y). The mean
    of 400 x 5 squares of near-normal errors (queries correlated: at least 400 free) has relative
    deviation at most sqrt(2/400) = 7 %, half that in the root; seeds are fixed.
    """
    rows, queries = points(25, 2, seed=4), points(5, 2, seed=6)
    errors, predicted = [], []
    for seed in range(400):
        claim = bound(
            "fourier_sketch", grid(2), features="random", frequencies=100, kernel=kernel, seed=seed
        )
        exact = kernel_values(claim, rows, queries, UNIT)
        found = claim.capabilities["kernel_sums"].estimate(built(claim, rows), queries)
        errors.append(found.groups[0, 0] - exact.sum(axis=0))
    zero = Rows(np.zeros((1, 2)))
    for query, exact_of_query in zip(queries.values, exact.T, strict=True):
        plus = (rows.values[:, None] + rows.values[None] - 2 * query).reshape(-1, 2)
        minus = (rows.values[:, None] - rows.values[None]).reshape(-1, 2)
        pairs = sum(kernel_values(claim, Rows(v), zero, UNIT).sum() for v in (plus, minus)) / 2
        predicted.append(math.sqrt((pairs - exact_of_query.sum() ** 2) / 100))
    measured = np.sqrt(np.square(errors).mean())
    assert measured == pytest.approx(np.sqrt(np.square(predicted).mean()), rel=0.10)
    # No bias over the seeds either: each query's mean error within 4 standard errors of zero.
    bias = np.mean(errors, axis=0) / (np.std(errors, axis=0) / math.sqrt(400))
    assert np.abs(bias).max() < 4


def test_one_record_s_error_attains_the_bound() -> None:
    """For equal records the bound is the deviation: ratio within 5 %, 300 fixed seeds."""
    rows, queries = Rows(np.full((3, 2), 100.0)), Rows(np.array([[1000.0, -400.0]]))
    errors = []
    for seed in range(300):
        claim = bound(
            "fourier_sketch",
            grid(2),
            features="random",
            frequencies=50,
            kernel=KERNELS[0],
            seed=seed,
        )
        exact = kernel_values(claim, rows, queries, UNIT)
        reader = claim.capabilities["kernel_sums"]
        found = reader.estimate(built(claim, rows), queries).groups[0, 0]
        errors.append(found - exact.sum(axis=0))
    bounded = reader.sketch_deviation(distances(claim, rows, queries, UNIT))[0]
    assert np.sqrt(np.square(errors).mean()) == pytest.approx(bounded, rel=0.10)


@pytest.mark.parametrize(
    "frequencies",
    [250, pytest.param(1000, marks=pytest.mark.long), pytest.param(8000, marks=pytest.mark.deep)],
)
def test_noise_is_one_query_s_price_whatever_the_size(frequencies: int) -> None:
    """zCDP: deviation 1/sqrt(2 rho) within 5 %.

    400 draws of 20 queries spread over the box, nearly independent: the sample deviation has
    relative deviation near 1/sqrt(2 * 8000) = 0.8 %, and 1/sqrt(800) = 3.6 % were they one. The
    formula is 1.025/sqrt(2 rho); the measured value is compared with it at 4 %: five deviations.
    """
    rho = 0.5
    claim = bound(
        "fourier_sketch",
        grid(4),
        features="random",
        frequencies=frequencies,
        kernel=KERNELS[0],
        seed=1,
    )
    reader, sketch = claim.capabilities["kernel_sums"], claim.output
    scale = math.sqrt(float(claim.sensitivity.l2_squared) / (2 * rho))  # type: ignore[union-attr]
    assert scale * reader.noise_factor() == pytest.approx(1 / math.sqrt(2 * rho), rel=0.05)
    queries = Rows(np.random.default_rng(7).integers(-40000, 40000, (20, 4)).astype(float))
    size = sketch.size  # type: ignore[attr-defined]
    found, source = [], stream(1)
    for _ in range(400):
        noise = add_gaussian(np.zeros(size, np.int64), ((size, Fraction(scale)),), source)
        found.append(reader.estimate(sketch.split(noise), queries).groups[0, 0])  # type: ignore[attr-defined]
    assert np.std(found) == pytest.approx(scale * reader.noise_factor(), rel=0.04)


def test_builds_in_any_pieces_are_the_same_bits() -> None:
    """Many chunks and several groups of frequencies, with labels; pieces, order and layout vary."""
    domain = grid(5, labels=("a", "b", "c"))
    claim = bound(
        "fourier_sketch",
        domain,
        features="random",
        frequencies=2500,
        kernel=KERNELS[3],
        seed=2,
        per_label=True,
    )
    rows = points(5000, 5, seed=9)
    rows = Rows(rows.values, np.arange(5000) % 3)
    whole = np.zeros(claim.output.size, np.int64)  # type: ignore[attr-defined]
    claim.accumulate(rows, whole)  # type: ignore[misc]
    parts = np.zeros_like(whole)
    order = np.random.default_rng(0).permutation(5000)
    mixed = take(rows, order)
    mixed = Rows(np.asfortranarray(mixed.values), mixed.labels)
    for start, stop in ((0, 1), (1, 700), (700, 4999), (4999, 5000)):
        claim.accumulate(take(mixed, slice(start, stop)), parts)  # type: ignore[misc]
    assert np.array_equal(whole, parts)


def test_histograms_in_small_groups_are_the_same_bits(monkeypatch: Any) -> None:
    claim = bound(
        "fourier_sketch", grid(2), features="random", frequencies=40, kernel=KERNELS[2], seed=2
    )
    whole = built(claim, points(300, 2, seed=0))["features"]
    monkeypatch.setattr(module, "_TOGETHER", 7)
    assert np.array_equal(whole, built(claim, points(300, 2, seed=0))["features"])


@given(st.integers(-2048, 2048), st.integers(-2048, 2048), st.integers(0, 50))
def test_one_record_is_within_its_sensitivity(x: int, y: int, seed: int) -> None:
    claim = bound(
        "fourier_sketch",
        grid(2),
        features="random",
        frequencies=7,
        kernel=KERNELS[2],
        seed=seed,
        phases=8,
    )
    out = np.concatenate(
        [v.ravel() for v in built(claim, Rows(np.array([[x, y]], float))).values()]
    )
    sensitivity = claim.sensitivity
    assert sensitivity is not None
    assert int(np.abs(out).sum()) <= sensitivity.l1
    assert int(np.square(out).sum()) <= sensitivity.l2_squared
    assert int(np.abs(out).max()) <= sensitivity.linf


def test_heavy_tails_and_fine_grids_stay_exact() -> None:
    """A tiny bandwidth on a wide grid folds frequencies back instead of losing digits."""
    domain = GridRows(width=2, unit=1.0, lower=(-(2**23),), upper=(2**23,))
    claim = bound(
        "fourier_sketch",
        domain,
        features="random",
        frequencies=500,
        kernel={"laplacian": {"bandwidth": 1e-3}},
        seed=1,
    )
    reader = claim.capabilities["kernel_sums"]
    assert int(reader.projection.bits.min()) >= 15
    rows = Rows(np.array([[5.0, -3.0], [2.0**23, 7.0]]))
    found = reader.estimate(built(claim, rows), rows).groups[0, 0]
    assert found == pytest.approx([1.0, 1.0], abs=5 * math.sqrt(0.5 / 500))


def test_refusals() -> None:
    good = {"frequencies": 3, "kernel": KERNELS[0], "seed": 0}
    with pytest.raises(ParameterError, match="OS102") as error:
        bound("fourier_sketch", grid(2), features="random", **good, phases=24)
    assert "phases: 64" in error.value.hint
    with pytest.raises(SpaceError, match="OS204"):
        bound("fourier_sketch", grid(2), features="random", **good, per_label=True)
    wide = GridRows(width=2, unit=1.0, lower=(-(2**44),), upper=(2**44,))
    with pytest.raises(SpaceError, match="OS203"):
        bound("fourier_sketch", wide, features="random", **good)
    with pytest.raises(SpaceError, match="OS203"):
        bound(
            "fourier_sketch",
            grid(2),
            features="random",
            **{**good, "kernel": {"gaussian": {"bandwidth": 1e-25}}},
        )
    with pytest.raises(ParameterError, match=r"OS101 gaussian\.bandwidth"):
        bound(
            "fourier_sketch",
            grid(2),
            features="random",
            **{**good, "kernel": {"gaussian": {"bandwidth": 0.0}}},
        )


def test_orthogonal_frequencies_keep_their_law_and_err_less() -> None:
    """Blocks of 16 columns at right angles; the mean cosine is the kernel; public seeds, so no chance."""
    width, count = 16, 40
    kernel = GaussianKernel(bandwidth=1.0)
    shift = np.full(width, 0.15)
    cosines: dict[str, list[float]] = {"orthogonal": [], "frequencies": []}
    for seed in range(200):
        for way, found in cosines.items():
            drawn = getattr(kernel, way)(np.random.default_rng(seed), width, count)
            assert drawn.shape == (width, count)
            found.append(float(np.cos(shift @ drawn).mean()))
            if way == "orthogonal":
                unit = drawn / np.linalg.norm(drawn, axis=0)
                for start in (0, 16, 32):
                    block = unit[:, start : start + 16]
                    assert np.abs(block.T @ block - np.eye(block.shape[1])).max() < 1e-9
    exact = math.exp(-float(shift @ shift))
    for found in cosines.values():
        assert abs(np.mean(found) - exact) < 4 * np.std(found) / math.sqrt(200)
    assert np.std(cosines["orthogonal"]) < 0.8 * np.std(cosines["frequencies"])
    lengths = np.square(kernel.orthogonal(np.random.default_rng(1), width, 4000)).sum(axis=0) / 2
    assert abs(lengths.mean() / width - 1) < 4 * math.sqrt(2 / width / 4000)
    assert abs(lengths.var() / (2 * width) - 1) < 0.15


def test_orthogonal_frequencies_need_a_normal_law_and_two_columns() -> None:
    given = {"features": "orthogonal", "frequencies": 6, "seed": 1}
    assert bound("fourier_sketch", grid(2), **given, kernel=KERNELS[0])
    for width, kernel in ((1, KERNELS[0]), (2, {"laplacian": {"bandwidth": 1.0}})):
        with pytest.raises(ParameterError, match="two columns or more"):
            bound("fourier_sketch", grid(width), **given, kernel=kernel)


GRID = GridRows(width=3, unit=0.5, lower=(-20,), upper=(20,))


def sketch_of(seed=5, bandwidth=2.0):
    return FourierSketch(frequencies=8, seed=seed, kernel=GaussianKernel(bandwidth=bandwidth))


def phases(sketch, grid=GRID, *, orthogonal=False):
    terms = sketch.kernel.split(sketch.frequencies, "here")
    return drawn_phases(sketch, grid, terms, orthogonal=orthogonal)


def test_a_bandwidth_far_below_the_grid_is_refused():
    with pytest.raises(SpaceError, match="OS203"):
        phases(sketch_of(bandwidth=1e-12))
