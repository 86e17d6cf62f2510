"""The linear model: residuals row by row, sensitivity attained, the map, neighbours, corners, and accuracy."""

from __future__ import annotations

import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import opendp.prelude as dp
import pytest
from sklearn.datasets import load_digits

import opendp_sim.prelude as sim
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.claims import Stage
from opendp_sim.core.errors import SimError
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.execute import apply
from opendp_sim.dsl.verification.verify import verify
from opendp_sim.measurements.linear._impl import descent, whitening
from opendp_sim.measurements.linear._impl.descent import (
    CLIP,
    ScaledRecords,
    gradient,
    residuals,
    whole_weights,
)
from opendp_sim.measurements.linear._impl.scaled import GRID_SIDE, ScaledRows
from opendp_sim.measurements.linear.linear_model import LinearModel, LinearReader
from opendp_sim.measurements.noise._impl import samplers
from opendp_sim.measurements.noise._impl.exact_coins import Bytes, fair_bits
from opendp_sim.transformations.row_maps.fourier_features import FourierFeatures
from tests._seeded import stream

WIDE = GridRows(width=70, labels=tuple(range(7)), lower=(-2000,), upper=(2000,))
FEW = GridRows(width=3, labels=("a", "b"), lower=(-90, 0, 7), upper=(90, 400, 7000))
RNG = np.random.default_rng(20261122)


def some(count: int, domain: GridRows = WIDE) -> tuple[np.ndarray, np.ndarray]:
    low, high = (np.broadcast_to(end, domain.width) for end in (domain.lower, domain.upper))
    values = RNG.integers(low, high, (count, domain.width), endpoint=True).astype(np.float64)
    return values, RNG.integers(0, len(domain.labels or ()), count)


@pytest.mark.parametrize(("domain", "by_length"), [(WIDE, True), (FEW, False), (FEW, True)])
def test_rows_are_local_whole_and_short(domain: GridRows, by_length: bool):
    scaled = ScaledRows(domain, by_length)
    values, _ = some(500, domain)
    values[:3] = 0.0 if by_length else domain.lower
    values[3] = domain.upper
    seen = scaled(values)
    assert (seen == np.rint(seen)).all()
    assert not np.signbit(seen[seen == 0.0]).any()
    wide = seen.astype(np.float64)
    assert (np.square(wide).sum(axis=1) <= scaled.norm_squared).all()
    assert np.abs(wide).max() <= GRID_SIDE
    for _ in range(20):
        which = RNG.permutation(500)[: RNG.integers(1, 60)]
        given = np.asfortranarray(values[which]) if RNG.random() < 0.5 else values[which]
        assert (scaled(given) == seen[which]).all()


@pytest.mark.parametrize("classes", [1, 2, 7, 40])
def test_residuals_are_local_bit_for_bit(classes: int):
    scaled = ScaledRows(WIDE, by_length=True)
    values, _ = some(700)
    rows, labels = scaled(values), RNG.integers(0, classes, 700)
    weights, f = whole_weights(RNG.normal(size=(71, classes)) * 8, scaled.norm_squared)
    found = residuals(rows, labels, weights, f)
    assert (found == np.trunc(found)).all()
    assert (np.square(found).sum(axis=0) <= CLIP**2).all()
    for layout in (np.ascontiguousarray, np.asfortranarray, lambda x: x[:, ::-1][:, ::-1]):
        for wide in (np.float32, np.float64):
            for _ in range(8):
                which = RNG.permutation(700)[: RNG.integers(1, 300)]
                batch = layout(rows[which].astype(wide))
                again = residuals(batch, labels[which], weights.astype(wide), f)
                assert (again == found[:, which]).all()
    alone = np.concatenate(
        [residuals(rows[i : i + 1], labels[i : i + 1], weights, f) for i in range(40)], axis=1
    )
    assert (alone == found[:, :40]).all()


def test_residuals_are_the_same_in_threads():
    rows = ScaledRows(WIDE, by_length=True)(some(4000)[0])
    labels = RNG.integers(0, 7, 4000)
    weights, f = whole_weights(RNG.normal(size=(71, 7)), GRID_SIDE**2 + 102**2)
    whole, out = gradient(rows, labels, weights, f), [None] * 4

    def run(place: int) -> None:
        out[place] = gradient(rows[place::4], labels[place::4], weights, f)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(out) == whole).all()


