"""Points grown from a release: of each half its own, on the grid, the same again, and nearer to the data."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from scipy import optimize

from opendp_sim.core.capabilities import halves_of
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.postprocessing._impl import control_variate, grown_points
from opendp_sim.postprocessing._impl.control_variate import with_public
from opendp_sim.postprocessing._impl.grown_points import first_points, kernel_length
from tests.postprocessing.test_fitted_weights import KINDS, WIDTH, exact, release, rows, sums_of

FEW = mock.patch.multiple(grown_points, _POOL=80, _KEPT=40, _ITERATIONS=30, _ROUNDS=3)
"""For what does not depend on how well they grow."""


def points_of(of, features):
    read = with_public("grown", "density", of.released, sums_of(of), of.released.deviation, None)
    points, weights = read._grown({**of.arrays, "features": features})
    many = int(np.flatnonzero(weights[0].any(axis=0)).max()) + 1
    assert not weights[1, :, :many].any()
    return points, many, weights


def answered(of, queries, which="grown"):
    ask = lookup("density")(public=which).bind(of.released, Symmetric())
    return ask.function(of.arrays, of.queries(queries))


def forget(of):
    """Let the points be grown, and the weights fitted, again."""
    control_variate._LATELY.clear()
    vars(sums_of(of)).pop(control_variate._KEPT, None)


@FEW
@pytest.mark.parametrize("kind", ["random", "tail"])
def test_points_of_a_half_are_a_function_of_its_own_cells(kind):
    """Lemma G2: whatever stands in the other half's cells; and G3: on the grid, in its box."""
    of = release(kind, rows(400, 1), mu=1.0)
    one, other = halves_of(sums_of(of))
    features = np.array(of.arrays["features"])
    found, many, weights = points_of(of, features)
    odd = features.copy()
    odd[:, np.setdiff1d(other.place, one.place)] += 10**6
    again, as_many, others = points_of(of, odd)
    assert many == as_many
    assert np.array_equal(found[:many], again[:many])
    assert np.array_equal(weights[0, :, :many], others[0, :, :many])
    assert kind == "tail" or not np.array_equal(found[many:], again[many:])
    grid = of.stages[-1].domain
    assert np.array_equal(found, np.rint(found))
    assert (found >= grid.lower).all()
    assert (found <= grid.upper).all()


def whole_numbers(left, right):
    """The product of whole numbers in Python's integers, backwards: no other machine sums otherwise."""
    for part in (left, right):
        assert np.array_equal(part, np.rint(part))
    most = np.abs(left).astype(object).dot(np.abs(right).astype(object))
    assert np.max(most, initial=0) < 2**53
    turned = left.astype(object)[..., ::-1].dot(right.astype(object)[::-1])
    return np.asarray(turned, dtype=np.float64)


@pytest.mark.parametrize(("kind", "times"), [("random", 1), ("tail", 5000)])
def test_points_and_weights_are_those_of_whole_numbers(kind, times):
    """Lemma G3: every product is exact, whatever the order of its sum, so no machine has other points."""
    few = mock.patch.multiple(
        grown_points, _POOL=24, _KEPT=12, _ITERATIONS=6, _LAST_ITERATIONS=6, _ROUNDS=2, _DRAWS=40
    )
    of = release(kind, rows(300, 11), mu=1.0, frequencies=620)
    cells = (
        of.arrays["features"] * times
    )  # of 1.5 million records: beyond exact sums, if not rounded
    with few:
        control_variate._LATELY.clear()
        plain = points_of(of, cells)
        control_variate._LATELY.clear()
        with mock.patch.object(grown_points, "public_product", whole_numbers):
            exactly = points_of(of, cells)
    assert np.array_equal(plain[0], exactly[0])
    assert plain[2].tobytes() == exactly[2].tobytes()


