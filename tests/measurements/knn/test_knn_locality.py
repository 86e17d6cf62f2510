"""What a record contributes is a function of that record and public things, bit for bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.core.errors import SpaceError
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.knn._impl.features import Lens, normalised_norm
from opendp_sim.measurements.knn._impl.kernels import Cosine, Rbf, Student
from opendp_sim.measurements.knn._impl.pool import Pool
from opendp_sim.measurements.knn._impl.predictor import Predictor
from opendp_sim.measurements.knn._impl.privacy_filter import IndividualFilter
from opendp_sim.measurements.knn._impl.public_votes import QueryRows, weights_of
from opendp_sim.measurements.knn._impl.sign_hashes import (
    HashTables,
    PackedSigns,
    SignCodes,
    SignHashes,
    chosen,
)
from opendp_sim.measurements.knn._impl.vote_noise import Stock
from opendp_sim.measurements.knn.ind_knn import IndKnn
from tests._tiers import some

dp.enable_features("contrib")
RNG = np.random.default_rng(5)
WIDE = GridRows(width=67, labels=(0, 1, 2), unit=2.0**-9, lower=(-512,), upper=(512,))
ROWS = np.clip(np.rint(RNG.normal(0, 150, (1500, 67))), -512, 512)
ROWS[7] = 0
ROWS[8] = 512
QUERIES = np.clip(np.rint(ROWS[:40] + RNG.normal(0, 80, (40, 67))), -512, 512)


def contributions(values, kernel, normalise, centre, queries=QUERIES, coder=None):
    lens = Lens.plain(WIDE, normalise=normalise)
    lens = lens.centred_on(QUERIES) if centre else lens
    dtype = lens.dtype("test")
    pool = Pool(lens, dtype, coder or HashTables.draw(3, 5, 6, 67))
    pool.add(values, np.zeros(len(values), dtype=int), np.arange(len(values)))
    seen = QueryRows.of(lens.see_queries(queries, dtype))
    ladder = kernel.ladder(255, lens.unit)
    everything = int(np.iinfo(np.int64).min // 4) if not kernel.angular else -(2**23)
    out = []
    for i, product in enumerate(pool.products(seen.rows)):
        near, scores = pool.nearby(product, int(seen.norms[i]), everything, angular=kernel.angular)
        assert near.tolist() == list(range(len(values)))
        out.append((scores, weights_of(ladder, scores)))
    return pool._rows[: pool.size], pool._codes[:, : pool.size], np.array(out)


@pytest.mark.parametrize("normalise", [False, True])
def test_every_record_that_reaches_a_threshold_is_found_and_no_other(normalise):
    """Products are looked at first, and norms only where the product leaves a doubt."""
    lens = Lens.plain(WIDE, normalise=normalise)
    dtype = lens.dtype("test")
    pool = Pool(lens, dtype, None)
    for part in (ROWS[9:700], ROWS[:9], ROWS[700:]):  # the row of zeros comes second
        pool.add(part, np.zeros(len(part), dtype=int), np.arange(len(part)) + pool.size)
    pool.remove(np.array([3]))
    rows = pool.seen_rows.astype(np.int64)
    seen = QueryRows.of(lens.see_queries(QUERIES[:6], dtype))
    for i, product in enumerate(pool.products(seen.rows)):
        score = -np.square(rows - seen.rows[i].astype(np.int64)).sum(axis=1)
        for threshold in (*np.sort(score)[[0, 1, 700, -2, -1]], -(2**61), 1):
            for limit in (int(threshold) - 1, int(threshold), int(threshold) + 1):
                near, found = pool.nearby(product, int(seen.norms[i]), limit, angular=False)
                true = np.flatnonzero((score >= limit) & pool.alive[: pool.size])
                assert near.tolist() == true.tolist()
                assert found.tolist() == score[true].tolist()


@pytest.mark.few(2)
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize(
    ("kernel", "normalise"),
    [
        (Cosine(), True),
        pytest.param(Rbf(), True, marks=pytest.mark.long),
        (Student(), True),
        (Rbf(bandwidth=9.0), False),
    ],
    ids=str,
)
def test_deleting_moving_blocking_and_layout_change_no_bit(kernel, normalise, centre):
    rows, codes, out = contributions(ROWS, kernel, normalise, centre)
    keep = np.delete(np.arange(len(ROWS)), [0, 13, 700])
    order = RNG.permutation(len(ROWS))
    for which, values in (
        (keep, ROWS[keep]),
        (order, np.asfortranarray(ROWS[order])),
        (np.arange(3, 1500, 7), np.repeat(ROWS, 2, axis=1)[3::7, ::2]),
        (np.array([9]), ROWS[9:10]),
    ):
        other = contributions(values, kernel, normalise, centre)
        assert np.array_equal(rows[which], other[0])
        assert np.array_equal(codes[:, which], other[1])
        assert np.array_equal(out[:, :, which], other[2])
        codes_of = PackedSigns.draw(SignCodes(words=2), 67)
        wide = contributions(ROWS, kernel, normalise, centre, coder=codes_of)[1]
        assert np.array_equal(
            wide[:, which], contributions(values, kernel, normalise, centre, coder=codes_of)[1]
        )
    alone = contributions(ROWS, kernel, normalise, centre, queries=QUERIES[5:6])
    assert np.array_equal(out[5], alone[2][0])


@pytest.mark.parametrize("normalise", [False, True])
def test_products_are_the_integer_products(normalise):
    lens = Lens.plain(WIDE, normalise=normalise)
    dtype = lens.dtype("test")
    seen = lens.see(ROWS, dtype)
    exact = seen.astype(object) @ seen[:9].astype(object).T
    pool = Pool(lens, dtype, None)
    pool.add(ROWS, np.zeros(len(ROWS), dtype=int), np.arange(len(ROWS)))
    assert np.array_equal(np.array(list(pool.products(seen[:9]))).T.astype(object), exact)
    norms = np.array([sum(int(v) ** 2 for v in row) for row in seen])
    assert norms.max() <= lens.norm**2
    assert lens.norm**2 < (2**24 if dtype is np.float32 else 2**53)


def test_a_grid_too_fine_for_exact_products_is_refused():
    fine = GridRows(width=10_000, labels=(0, 1), lower=(-(2**22),), upper=(2**22,))
    mechanism = IndKnn(rho=1.0, queries=1, size=10)
    with pytest.raises(SpaceError, match="OS203"):
        mechanism.bind(fine, Symmetric())


@pytest.mark.parametrize("kernel", [Cosine(), Rbf(bandwidth=0.7), Student(bandwidth=0.7)], ids=str)
def test_rungs_are_the_kernel_rounded_down(kernel):
    unit = 1 / 64
    ladder = kernel.ladder(32, unit)
    assert (np.diff(ladder) >= 0).all()
    for score in range(-(2 * 64**2), 64**2 + 1, 37):
        if kernel.angular:
            value = score * unit**2
        elif score > 0:
            continue
        elif isinstance(kernel, Rbf):
            value = np.exp(score * unit**2 / 0.49)
        else:
            value = 1 / (1 - score * unit**2 / 0.49)
        assert weights_of(ladder, np.array([score]))[0] == max(1, int(value * 32 + 1e-9))


@pytest.mark.few(1)
@pytest.mark.parametrize("cosine", [0.5, 0.8, 0.95])
def test_hash_tables_find_records_as_often_as_stated(cosine):
    """900 pairs; a 5-sigma band: false alarm below 1e-6 per case (seeds fixed, so deterministic)."""
    search = SignHashes(recall=0.9)
    size = chosen(search, cosine, 512)
    assert size is not None
    tables = HashTables.draw(1, *size, 512)
    base = RNG.normal(size=(900, 512))
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    side = RNG.normal(size=(900, 512))
    side -= (side * base).sum(axis=1, keepdims=True) * base
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    other = cosine * base + np.sqrt(1 - cosine**2) * side
    seen = [np.rint(2048 * rows).astype(np.float32) for rows in (base, other)]
    for coder in (tables, PackedSigns.draw(SignCodes(recall=0.9), 512)):
        stated = coder.recall(cosine)
        assert 0.9 <= stated < 1.0
        codes = [coder.codes(rows) for rows in seen]
        alike = [coder.alike(codes[0][:, [i]], codes[1][:, i], cosine)[0] for i in range(900)]
        _close(np.mean(alike), stated)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("width", "dtype"),
    [(64, "f4"), (1024, "f4"), (2**16, "f8"), pytest.param(2**18, "f8", marks=pytest.mark.long)],
)
def test_codes_are_computed_where_their_products_are_exact(width, dtype):
    """The float follows from the longest plane that was drawn and the longest row there may be."""
    for coder in (HashTables.draw(0, 1, 4, width), PackedSigns.draw(SignCodes(words=1), width)):
        planes = coder.planes.astype(np.int64)
        assert coder.planes.dtype == dtype
        assert (coder.planes == planes).all()
        bound = float(np.sqrt((planes**2).sum(axis=1).max())) * normalised_norm(width)
        assert bound < {"f4": 2**24, "f8": 2**53}[dtype]
        assert dtype == "f4" or bound > 2**24
    longest = Lens.plain(GridRows(width=width, upper=(9,)), normalise=True).norm
    assert longest == normalised_norm(width)


def _close(found, stated):
    assert abs(found - stated) < 5 * np.sqrt(stated * (1 - stated) / 900)


@pytest.mark.parametrize("cosine", [-1.0, -0.9999999, 0.0, 1.0])
@pytest.mark.parametrize(
    "given", [{}, {"bits": 16}, {"bits": 1}, {"tables": 3}, {"recall": 0.999999}]
)
def test_any_threshold_has_tables_or_none(cosine, given):
    found = chosen(SignHashes(**given), cosine, 64)
    assert found is None or (1 <= found[0] <= 256 and 1 <= found[1] <= 16)


def test_hashing_is_not_chosen_where_it_cannot_help():
    assert chosen(SignHashes(), 0.2, 384) is None
    assert chosen(SignHashes(tables=30, bits=8), 0.2, 384) == (30, 8)


class Forced:
    """Noise that makes the released numbers a given transcript, and notes what they hid."""

    def __init__(self, rng):
        self.rng, self.hidden, self.said = rng, [], []

    def __call__(self, cells, scale):
        self.hidden.append((cells.copy(), scale))
        if len(cells) == 1:
            self.said.append(np.array([int(self.rng.integers(-3, 40))]))
        else:
            self.said.append(self.rng.integers(-500, 500, len(cells)))
        return self.said[-1]


@pytest.mark.few(7)
@pytest.mark.parametrize("by_person", [False, True])
@pytest.mark.parametrize("d_in", [1, 2, 3])
@pytest.mark.parametrize("seed", some(range(8), 3))
def test_the_transcripts_of_neighbours_differ_by_no_more_than_the_map(
    seed, d_in, by_person, monkeypatch
):
    """Lemma 2 without its probability: on one transcript, the exact costs add up to at most d**2 B."""
    rng = np.random.default_rng(seed)
    grid = GridRows(width=4, labels=(0, 1, 2), ids=by_person, lower=(-9,), upper=(9,))
    rho = float(rng.choice([0.03, 0.05, 0.7]))
    mechanism = IndKnn(
        rho=rho,
        queries=int(rng.integers(5, 60)),
        size=30,
        threshold=0.5,
        centre=False,
        kernel=str(rng.choice(["cosine", "rbf", "student"])),
        levels=int(rng.choice([1, 7, 255])),
        count_scale=float(rng.choice([11.0, 20.0])),
        vote_scale=float(rng.choice([0.05, 1.0])),
        minimum_count=int(rng.choice([1, 30])),
        reuse=bool(rng.integers(2)),
    )
    n = 12
    values = rng.integers(-9, 10, (n, 4)).astype(float)
    values[: 2 * d_in] = [9, 8, 7, 0]
    labels = rng.integers(0, 3, n)
    labels[: 2 * d_in] = 1
    ids = np.arange(n) // 2 if by_person else None
    full = Rows(values, labels, ids)
    gone = 2 * d_in if by_person else d_in
    less = Rows(values[gone:], labels[gone:], None if ids is None else ids[gone:])
    queries = [
        np.array([[9.0, 8, 7, 1]])
        if rng.integers(2)
        else rng.integers(-9, 10, (3, 4)).astype(float)
        for _ in range(60)
    ]
    hidden = []
    for data in (full, less):
        forced = Forced(np.random.default_rng(seed + 1000))
        monkeypatch.setattr(Stock, "noisy", forced)
        predictor = Predictor(mechanism, grid, data)
        for query in queries:
            predictor.predict(query)
        hidden.append(forced.hidden)
    assert len(hidden[0]) == len(hidden[1])
    spent = Fraction(0)
    for (left, scale), (right, same) in zip(*hidden, strict=True):
        assert scale == same
        spent += Fraction(int(((left - right) ** 2).sum())) / (2 * Fraction(scale) ** 2)
    assert 0 < spent <= d_in**2 * Fraction(rho)


def test_a_purse_that_is_ignored_would_be_caught(monkeypatch):
    """The test above can fail: with prices of nothing the same neighbours overspend."""
    monkeypatch.setattr(IndividualFilter, "price", lambda self, scale: 1)
    with pytest.raises(AssertionError):
        test_the_transcripts_of_neighbours_differ_by_no_more_than_the_map(0, 1, False, monkeypatch)