@pytest.mark.parametrize(
    ("records", "width", "classes"), [(2100, 700, 11), (1600, 9, 2), (300, 61, 200)]
)
def test_a_gradient_is_the_exact_product_however_it_is_cut(records, width, classes):
    """Small products summed in float32, the last block short; at the largest cells that rows may have."""
    generator = np.random.default_rng(records)
    rows = (GRID_SIDE * generator.choice([-1, 0, 1], (records, width), p=[0.5, 0.1, 0.4])).astype(
        np.float32
    )
    labels = generator.integers(0, classes, records)
    weights = generator.integers(-8, 9, (width, classes)).astype(np.float32)
    found = residuals(rows, labels, weights, 10).astype(np.int64)
    exact = rows.astype(np.int64).T @ found.T
    assert np.array_equal(gradient(rows, labels, weights, 10), exact)


@pytest.mark.parametrize("f", [0, 5, 9])
def test_two_classes_by_one_table_have_the_digits_of_all_steps(f: int):
    """Logits at, beside and between the entries of the table, beyond its end, and apart by nothing."""
    entry = 2.0 ** (10 + f - 6)  # a step of the table, in units of a product
    edges = np.rint(np.arange(-1100, 1101) * entry)
    ahead = np.unique(np.concatenate([edges - 1, edges, edges + 1, np.rint(edges + entry / 3)]))
    ahead = ahead[np.abs(ahead) < 2**23]
    rows = np.stack([np.ceil(ahead / 2), np.floor(ahead / 2)], axis=1).astype(np.float32)
    weights = np.array([[1, 0], [0, -1]], dtype=np.float32)
    for label in (0, 1):
        labels = np.full(len(rows), label)
        found = descent._digits_of_two(rows, labels, weights, f)
        wanted = descent._digits_of_residuals(rows, labels, weights, f)
        np.testing.assert_array_equal(found, wanted, strict=True)
        assert len(np.unique(wanted[0])) > 20


def test_a_record_adds_its_outer_product_and_the_bound_is_attained():
    scaled = ScaledRows(WIDE, by_length=True)
    values, labels = some(3000)
    values[0], labels[0] = 0.0, 3
    values[0, 5] = 2000.0  # all of its length in one cell: nothing is lost by truncation
    rows = scaled(values)
    weights, f = whole_weights(np.zeros((71, 7)), scaled.norm_squared)
    one = gradient(rows, labels, weights, f) - gradient(rows[1:], labels[1:], weights, f)
    alone = residuals(rows[:1], labels[:1], weights, f)
    assert (one == np.outer(rows[0], alone[:, 0]).astype(np.int64)).all()
    square, most = int((one.astype(object) ** 2).sum()), scaled.norm_squared * CLIP**2
    assert 0.995 * most < square <= most


@pytest.mark.parametrize("way", ["whitened", "columns", "waves"])
def test_adversarial_neighbours_along_public_transcripts(way: str):
    """What two neighbours show, in deviations of the noise, is within the root of twice rho times d_in.

    Of waves too, as few and as many as the feature map makes: rows of one length whatever their number.
    """
    made, domain = np.asarray, FEW
    given = {"rows": "columns", "whiten": "yes" if way == "whitened" else "no"}
    if way == "waves":
        waves = FourierFeatures(frequencies=40, bandwidth=200.0, seed=2).bind(FEW, Symmetric())
        made, domain = lambda values: waves.function(Rows(values)).values, waves.output
        given = {"rows": "length"}
    descent = LinearModel(rho=0.5, steps=6, **given).descent(domain)
    corners = np.array(np.meshgrid(*zip(FEW.lower, FEW.upper, strict=True))).reshape(3, -1).T
    crowd = some(40, FEW)
    worst = 0.0
    for trial in range(60):
        extra = 1 + trial % 3
        added = np.repeat(corners[RNG.integers(0, 8, 1)].astype(np.float64), extra, axis=0)
        if trial % 2:
            added = corners[RNG.integers(0, 8, extra)].astype(np.float64)
        kinds = np.repeat(RNG.integers(0, 2, 1), extra)
        size = RNG.choice([0, 3, 40])
        public = int(RNG.integers(1, 10**6))
        notes = []
        for values, labels in (
            (crowd[0][:size], crowd[1][:size]),
            (np.concatenate([added, crowd[0][:size]]), np.concatenate([kinds, crowd[1][:size]])),
        ):
            notes.append([])

            def told(
                cells: np.ndarray, scale: float, held: list = notes[-1], public: int = public
            ) -> np.ndarray:
                held.append(cells.ravel() / scale)
                # Whatever was released: noise as drawn, or moments of a large set that hardly varies.
                draw = np.random.default_rng(public + len(held)).normal(0, scale, cells.shape)
                few = cells.ndim == 1 and public % 2
                out = (
                    np.where(np.arange(cells.size) == cells.size - 1, 2.0**40, 0.0) if few else draw
                )
                return np.rint(out).astype(np.int64)

            descent.run(ScaledRecords(descent.scaled(made(values)), labels), told)
        apart = np.concatenate(notes[0]) - np.concatenate(notes[1])
        worst = max(worst, float(np.linalg.norm(apart)) / extra)
        assert np.linalg.norm(apart) <= extra * np.sqrt(2 * 0.5) * (1 + 1e-9)
    assert worst > 0.5  # the search comes near