def test_weights_are_near_those_of_least_squares():
    """Random integer cells, 40 points: the residual is at most 1 % longer than that of `nnls`."""
    draw = np.random.default_rng(5)
    cells = draw.integers(-4096, 4097, (40, 300)).astype(np.float64)
    true = np.maximum(draw.normal(size=40), 0.0) * 100
    seen = np.rint(true @ cells + draw.normal(0, 3e4, 300))
    units = grown_points.units_of(cells, seen, float(true.sum()), 600)
    _, least = optimize.nnls(cells.T, seen)
    found = np.linalg.norm(seen - units * (true.sum() / 2**24) @ cells)
    assert least <= found <= 1.01 * least


@FEW
def test_answers_do_not_depend_on_other_queries_and_are_the_same_again():
    of, queries = release("random", rows(400, 2), mu=1.0), rows(30, 3)
    forget(of)
    found = answered(of, queries)
    forget(of)
    some = answered(of, queries[:7])
    for name, column in some.items():
        assert column == pytest.approx(found[name][:7], rel=1e-9, abs=1e-9)
    assert lookup("density")(public="grown").bind(of.released, Symmetric()).by_query


@FEW
def test_a_later_question_fits_nothing_again():
    """What the first one fitted is read, until a cell is another one."""
    of, queries = release("random", rows(400, 2), mu=1.0), rows(5, 3)
    forget(of)
    whole = control_variate._WithPublic
    with mock.patch.object(whole, "_fitted", autospec=True, side_effect=whole._fitted) as fitted:
        found = [answered(of, queries) for _ in range(3)]
        assert fitted.call_count == 1
        of.arrays["features"][0, 0, 0] += 10**6
        changed = answered(of, queries)
        assert fitted.call_count == 2
    assert all(np.array_equal(column, found[2][name]) for name, column in found[0].items())
    assert not np.array_equal(changed["density"], found[0]["density"])


@mock.patch.multiple(grown_points, _POOL=300, _KEPT=120, _ITERATIONS=60)
@pytest.mark.parametrize(("kind", "share"), [("random", 0.5), ("tail", 0.8)])
def test_where_points_help_the_error_is_a_fraction(kind, share):
    """Two clouds in 5 columns, 400 frequencies: less than a share of the raw error, in these fixed draws."""
    data, queries = rows(2000, 4, skewed=True), rows(60, 5, skewed=True)
    of = release(kind, data, seed=3, mu=1.0)
    truth = exact(of, data, queries)
    errors = {
        which: np.abs(answered(of, queries, which)["density"][:, 0] - truth).mean()
        for which in ("none", "grown")
    }
    assert errors["grown"] < share * errors["none"]


@FEW
def test_classes_share_points_and_have_weights_of_their_own():
    data, labels = rows(600, 6), np.arange(600) % 3
    of = release("random", data, mu=5.0, labels=labels)
    found = answered(of, rows(5, 7))
    assert found["density"].shape == (5, 3)
    assert np.isfinite(found["upper"]).all()


@FEW
def test_no_records_are_answered():
    of = release("random", rows(0, 1), mu=1.0)
    found = answered(of, rows(4, 2))
    assert all(np.isfinite(column).all() for column in found.values())


@FEW
def test_where_growing_finds_nothing_the_answer_is_that_without_points():
    """Cells of noise alone: the judging draws give every mixture a share below one half."""
    of = release("random", rows(300, 8), mu=1.0)
    of.arrays["features"][...] = np.rint(
        np.random.default_rng(1).normal(0, 3e4, of.arrays["features"].shape)
    )
    control_variate._LATELY.clear()
    found, plain = (answered(of, rows(6, 9), which) for which in ("grown", "none"))
    assert all(np.array_equal(found[name], column) for name, column in plain.items())


@FEW
def test_growing_reads_the_released_cells_alone():
    """Lemma G1: releases of other records with the same cells are answered alike, and nothing global is drawn."""
    one, other = release("random", rows(300, 8), mu=1.0), release("random", rows(90, 9), mu=1.0)
    other.arrays.update({name: array.copy() for name, array in one.arrays.items()})
    before, found = np.random.get_state()[1].copy(), []
    for of in (one, other):
        control_variate._LATELY.clear()
        found.append(answered(of, rows(6, 2)))
    assert all(np.array_equal(column, found[1][name]) for name, column in found[0].items())
    assert np.array_equal(before, np.random.get_state()[1])


