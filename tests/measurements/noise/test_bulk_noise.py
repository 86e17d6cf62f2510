"""Bulk noise as a measurement: cells, runs and saturation; the map; the edges.

Every statistical test here has a false-alarm rate of at most 1e-6 (Bonferroni over its p-values).
"""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from functools import partial

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings, strategies as st

from opendp_sim.core.bridge import noise_parts
from opendp_sim.core.errors import SimError
from opendp_sim.core.space import Domain
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.noise._impl import samplers as _sampling_noise
from opendp_sim.measurements.noise._impl.bulk import AUTO_CELLS, laplace_map, sampler_for
from opendp_sim.measurements.noise._impl.samplers import (
    LARGEST_UINT64,
    GaussianPlan,
    gaussian_magnitudes,
    gaussian_plan,
    laplace_digits,
    magnitudes,
    saturating_add,
)
from opendp_sim.measurements.noise.gaussian import Gaussian, make_gaussian
from opendp_sim.measurements.noise.laplace import Laplace, make_laplace
from tests._tiers import some
from tests.measurements.noise._bulk_shared import ADD, FALSE_ALARM, I64, Script, drawer
from tests.measurements.noise._noise_tester import Law, binomial, tallied

dp.enable_features("contrib")


# --- cells, runs, saturation ------------------------------------------------------------------

EDGES = st.sampled_from(
    [0, 1, 2, 2**62, 2**63 - 2, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
)
CELL = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 2**63 - 1])
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(CELL, st.one_of(EDGES, st.integers(0, LARGEST_UINT64)), st.integers(0, 1)),
        min_size=1,
    )
)
def test_addition_saturates_like_unbounded_integers(cells):
    values, words, negative = zip(*cells, strict=True)
    out = saturating_add(
        np.array(values, np.int64), np.array(words, np.uint64), np.array(negative, np.uint8)
    )
    exact = [v - w if n else v + w for v, w, n in cells]
    assert out.tolist() == [min(max(e, I64.min), I64.max) for e in exact]


def test_magnitudes_beyond_a_word_are_kept_exactly():
    """Scripted so that the unary part goes on for 40 units of 2**61: past 2**64 after eight."""
    plan = laplace_digits(Fraction(1, 2**59))
    digits = len(plan.digits)
    assert digits == 61
    steps = 40
    scripted = [255] * digits + [0] + [0] * steps + [255]
    drawn = magnitudes(plan, 1, Script(scripted, endless=True))
    assert drawn.words.tolist() == [LARGEST_UINT64]
    assert drawn.exact == {0: 1 + steps * 2**digits}


def test_gaussian_decides_on_the_exact_magnitude_beyond_a_word(monkeypatch):
    """A candidate past 2**64, with a uniform that is zero in all bits: integers decide, and accept."""
    plan = gaussian_plan(Fraction(2**59))
    digits, steps, lot = len(plan.proposal.digits), 9, 17
    assert digits == 61
    low_and_nonzero = [255] * lot * digits + [0] * lot
    beyond = [0] + [255] * (lot - 1) + [0] * (steps - 1) + [255]
    uniforms = [0] + [255] * (lot - 1)
    script = Script([*low_and_nonzero, *beyond, *uniforms], endless=True)
    asked, real = [], GaussianPlan.exponent
    monkeypatch.setattr(GaussianPlan, "exponent", lambda self, k: asked.append(k) or real(self, k))
    drawn = gaussian_magnitudes(plan, 1, script)
    assert asked == [1 + steps * 2**digits]
    assert drawn.words.tolist() == [LARGEST_UINT64]
    assert drawn.exact == {0: 1 + steps * 2**digits}


@pytest.mark.parametrize("family", ["laplace", "gaussian", "rounded"])
def test_sums_saturate_and_never_wrap(family):
    scale = Fraction(10**6)
    for value, toward in ((I64.max, 1), (I64.min, -1)):
        out = ADD[family](np.full(10**4, value), [(10**4, scale)])
        assert (out == value).mean() > 0.4  # half the noise points outward
        assert (np.abs(out - value, dtype=np.float64) < 1e8).all()
        assert not (np.sign(out) == -toward).any()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 150_000), st.integers(0, 3)), max_size=6))