@pytest.mark.parametrize("steps", [1, 3, 64])
@pytest.mark.parametrize("whiten", ["yes", "no"])
def test_the_map_is_opendps_composition(steps: int, whiten: str):
    dp.enable_features("contrib")
    model = LinearModel(rho=0.37, steps=steps, rows="columns", whiten=whiten)
    claim, descent = model.bind(FEW, Symmetric()), model.descent(FEW)
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    for d_in in (1, 2, 7):
        exact = sum(square * d_in**2 / (2 * Fraction(s) ** 2) for square, s in descent.releases)
        stated = claim.privacy_map(d_in)
        assert exact <= Fraction(stated) <= exact * (1 + Fraction(1, 2**45))
        assert stated <= 0.37 * d_in**2
        assert stated > 0.37 * d_in**2 * (1 - 1e-9)
        each = [
            dp.m.make_gaussian(*space, s).map(float(square) ** 0.5 * d_in)
            for square, s in descent.releases
        ]
        assert stated == pytest.approx(sum(each), rel=1e-12)
        assert Fraction(2 * stated) >= claim.mu_squared * d_in**2
    assert claim.privacy_map(0) == 0.0


def test_noise_drawn_at_once_is_the_samplers_and_given_out_once():
    """Few cells share a draw: the sampler's own bits in their order, fresh ones when they are used up."""
    scale, steps, size = 777.5, 2 * descent._TIMES, 6
    noise, source = descent.RoundedNoise(stream(7)), Bytes(stream(7))
    found = [noise(np.zeros((3, 2), np.int64), scale).ravel() for _ in range(steps)]
    for part in np.split(np.concatenate(found), 2):
        half = descent._TIMES * size
        words = samplers.rounded_magnitudes(
            samplers.rounded_plan(Fraction(scale)), half, source
        ).astype(np.int64)
        assert np.array_equal(part, np.where(fair_bits(half, source), -words, words))
    assert len(np.unique(np.concatenate(found))) > steps * size / 2  # no cell of it came twice
    noise = descent.RoundedNoise(stream(7))
    few, other, many = (
        noise(np.zeros(n, np.int64), s) for n, s in ((6, 9.0), (6, 1e6), (9000, 9.0))
    )
    assert np.abs(few).max() < 9.0 * 20 < np.abs(other).max()
    assert np.abs(many).max() < 9.0 * 20
    assert "secret" in repr(noise)


def test_no_records_one_class_and_one_step():
    for domain in (FEW, GridRows(width=1, labels=("only",), lower=(0,), upper=(100,))):
        for steps in (1, 2, 5):
            claim = LinearModel(rho=1e-3, steps=steps).bind(domain, Symmetric())
            none = Rows(np.zeros((0, domain.width)), np.zeros(0, dtype=np.int64))
            found = claim.function(none)
            assert found.dtype == np.int64
            assert found.shape == (claim.output.size,)