@FEW
@pytest.mark.parametrize("value", [0, 1, 2**62, -(2**62)])
def test_hostile_cells_are_answered(value):
    """No value of a cell that a file can hold makes growing fail or run on."""
    of = release("random", rows(50, 8), mu=1.0)
    for name in ("features", "total"):
        of.arrays[name][...] = value
        found = answered(of, rows(4, 2))
        assert all(np.isfinite(column).all() for column in found.values())


def test_kernel_length_is_where_a_kernel_is_a_share_of_e():
    assert kernel_length(lambda r: np.exp(-np.square(r / 3.0))) == pytest.approx(3.0, rel=2**-8)
    assert kernel_length(lambda r: 2.0 * np.exp(-r / 7e-5)) == pytest.approx(7e-5, rel=2**-8)


def test_a_sketch_without_halves_is_refused():
    of = release("random", rows(50, 1), mu=1.0, frequencies=100)
    with pytest.raises(SpaceError, match="OS201"):
        answered(of, rows(3, 2))


def test_more_classes_than_can_be_fitted_are_refused():
    of = release("random", rows(50, 1), mu=1.0, labels=np.arange(50) % 3)
    with (
        mock.patch.object(control_variate, "MOST_CLASSES", 2),
        pytest.raises(SpaceError, match="2 classes at most"),
    ):
        answered(of, rows(3, 2))


@pytest.mark.long
@mock.patch.multiple(grown_points, _POOL=300, _KEPT=120, _ITERATIONS=60)
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover(kind):
    """12 fixed seeds of frequencies and noise, 20 queries: 95 % intervals cover .9 of them or more."""
    data, queries = rows(2000, 9, skewed=True), rows(20, 10, skewed=True)
    inside, away = [], []
    for seed in range(12):
        of = release(kind, data, seed=seed, mu=1.0)
        found, truth = answered(of, queries), exact(of, data, queries)
        inside.append((found["lower"][:, 0] <= truth) & (truth <= found["upper"][:, 0]))
        away.append((found["density"][:, 0] - truth) / (found["upper"] - found["lower"])[:, 0])
    assert np.mean(inside) >= 0.9
    assert abs(np.mean(away)) < 0.1


# --- points like released moments -----------------------------------------------------------------


def gram_of(data, deviation=0.0, seed=0):
    """Sums of products of columns in [-1, 1], the constant first, with noise on each entry."""
    scaled = np.concatenate([np.ones((len(data), 1)), data / 2.0 - 1.0], axis=1)
    noise = np.triu(np.random.default_rng(seed).normal(0, deviation, (WIDTH + 1, WIDTH + 1)))
    return scaled.T @ scaled + noise + np.triu(noise, 1).T


BOX = grown_points.Box(np.zeros(WIDTH), np.full(WIDTH, 1023.0), 300.0)


def test_points_are_of_the_gaussian_of_released_moments():
    """750 draws: mean within 5 of its deviations, and each covariance within a fifth of the variances."""
    data = 1.0 + 0.5 * rows(4000, 1)  # few draws of its Gaussian leave the box
    found = grown_points.points_like(gram_of(data), 1.0, BOX)[: grown_points._LIKE] * 4.0 / 1023.0
    near = 5 * data.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - data.mean(axis=0)) < near).all()
    wanted = np.cov(data.T)
    assert np.abs(np.cov(found.T) - wanted).max() < 0.2 * wanted.max()


def test_points_of_moments_are_on_the_grid_and_others_stay_public():
    points, public = grown_points.points_like(gram_of(rows(400, 2)), 1.0, BOX), first_points(BOX)
    assert points.shape == public.shape
    assert np.array_equal(points, np.clip(np.rint(points), 0, 1023))
    assert np.array_equal(points[grown_points._LIKE :], public[grown_points._LIKE :])