def test_every_cell_gets_noise_of_its_own_run_once(runs):
    scales = [Fraction(1, 100 + i) for i in range(4)]  # stands in for an identity of the run
    noise = [(cells, scales[i]) for cells, i in runs]
    total = sum(cells for cells, _ in runs)

    def draw(scale, count, _):
        return np.full(count, scale.denominator, np.uint64)

    source = lambda n: np.zeros(n, np.uint8)  # noqa: E731 - all signs positive
    out = _sampling_noise._add(np.zeros(total, np.int64), noise, draw, source)
    expected = np.repeat([100 + i for _, i in runs], [cells for cells, _ in runs])
    assert np.array_equal(out, expected)


@pytest.mark.few(1)
@pytest.mark.audit
@pytest.mark.parametrize("family", some(["laplace", "gaussian", "rounded"], 2))
def test_each_run_has_its_own_scale(family):
    """Interleaved runs of three scales: each fits its own law, none fits its neighbour's."""
    scales = [Fraction(3, 2), Fraction(6), Fraction(24)]
    runs = [(1 + 777 * i % 5000, scales[i % 3]) for i in range(1200)]
    total = sum(cells for cells, _ in runs)
    owner = np.repeat([i % 3 for i in range(len(runs))], [cells for cells, _ in runs])
    out = ADD[family](np.zeros(total, np.int64), runs)
    for i, scale in enumerate(scales):
        mine = out[owner == i]
        assert (
            tallied(lambda _, mine=mine: mine, Law(family, float(scale)), mine.size).worst()[1]
            > FALSE_ALARM
        )
        wrong = Law(family, float(scales[(i + 1) % 3]))
        assert tallied(lambda _, mine=mine: mine, wrong, mine.size).worst()[1] < FALSE_ALARM


@pytest.mark.few(1)
@pytest.mark.parametrize("family", ["laplace", "gaussian", "rounded"])
def test_memory_beyond_the_result_does_not_grow_with_the_cells(family):
    ADD[family](np.zeros(10, np.int64), [(10, Fraction(10**4))])  # tables and thresholds
    extra = []
    for cells in (10**6, 4 * 10**6):
        values = np.zeros(cells, np.int64)
        tracemalloc.start()
        ADD[family](values, [(cells, Fraction(10**4))])
        extra.append(tracemalloc.get_traced_memory()[1] - values.nbytes)
        tracemalloc.stop()
    assert max(extra) < 2**24
    assert extra[1] < extra[0] + 2**20


@pytest.mark.audit
def test_two_releases_share_no_noise():
    first, second = (drawer("laplace", Fraction(100))(10**5) for _ in range(2))
    agree, pairs = (
        int((np.sign(first) * np.sign(second) > 0).sum()),
        int((first * second != 0).sum()),
    )
    assert binomial(agree, pairs, 0.5) > FALSE_ALARM


def test_input_is_left_alone_and_empty_is_empty():
    values = np.arange(5)
    for add in ADD.values():
        add(values, [(5, Fraction(3))])
        assert add(np.zeros(0, np.int64), []).shape == (0,)
        assert add(np.zeros(0, np.int64), [(0, Fraction(3))]).shape == (0,)
    assert values.tolist() == [0, 1, 2, 3, 4]


# --- measurements -----------------------------------------------------------------------------

BULK_LAPLACE, BULK_GAUSSIAN = partial(Laplace, sampler="bulk"), partial(Gaussian, sampler="bulk")
VECTOR = dp.vector_domain(dp.atom_domain(T="i64"))
MAKERS = {
    "laplace": (partial(make_laplace, sampler="bulk"), dp.m.make_laplace, dp.l1_distance(T="i64")),
    "gaussian": (
        partial(make_gaussian, sampler="bulk"),
        dp.m.make_gaussian,
        dp.l2_distance(T=float),
    ),
}