@pytest.mark.parametrize(("whiten", "steps"), [("yes", 1), ("no", 1), ("yes", 12), ("no", 7)])
def test_weights_of_noise_alone_have_the_law_of_lemma_7(whiten: str, steps: int):
    """Of 300 runs without a record about 15 have a chance below 5 %, in fixed draws; of records all have."""
    domain = GridRows(width=6, labels=tuple("abcd"), lower=(-500,), upper=(500,))
    descent = LinearModel(rho=0.05, steps=steps, whiten=whiten, rows="columns").descent(domain)
    reader, draw = LinearReader(descent, tuple("abcd")), np.random.default_rng(7)

    def noise(cells: np.ndarray, scale: float) -> np.ndarray:
        return np.rint(cells + draw.normal(0, scale, cells.shape)).astype(np.int64)

    def chance(values: np.ndarray, labels: np.ndarray) -> float:
        flat = descent.run(ScaledRecords(descent.scaled(values), labels), noise)
        width = descent.scaled.width
        first, weights = flat[: -4 * width].reshape(-1, width), flat[-4 * width :].reshape(-1, 4)
        return reader.chance_of_noise({"weights": weights, "whitening": first})

    none = [chance(np.zeros((0, 6)), np.zeros(0, dtype=np.int64)) for _ in range(300)]
    assert 5 <= sum(each <= 0.05 for each in none) <= 24
    assert 80 <= sum(each <= 0.5 for each in none) <= 180
    labels = np.arange(2000) % 4
    values = np.eye(4, 6)[labels] * 500
    assert chance(values, labels) < 0.01
    # One place and classes of unlike sizes: that is seen where no mean row is known.
    alike = [chance(np.full((400, 6), 300.0), np.minimum(labels[:400], 1)) for _ in range(20)]
    assert whiten == "yes" or np.median(alike) < 0.01


@pytest.mark.parametrize("count", [0, 100, 10_000, 2_000_000])
def test_the_count_is_read_from_the_matrix(count: int):
    rows = ScaledRows(FEW, by_length=False)(some(1000, FEW)[0])
    draw, cells = np.random.default_rng(count), whitening.moments(rows) * count // 1000
    scale = 2.0**20 * 9.0
    noisy = np.rint(cells + draw.normal(0, scale, cells.shape)).astype(np.int64)
    matrix, size = whitening.whitening_of(noisy, 4, scale, 512)
    found = whitening.count_in(matrix, scale, 512)
    assert found <= size * 1.02
    assert count < 1000 or found == pytest.approx(size, rel=0.02)


def test_extreme_losses_and_weights_stay_whole():
    for rho in (1e-22, 1e6):
        claim = LinearModel(rho=rho, steps=4).bind(FEW, Symmetric())
        values, labels = some(50, FEW)
        assert np.isfinite(claim.function(Rows(values, labels)).astype(float)).all()
    huge, f = whole_weights(np.full((71, 7), 1e30), GRID_SIDE**2 + 102**2)
    assert f < 0
    assert (np.square(huge.astype(float)).sum(axis=0) * (GRID_SIDE**2 + 102**2) < 2.0**48).all()


def test_refusals():
    bare = GridRows(width=3, lower=(-9,), upper=(9,))
    coarse = GridRows(width=2, labels=(0, 1), lower=(0,), upper=(9,), rounding=0.5)
    fine = GridRows(width=70, labels=(0, 1), lower=(-(2**30),), upper=(2**30,))
    wide = GridRows(width=3000, labels=(0, 1), lower=(-9,), upper=(9,))
    for domain, code, given in (
        (bare, "OS204", {}),
        (coarse, "OS203", {}),
        (fine, "OS203", {}),
        (wide, "OS203", {"whiten": "yes"}),
    ):
        with pytest.raises(SimError) as refused:
            LinearModel(rho=1.0, **given).bind(domain, Symmetric())
        assert refused.value.code == code
        assert refused.value.hint


def test_a_coarse_column_of_whole_numbers_is_welcome():
    whole = GridRows(width=2, labels=(0, 1), lower=(0,), upper=(1,))
    LinearModel(rho=1.0).bind(whole, Symmetric())


def test_a_row_of_a_table_attains_its_bound():
    """All of a record's length in one column, beside the constant."""
    scaled = ScaledRows(FEW, by_length=False)
    row = scaled(np.array([[90.0, 200.0, 3503.5]]))[0].astype(int)
    assert int((row**2).sum()) == scaled.norm_squared == GRID_SIDE**2 + scaled.constant**2