@pytest.mark.parametrize("count", [0, 3, -50])
def test_moments_of_too_few_records_are_not_used(count):
    gram = gram_of(rows(max(count, 1), 3)) * (count / max(count, 1))
    assert np.array_equal(grown_points.points_like(gram, 20.0, BOX), first_points(BOX))


@pytest.mark.parametrize("value", [2.0**62, -(2.0**62)])
def test_hostile_moments_give_points_in_the_box(value):
    for gram in (np.full((WIDTH + 1, WIDTH + 1), value), np.diag(np.full(WIDTH + 1, value))):
        gram[0, 0] = abs(value)
        points = grown_points.points_like(gram, 1.0, BOX)
        assert np.isfinite(points).all()
        assert ((points >= 0) & (points <= 1023)).all()


def test_noise_of_moments_does_not_stretch_points():
    """Moments of one place with noise: a direction below the noise's largest eigenvalue has their mean variance."""
    deviation = 40.0
    gram = gram_of(np.full((2000, WIDTH), 2.0), deviation)
    points = grown_points.points_like(gram, deviation, BOX)[: grown_points._LIKE]
    spread = points.std(axis=0) / 511.5  # in half-ranges; the noise's edge is .3 squared
    assert (spread < 0.3).all()


def test_eigenvalues_are_those_of_a_symmetric_matrix():
    draw = np.random.default_rng(4).normal(size=(12, 12))
    matrix = draw + draw.T
    values, vectors = grown_points._eigen(matrix)
    assert np.sort(values) == pytest.approx(np.linalg.eigvalsh(matrix))
    assert vectors.T @ np.diag(values) @ vectors == pytest.approx(matrix)


@FEW
@mock.patch.object(grown_points, "_LIKE", 60)
@pytest.mark.parametrize("kind", ["random", "tail"])
def test_auto_grows_where_the_sketch_has_moments(kind):
    data, queries = rows(400, 2), rows(6, 3)
    for moments, which in ((True, "grown"), (False, "none")):
        of = release(kind, data, mu=1.0, moments=moments)
        found, told = answered(of, queries, "auto"), answered(of, queries, which)
        assert all(np.array_equal(found[name], column) for name, column in told.items())
        assert ("products" in of.arrays) == moments


@FEW
@mock.patch.object(grown_points, "_LIKE", 60)
@pytest.mark.parametrize("data", [rows(0, 1), rows(1, 1), np.full((300, WIDTH), 1.5)])
def test_no_record_one_and_all_alike_are_answered_from_moments(data):
    found = answered(release("random", data, mu=1.0, moments=True), rows(4, 2), "auto")
    assert all(np.isfinite(column).all() for column in found.values())


def test_few_draws_have_no_moments_and_pay_for_none():
    claims = [
        release("random", rows(9, 1), frequencies=150, moments=moments).stages[-1].claim
        for moments in (True, False)
    ]
    assert claims[0].sensitivity == claims[1].sensitivity
    assert claims[0].output.shapes == claims[1].output.shapes


@mock.patch.multiple(grown_points, _POOL=300, _KEPT=120, _ITERATIONS=60, _LIKE=225)
def test_moments_find_data_that_public_points_miss():
    """Two clouds of a tenth of the range in 5 columns: less than half the error of growing without moments."""
    data, queries = (1.2 + 0.4 * rows(count, seed) for count, seed in ((2000, 4), (60, 5)))
    of = release(
        "random", data, seed=3, mu=3.0, moments=True, kernel={"gaussian": {"bandwidth": 0.4}}
    )
    truth = exact(of, data, queries)
    errors = [
        np.abs(answered(of, queries, which)["density"][:, 0] - truth).mean()
        for which in ("none", "auto")
    ]
    assert errors[1] < 0.5 * errors[0]
