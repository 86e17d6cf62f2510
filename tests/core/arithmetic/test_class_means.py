"""Class means: the rule against a second writing of it, its risk, and who may win."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.arithmetic import class_means as module
from opendp_sim.core.arithmetic.class_means import ReleasedSums, ShrunkMeans
from opendp_sim.core.errors import SimError
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from tests.transformations.sketches.distances._distance_tools import Made


def released(
    means: Any, sizes: Any, deviation: float, seed: int, of_count: float = 0.0
) -> ReleasedSums:
    """Sums of classes with these means, with normal noise."""
    rng = np.random.default_rng(seed)
    sizes = np.asarray(sizes, dtype=float)
    sums = np.asarray(means, dtype=float) * sizes[:, None]
    noisy = sums + rng.normal(0, deviation, sums.shape)
    counts = sizes + rng.normal(0, of_count, len(sizes))
    return ReleasedSums(noisy, counts, deviation, of_count, np.zeros(sums.shape[1]))


def by_hand(found: ReleasedSums) -> tuple[list[list[float]], list[float]]:
    """The rule of `class_means.md`, class by class, coordinate by coordinate."""
    some = [c for c, n in enumerate(found.counts) if n > 0]
    total = max(math.fsum(found.counts[c] for c in some), 1.0)
    width = found.sums.shape[1]
    common = [math.fsum(found.sums[c][j] for c in some) / total for j in range(width)]
    means, kept = [], []
    for c, count in enumerate(found.counts):
        size = max(count, 1.0, found.of_count)
        own = [found.sums[c][j] / size for j in range(width)]
        share = size / total if count > 0 else 0.0
        # Written as the variance of the difference: own part, and the others' part.
        v = (found.of_sum / size) ** 2
        others = len(some) * (found.of_sum / total) ** 2
        u = v - 2 * share * v + others
        square = math.fsum((a - g) ** 2 for a, g in zip(own, common, strict=True))
        f = 1.0 if width <= 2 else max(0.0, 1.0 - (width - 2) * u / square) if square else 0.0
        kept.append(f)
        means.append([g + f * (a - g) for a, g in zip(own, common, strict=True)])
    return means, kept


@pytest.mark.few(2)
@pytest.mark.parametrize("width", [1, 2, 3, 40])
@pytest.mark.parametrize("sizes", [[50, 50, 110], [900, 30, 2, 0]])
def test_the_rule_is_the_one_written_down(width: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(width)
    for seed in range(20):
        found = released(rng.normal(0, 1, (len(sizes), width)), sizes, 3.0, seed, 2.0)
        means, kept = by_hand(found)
        shrunk = ShrunkMeans.of(found)
        assert shrunk.means == pytest.approx(np.array(means), rel=1e-9, abs=1e-12)
        assert shrunk.kept == pytest.approx(np.array(kept), rel=1e-9, abs=1e-12)
        queries = rng.normal(0, 1, (7, width))
        apart = np.square(queries[:, None] - np.array(means)).sum(axis=2)
        assert -2 * shrunk.scores(queries) == pytest.approx(apart, rel=1e-9, abs=1e-9)


@pytest.mark.few(1)
@pytest.mark.parametrize("width", [2, 40])
def test_equal_classes_are_not_shrunk(width: int) -> None:
    """The score is that of the raw means with the length that noise adds taken off; and unbiased."""
    rng = np.random.default_rng(width)
    truth, queries = rng.normal(0, 0.2, (3, width)), rng.normal(0, 1, (7, width))
    exact = queries @ truth.T - np.square(truth).sum(axis=1) / 2
    off = []
    for seed in range(2000):
        found = released(truth, [60, 50, 70], 6.0, seed)
        read = ShrunkMeans.of(found)
        assert read.wins.all()
        assert (read.kept == 1.0).all()
        off.append(read.scores(queries) + np.square(queries).sum(axis=1)[:, None] / 2 - exact)
    raw = found.sums / found.counts[:, None]
    assert read.means == pytest.approx(raw)
    assert (np.abs(np.mean(off, axis=0)) < 5 * np.std(off, axis=0) / math.sqrt(2000)).all()


@pytest.mark.long
def test_shrinking_never_costs_where_the_lemma_says_so(monkeypatch: Any) -> None:
    """Equal classes, d >= 3: the risk of the shrunk means is below that of the raw ones, wherever
    the means are: 3,000 draws, and means from none to far apart. Differences are 6 errors or more."""
    monkeypatch.setattr(module, "_EQUAL", 0.0)
    for spread in (0.0, 0.05, 0.2, 1.0):
        rng = np.random.default_rng(7)
        truth = rng.normal(0, spread, (4, 12))
        gains = []
        for seed in range(3000):
            found = released(truth, [100] * 4, 10.0, seed)
            raw = found.sums / 100.0
            shrunk = ShrunkMeans.of(found).means
            gains.append(float(np.square(raw - truth).sum() - np.square(shrunk - truth).sum()))
        error = np.std(gains) / math.sqrt(len(gains))
        assert np.mean(gains) > 6 * error or (spread == 1.0 and np.mean(gains) > -3 * error)


def test_the_deviation_of_a_margin_is_measured() -> None:
    """Large classes: the spread of a gap over releases is the stated one, within 15 %."""
    rng = np.random.default_rng(0)
    means = rng.normal(0, 1, (3, 30))
    queries = means[[0, 1, 2, 0]] + rng.normal(0, 0.5, (4, 30))
    gaps, stated = [], []
    for seed in range(600):
        shrunk = ShrunkMeans.of(released(means, [800, 500, 900], 40.0, seed, 30.0))
        scores = shrunk.scores(queries)
        order = np.array([[0, 1], [1, 0], [2, 0], [0, 2]])
        gaps.append(shrunk.gaps(scores, order))
        stated.append(shrunk.gap_deviation(queries, order))
    ratio = np.std(gaps, axis=0) / np.mean(stated, axis=0)
    assert ratio == pytest.approx(np.ones(4), abs=0.15)  # 5 errors of a deviation of 600 draws


LABELLED = GridRows(width=4, labels=("a", "b"), unit=0.25, lower=(-8,), upper=(24,))


def test_the_prior_is_that_of_normal_classes() -> None:
    """Without noise: minus half the squared distance plus the variance within times log shares."""
    rng = np.random.default_rng(6)
    data = Rows(
        rng.integers(-8, 25, (300, 4)).astype(float), (rng.random(300) < 0.2).astype(np.int64)
    )
    made = Made(LABELLED, data, "moments_sketch", per_label=True)
    domain, arrays = made.release()
    queries = Rows(rng.integers(-8, 25, (40, 4)).astype(float))
    plain = lookup("nearest_class")().bind(domain, Symmetric()).function(arrays, queries)
    told = lookup("nearest_class")(prior="released").bind(domain, Symmetric())
    found = told.function(arrays, queries)
    sizes = np.bincount(data.labels)
    means = np.stack([data.values[data.labels == c].mean(axis=0) for c in (0, 1)])
    within = np.square(data.values - means[data.labels]).sum() / (300 * 4) * 0.25**2
    expected = plain["score"] + 2 * within * np.log(sizes / 300)
    assert found["score"] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert (found["label"] == found["score"].argmax(axis=1)).all()
    assert {"margin", "margin_deviation"} <= set(found)


def test_a_prior_needs_squares_and_means() -> None:
    data = Rows(np.zeros((3, 4)), np.zeros(3, dtype=np.int64))
    short, _ = Made(LABELLED, data, "moments_sketch", per_label=True, squares=False).release()
    with pytest.raises(SimError, match="OS702"):
        lookup("nearest_class")(prior="released").bind(short, Symmetric())
    whole, _ = Made(LABELLED, data, "moments_sketch", per_label=True).release()
    with pytest.raises(SimError, match="OS102"):
        lookup("nearest_class")(prior="released", rule="mean_distance").bind(whole, Symmetric())


def test_where_noise_drowns_the_means_only_directions_are_read() -> None:
    """The score is `<q - g', S_c - S>` up to what is the same for all classes, and a gap's deviation is exact."""
    rng = np.random.default_rng(4)
    truth, width = rng.normal(0, 0.05, (6, 40)), 40
    queries, gaps, told = rng.normal(0, 1, (5, width)), [], []
    for seed in range(400):
        found = released(truth, [100] * 6, 60.0, 100 + seed, 200.0)
        read = ShrunkMeans.of(found)
        apart = np.square(found.sums - found.sums.mean(axis=0)).sum()
        assert (read.about is not None) == (1 - 5 * width * 60.0**2 / apart < 0.15)
        if read.about is None:
            continue
        away = found.sums - found.sums.mean(axis=0)
        by_hand = (queries - read.about) @ away.T
        scores = read.scores(queries)
        assert np.diff(scores) * read.sizes[0] == pytest.approx(np.diff(by_hand), abs=1e-6)
        assert read.wins.tolist() == [
            c > 0 or i == found.counts.argmax() for i, c in enumerate(found.counts)
        ]
        assert not read.prior.any()
        pair = np.array([[0, 1]] * len(queries))
        gaps.append((scores[:, 0] - scores[:, 1]) * read.sizes[0])
        told.append(read.gap_deviation(queries, pair) * read.sizes[0])
    assert len(gaps) > 300
    # `about` is drawn anew each time, which adds a little: a deviation over 300 draws errs by 4 %.
    spread = np.std(gaps, axis=0) / np.mean(told, axis=0)
    assert (np.abs(spread - 1) < 0.3).all()


def test_directions_find_what_squares_of_noise_hid() -> None:
    """Reproduced: ten equal classes at a loss at which every size is within its noise. One class had all queries."""
    rng = np.random.default_rng(5)
    truth, width = rng.normal(0, 0.03, (10, 200)), 200
    labels = rng.integers(0, 10, 500)
    queries = truth[labels] + rng.normal(0, 0.05, (500, width))
    right = []
    for seed in range(8):
        found = released(truth, [200] * 10, 25.0, 100 + seed, 300.0)
        read = ShrunkMeans.of(found)
        assert read.about is not None
        right.append((read.leaders(read.scores(queries))[:, 0] == labels).mean())
    assert np.mean(right) > 0.3