def test_whitened_rows_are_local_and_short():
    scaled = ScaledRows(FEW, by_length=False)
    rows = scaled(some(300, FEW)[0])
    for size in (2.0**10, 2.0**36):
        matrix = np.rint(RNG.normal(size=(4, 4)) * size).clip(-(2**36), 2**36).astype(np.int64)
        seen = whitening.whitened(rows, matrix)
        assert (seen == np.trunc(seen)).all()
        assert (np.square(seen.astype(float)).sum(axis=1) <= GRID_SIDE**2).all()
        which = RNG.permutation(300)[:17]
        assert (whitening.whitened(np.asfortranarray(rows[which]), matrix) == seen[which]).all()


def _fitted(x: np.ndarray, y: np.ndarray, rho: float, domain: GridRows, **given: object) -> Release:
    model = lookup("linear_model")(rho=rho, **given)
    claim = model.bind(domain, Symmetric())
    stage = Stage(model, domain, Symmetric(), claim)
    return Release.of_sketch((stage,), claim.function(Rows(x, y)), None, {"rho": rho})


def test_digits_are_told_apart_and_files_answer_alike(tmp_path):
    x, y = load_digits(return_X_y=True)
    domain = GridRows(width=64, labels=tuple(range(10)), lower=(0,), upper=(16,))
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:1300], order[1300:]
    release = _fitted(x[train], y[train], 0.5, domain)
    found = release.predict(x[test])
    shown = np.asarray(found["label"])
    right = (shown == y[test]).mean()
    assert right > 0.8  # 93 % is usual; noise of the whole run would have to be 4 times what it is
    release.save(tmp_path / "model.npz")
    again = Release.load(tmp_path / "model.npz").predict(x[test])
    assert (np.asarray(again["score"]) == np.asarray(found["score"])).all()


def test_whitening_reaches_what_plain_gradients_do_not():
    """A narrow column tells, beside a wide one that does not: a slow direction of every gradient."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 20_000)
    x = np.stack([rng.normal(0, 3000, 20_000), rng.normal(0, 10, 20_000) + 25 * y], axis=1)
    x = np.clip(np.rint(x), -4000, 4000)
    domain = GridRows(width=2, labels=(0, 1), lower=(-4000,), upper=(4000,))
    right = []
    for whiten in ("no", "yes"):
        model = LinearModel(rho=0.02, whiten=whiten)
        claim, descent = model.bind(domain, Symmetric()), model.descent(domain)
        found = descent.run(
            ScaledRecords(descent.scaled(x), y), lambda cells, _: cells
        )  # without noise
        scores = claim.capabilities["class_scores"].scores(claim.output.split(found), x)
        right.append((scores.argmax(axis=1) == y).mean())
    assert right[1] > 0.88  # 89 % is possible
    assert right[1] > right[0] + 0.05
    noisy = _fitted(x, y, 0.02, domain).predict(x)["label"]
    assert (np.asarray(noisy) == y).mean() > 0.85


def test_chains_with_opendp():
    dp.enable_features("contrib")
    from opendp.extras.numpy import array2_domain

    assert callable(sim.then_linear_model)
    space = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
    with pytest.raises(SimError):  # no labels in a bare array
        space >> sim.then_quantize(bits=12, bounds=(-1.0, 1.0)) >> sim.then_linear_model(rho=1.0)


def test_a_release_can_be_saved_certified_verified_and_asked_under_gdp(tmp_path):
    spec = Path(__file__).parents[3] / "specs" / "digits-linear.yaml"
    plan = plan_file(spec)
    assert plan.privacy is not None
    assert plan.privacy.measure == "gdp"
    done = apply(plan, into=tmp_path)
    checked, _ = verify(done.certificates["weights"])
    assert any("header" in text for text in checked)
    release = Release.load(done.files["weights"])
    assert release.ops == ("predict",)
    assert set(release.arrays) == {"weights"}
    with pytest.raises(SimError) as refused:
        release.density(np.zeros((1, 64)))
    assert refused.value.code == "OS702"
    edited = Release(release.header, {"weights": release.arrays["weights"][:-1]})
    with pytest.raises(SimError):
        edited.predict(np.zeros((1, 64), dtype=np.float32))