@pytest.mark.parametrize("family", MAKERS)
def test_map_is_opendps_to_the_last_bit(family):
    make, native, metric = MAKERS[family]
    scales = [5e-324, 1e-200, 1e-3, 0.1, 0.3, 0.5, 1.0, math.pi, 10.0, 1e4, 1e9, 2.0**59]
    distances = [0, 1, 2, 3, 7, 100, 12345, 2**31, 2**53 + 1]
    for scale in scales:
        ours, theirs = make(VECTOR, metric, scale=scale), native(VECTOR, metric, scale)
        for d_in in distances:
            real = float(d_in) if family == "gaussian" else d_in
            assert ours.map(real) == theirs.map(real)
        assert ours.input_domain == theirs.input_domain
        assert ours.input_metric == theirs.input_metric
        assert ours.output_measure == theirs.output_measure


@given(st.fractions(min_value=0, max_value=10**9), st.floats(1e-3, 1e6))
def test_laplace_map_bounds_fractional_distances(distance, scale):
    assert Fraction(laplace_map(scale)(distance)) >= distance / Fraction(scale)


@pytest.mark.parametrize("family", MAKERS)
@pytest.mark.parametrize("scale", [-1.0, math.nan, math.inf, -math.inf, 1e300, 2.0**60])
def test_bad_scales_are_refused_by_name(family, scale):
    make, _, metric = MAKERS[family]
    with pytest.raises(SimError, match=rf"OS101 {family}.scale.*Hint"):
        make(VECTOR, metric, scale=scale)


@pytest.mark.parametrize("family", MAKERS)
def test_a_scale_of_zero_is_refused_by_name_where_it_would_release(family):
    """OpenDP's searches construct it first: it has its map, and nothing is released."""
    make, _, metric = MAKERS[family]
    made = make(VECTOR, metric, scale=0.0)
    assert made.map(1 if family == "laplace" else 1.0) == math.inf
    with pytest.raises(dp.OpenDPException, match=rf"OS101 {family}.scale.*Hint"):
        made([1, 2, 3])
    with pytest.raises(SimError, match=rf"OS101 {family}.scale.*Hint"):
        {"laplace": Laplace, "gaussian": Gaussian}[family](scale=0.0)


def test_bad_spaces_are_refused():
    with pytest.raises(SimError, match="OS202"):
        make_laplace(VECTOR, dp.l2_distance(T=float), scale=1.0)
    with pytest.raises(SimError, match="OS202"):
        make_gaussian(VECTOR, dp.l1_distance(T="i64"), scale=1.0)
    with pytest.raises(SimError, match="OS201"):
        make_laplace(
            dp.vector_domain(dp.atom_domain(T="f64", nan=False)), dp.l1_distance(T="i64"), scale=1.0
        )
    with pytest.raises(SimError, match="OS201"):
        BULK_LAPLACE(scale=1.0).bind(Domain(), VectorNorm("l1"))
    with pytest.raises(SimError, match="OS202"):
        BULK_LAPLACE(scale=1.0).bind(IntVector(4), VectorNorm("l1", weights=((3, 2),)))
    with pytest.raises(SimError, match="OS102"):
        BULK_GAUSSIAN(scale=2.0**58).bind(IntVector(3), VectorNorm("l2", weights=((3, 4),)))


@pytest.mark.parametrize("family", MAKERS)
def test_extreme_scales_run(family):
    make, _, metric = MAKERS[family]
    for scale in (5e-324, 1e-200, 1e-3):
        assert make(VECTOR, metric, scale=scale)([7] * 1000).tolist() == [7] * 1000
    for scale in (1e9, 2.0**59):
        out = make(VECTOR, metric, scale=scale)([7] * 1000).astype(np.float64)
        assert 0.5 < np.abs(out).mean() / scale < 1.6


@pytest.mark.parametrize("family", MAKERS)
def test_releases_are_int64_arrays_of_the_input_shape(family):
    make, _, metric = MAKERS[family]
    measurement = make(VECTOR, metric, scale=2.0)
    for data in ([], [1, 2, 3], np.arange(1000), np.arange(3, dtype=np.int64)[::-1]):
        out = measurement(data)
        assert out.dtype == np.int64
        assert out.shape == (len(data),)


@pytest.mark.parametrize(
    ("family", "record"), [("laplace", BULK_LAPLACE), ("gaussian", BULK_GAUSSIAN)]
)
def test_release_is_its_noiseless_part_plus_the_declared_noise(family, record):
    norm = {"laplace": "l1", "gaussian": "l2"}[family]
    weights = ((2, 1), (3, 8))
    claim = record(scale=5.0).bind(IntVector(5), VectorNorm(norm, weights=weights))
    assert claim.core([1, 2, 3, 4, 5]).tolist() == [1, 2, 3, 4, 5]
    assert (claim.noise.family, claim.noise.scale) == (f"discrete_{family}", 5.0)
    assert (claim.noise.weights, claim.noise.sampler) == (weights, "bulk")
    for bad in ([1, 2], np.zeros(5), np.zeros((5, 1), np.int64)):
        with pytest.raises(SimError, match="OS602"):
            claim.function(bad)
    make, _, metric = MAKERS[family]
    assert noise_parts(make(VECTOR, metric, scale=5.0)).noise.sampler == "bulk"


@pytest.mark.audit
@pytest.mark.parametrize(
    ("family", "record"), [("laplace", BULK_LAPLACE), ("gaussian", BULK_GAUSSIAN)]
)
def test_weights_multiply_the_scale_of_their_cells(family, record):
    norm = {"laplace": "l1", "gaussian": "l2"}[family]
    cells = 3 * 10**5
    metric = VectorNorm(norm, weights=((cells, 1), (cells, 3)))
    out = (
        record(scale=1.5).bind(IntVector(2 * cells), metric).function(np.zeros(2 * cells, np.int64))
    )
    for part, scale in ((out[:cells], 1.5), (out[cells:], 4.5)):
        assert (
            tallied(lambda _, part=part: part, Law(family, scale), cells).worst()[1] > FALSE_ALARM
        )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 9)), min_size=1, max_size=8),
    st.floats(0.05, 100.0),
)
def test_weighted_laplace_map_bounds_the_loss_of_any_neighbour(cells, scale):
    """The loss of the product law is the sum of |difference| / (scale * weight), attained far out."""
    weights = tuple((1, weight) for _, weight in cells)
    claim = BULK_LAPLACE(scale=scale).bind(IntVector(len(cells)), VectorNorm("l1", weights=weights))
    distance = sum((Fraction(abs(change), weight) for change, weight in cells), Fraction(0))
    loss = sum((abs(change) / (Fraction(scale) * weight) for change, weight in cells), Fraction(0))
    assert Fraction(claim.privacy_map(distance)) >= loss


@pytest.mark.parametrize("order", [1.25, 2.0, 8.0])
def test_gaussian_map_bounds_the_renyi_divergence(order):
    """Of the exact discrete law, by summation: one cell, several scales, shifts and weights."""
    for scale, weight, shift in ((0.4, 1, 1), (0.7, 2, 1), (1.0, 1, 3), (2.5, 3, 5), (6.0, 1, 1)):
        claim = BULK_GAUSSIAN(scale=scale).bind(
            IntVector(1), VectorNorm("l2", weights=((1, weight),))
        )
        deviation = scale * weight
        k = np.arange(-int(60 * deviation) - 60 * shift, int(60 * deviation) + 60 * shift)
        p, q = -(k**2) / (2 * deviation**2), -((k - shift) ** 2) / (2 * deviation**2)
        log_sum = np.logaddexp.reduce
        p, q = p - log_sum(p), q - log_sum(q)
        divergence = log_sum(order * p + (1 - order) * q) / (order - 1)
        rho = claim.privacy_map(Fraction(shift, weight))
        assert divergence <= order * rho * (1 + 1e-9)


def test_auto_means_bulk_from_ten_thousand_cells():
    assert sampler_for("auto", AUTO_CELLS - 1) == "opendp"
    assert sampler_for("auto", AUTO_CELLS) == "bulk"
    assert sampler_for("opendp", 10**9) == "opendp"
    assert sampler_for("bulk", 1) == "bulk"
