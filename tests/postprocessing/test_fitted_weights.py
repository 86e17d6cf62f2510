"""Weights of public points fitted to one half of the draws: unbiased, covered, and the same on every machine."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.capabilities import halves_of
from opendp_sim.core.claims import Noise
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.postprocessing._impl import control_variate
from opendp_sim.postprocessing._impl.control_variate import with_public
from tests._tiers import some

WIDTH = 5
RANDOM = {"frequencies": 400, "kernel": {"gaussian": {"bandwidth": 1.5}}, "features": "random"}
TAIL = {"frequencies": 700, "kernel": {"gaussian": {"bandwidth": 2.0}}}
"""On a lattice: 446 vectors of its head, 254 drawn."""
WEIGHTED = RANDOM | {
    "frequencies": 700,
    "kernel": {
        "weighted": {
            "terms": [
                [2.0, {"gaussian": {"bandwidth": 2.0}}],
                [-1.0, {"gaussian": {"bandwidth": 1.2}}],
            ]
        }
    },
}
KINDS: dict[str, dict[str, Any]] = {"random": RANDOM, "tail": TAIL, "weighted": WEIGHTED}


def rows(count: int, seed: int, *, skewed: bool = False) -> Any:
    """Two clouds; ``skewed``: one of them four times as often."""
    rng = np.random.default_rng(seed)
    middle = rng.choice([1.0, 3.0], (count, 1), p=[0.8, 0.2] if skewed else None)
    return np.clip(middle + rng.normal(0, 0.5, (count, WIDTH)), 0, 4)


def release(
    kind: str, data: Any, *, seed: int = 0, mu: float = 1e9, labels: Any = None, **other: Any
) -> Release:
    space = RealRows(
        width=WIDTH, lower=(0.0,), upper=(4.0,), labels=None if labels is None else ("a", "b", "c")
    )
    params = KINDS[kind] | {"seed": seed, "per_label": labels is not None} | other
    steps = [lookup("quantize")(bits=10), lookup("fourier_sketch")(**params)]
    stages = bind_steps(space, Symmetric(), steps)
    flat = whole_function(stages[-1].claim)(resolve(stages, list)(Rows(data, labels)))
    scale = math.sqrt(float(stages[-1].claim.sensitivity.l2_squared)) / mu
    noise = np.rint(np.random.default_rng(10**6 + seed).normal(0, scale, flat.shape))
    law = Noise("discrete_gaussian", scale)
    return Release.of_sketch(stages, flat + noise.astype(np.int64), law, {})


def sums_of(of: Release) -> Any:
    return of.released.capability("kernel_sums", "test")  # type: ignore[attr-defined]


def exact(of: Release, data: Any, queries: Any) -> Any:
    grid: Any = of.stages[-1].domain
    seen = [np.rint(of.queries(v).values) * grid.unit for v in (data, queries)]
    return sums_of(of).kernel(cdist(*seen)).sum(axis=0)


def fitted(of: Release, points: Any) -> Any:
    """The kernel sums with public points, and their weights."""
    deviation = of.released.deviation  # type: ignore[attr-defined]
    read: Any = with_public(
        "queries", "density", of.released, sums_of(of), deviation, of.queries(points)
    )
    read.estimate(of.arrays, of.queries(points))
    return read, read._kept[0][1]


EQUAL = mock.patch.object(control_variate, "halves_of", return_value=None)


@pytest.mark.parametrize("kind", KINDS)
def test_halves_are_the_sketch_s_own_draws(kind: str):
    """Each draw once, the head twice; cells of a point are what the sketch adds; means of halves are the whole."""
    of, points = release(kind, rows(300, 1)), rows(7, 2)
    sums, (one, other) = sums_of(of), halves_of(sums_of(of)) or ()
    head = np.intersect1d(one.place, other.place)
    assert len(head) == (len(sums.lattice.head) if kind == "tail" else 0)
    both = np.union1d(one.place, other.place)
    assert both.tolist() == list(range(of.arrays["features"].shape[1]))
    on_grid = np.rint(of.queries(points).values)
    for half in (one, other):
        for row, cells in zip(on_grid, half.cells(on_grid), strict=True):
            flat = np.zeros(of.released.sketch.size, dtype=np.int64)
            sums.accumulate(Rows(row[None]), flat)
            alone = of.released.sketch.split(flat)["features"][0, half.place]
            assert np.array_equal(cells, alone)
    read = [
        half.sums.estimate(
            {"features": of.arrays["features"][:, half.place], "total": of.arrays["total"]},
            of.queries(points),
        )
        for half in (one, other)
    ]
    whole = sums.estimate(of.arrays, of.queries(points))
    mean = (read[0].groups + read[1].groups) / 2
    assert mean == pytest.approx(whole.groups, rel=1e-9, abs=1e-7)
    assert {one.sums.noise_factor() > sums.noise_factor()} == {True}


@pytest.mark.parametrize(("kind", "drawn"), [("random", 401), ("tail", 254)])
def test_a_group_of_a_median_has_two_draws_of_each_half(kind: str, drawn: int):
    """With one of each, a median of skewed differences was off by 1.2 stated deviations."""
    of = release(kind, rows(300, 1), **({"frequencies": drawn} if kind == "random" else {}))
    ask: dict[str, Any] = {"public": rows(40, 2), "estimator": "median_of_means"}
    most = drawn // 4
    few, limit, many = (
        of.density(rows(5, 3), groups=groups, **ask)["density"] for groups in (9, most, 999)
    )
    assert np.array_equal(many, limit)
    assert not np.array_equal(few, limit)


def test_few_or_dependent_draws_have_no_halves():
    assert halves_of(sums_of(release("random", rows(30, 1), frequencies=199))) is None
    assert halves_of(sums_of(release("random", rows(30, 1), features="orthogonal"))) is None
    few = release("tail", rows(30, 1), kernel={"gaussian": {"bandwidth": 6.0}}, frequencies=600)
    assert len(sums_of(few).lattice.tail) < 200
    assert halves_of(sums_of(few)) is None


def measured(kind: str, seeds: int, mu: float, data: Any, points: Any, queries: Any) -> Any:
    """Errors (seeds, q) of either half, their mean, coverage, and the stated variance."""
    halves, errors, covered, stated = [], [], [], []
    for seed in range(seeds):
        of = release(kind, data, seed=seed, mu=mu)
        truth = exact(of, data, queries)
        found = of.density(queries, public=points)
        errors.append(np.ravel(found["density"]) - truth)
        inside = (np.ravel(found["lower"]) <= truth) & (truth <= np.ravel(found["upper"]))
        covered.append(inside)
        stated.append(np.ravel(found["noise_error"]) ** 2 + np.ravel(found["sketch_error"]) ** 2)
        read, crossed = fitted(of, points)
        asked = of.queries(queries)
        mixed = read._exact(np.asarray(asked.values), crossed.weights[:, 0])
        parts = [
            half.sums.estimate(rest, asked).groups[0, 0]
            for half, rest in zip(halves_of(read.sums) or (), crossed.rest, strict=True)
        ]
        halves.append([parts[0] + mixed[1] - truth, parts[1] + mixed[0] - truth])
    assert np.mean(halves, axis=1) == pytest.approx(np.array(errors), abs=1e-6 * len(data))
    return np.array(errors), np.array(halves), np.array(covered), np.array(stated)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", some(["random", "tail"], 2))
def test_fitted_weights_are_unbiased_and_covered(kind: str):
    """25 fixed seeds: each query's mean error within 5 standard errors, and less error than equal weights."""
    data, points, queries = rows(300, 1, skewed=True), rows(40, 2), rows(20, 3)
    errors: dict[bool, list[Any]] = {True: [], False: []}
    covered = []
    for seed in range(25):
        of = release(kind, data, seed=seed, mu=1.0)
        truth = exact(of, data, queries)
        for equal, into in errors.items():
            with EQUAL if equal else nullcontext():
                found = of.density(queries, public=points)
            into.append(np.ravel(found["density"]) - truth)
        covered.append((np.ravel(found["lower"]) <= truth) & (truth <= np.ravel(found["upper"])))
    off = np.array(errors[False])
    assert np.abs(off.mean(axis=0) / off.std(axis=0, ddof=1)).max() < 5.0 / math.sqrt(25)
    assert np.mean(covered) > 0.94
    assert np.sqrt(np.square(off).mean()) < 0.85 * np.sqrt(np.square(errors[True]).mean())


@pytest.mark.long
@pytest.mark.parametrize("mu", [0.03, 0.3, 3.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_halves_errors_are_uncorrelated(kind: str, mu: float):
    """300 fixed seeds: bias, correlation of the halves, variance beside the stated one, and coverage."""
    data, points, queries = rows(800, 1, skewed=True), rows(80, 2), rows(40, 3)
    errors, halves, covered, stated = measured(kind, 300, mu, data, points, queries)
    off = errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / math.sqrt(300))
    assert np.abs(off).max() < 5.0
    together = (halves[:, 0] * halves[:, 1]).mean(axis=0)
    rho = together / np.sqrt(np.square(halves).mean(axis=0).prod(axis=0))
    shared = 0.0 if kind != "tail" else 1.0  # the head's noise is in both
    assert rho.mean() < 0.08 or shared
    assert np.square(errors).mean() < 1.1 * stated.mean()
    assert covered.mean() > 0.94
    assert covered.mean(axis=0).min() > 0.88


@pytest.mark.long
@pytest.mark.parametrize("kind", some(["random", "tail"], 2))
def test_where_noise_is_all_there_is_fitted_weights_lose_nothing(kind: str):
    """12 fixed seeds at the noise of an epsilon of about .05: within a tenth of equal weights."""
    data, points, queries = rows(300, 1, skewed=True), rows(40, 2), rows(20, 3)
    square: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(12):
        of = release(kind, data, seed=seed, mu=0.01)
        truth = exact(of, data, queries)
        for equal, found in square.items():
            with EQUAL if equal else nullcontext():
                answer = of.density(queries, public=points)["density"]
            found.append(float(np.square(np.ravel(answer) - truth).mean()))
    assert np.mean(square[False]) < 1.1**2 * np.mean(square[True])


def test_weights_are_whole_steps_and_no_last_digit_reaches_an_answer():
    of, points = release("random", rows(500, 1, skewed=True), mu=1.0), rows(60, 2)
    _, crossed = fitted(of, points)
    weights, size = crossed.weights, float(sums_of(of).totals(of.arrays)[0][0])
    steps = weights / 2.0 ** math.ceil(math.log2(size / 2**20))
    assert np.array_equal(steps, np.rint(steps))
    assert weights.min() >= 0.0
    assert weights.sum(axis=2).max() <= size * (1 + 60 / 2**20)
    cholesky, shaken = np.linalg.cholesky, np.random.default_rng(0)

    def another_machine(matrix: Any) -> Any:
        return cholesky(matrix) * (1 + 1e-15 * shaken.normal(size=matrix.shape))

    with mock.patch.object(np.linalg, "cholesky", another_machine):
        again = fitted(of, points)[1]
    assert np.array_equal(again.weights, weights)


def test_a_fit_that_does_not_end_has_equal_weights():
    of, points = release("random", rows(200, 1), mu=1.0), rows(30, 2)
    stuck = mock.Mock(side_effect=RuntimeError("iterations"))
    with mock.patch("scipy.optimize.nnls", stuck):
        _, crossed = fitted(of, points)
    assert len(np.unique(crossed.weights)) == 1


@pytest.mark.long
def test_more_points_than_weights():
    """600 points: 400 have weights of their own and all have a common one; the answer is as good."""
    data, points = rows(500, 1, skewed=True), rows(600, 2)
    of = release("random", data)
    _, crossed = fitted(of, points)
    assert (np.unique(crossed.weights[0, 0], return_counts=True)[1] >= 200).any()
    found = of.density(points[:40], public=points)
    plain = of.density(points[:40])
    truth = exact(of, data, points[:40])
    error, raw = (np.abs(np.ravel(v["density"]) - truth).mean() for v in (found, plain))
    assert error < raw / 3


def test_each_class_has_weights_of_its_own():
    """A class in one cloud, one in both, and an empty one, whose weights are 0 where its number is."""
    data, points = rows(600, 1), rows(60, 2)
    labels = np.where(data.mean(axis=1) < 2.0, 0, np.arange(600) % 2)
    of = release("random", data, labels=labels, mu=5.0)
    read, crossed = fitted(of, points)
    assert crossed.weights.shape == (2, 3, 60)
    near = points.mean(axis=1) < 2.0
    assert crossed.weights[:, 1][:, near].sum() < 0.1 * crossed.weights[:, 1].sum()
    size = read.totals(of.arrays)[0][2]
    assert crossed.weights[:, 2].sum(axis=1) == pytest.approx(0.0, abs=max(0.0, size) + 1e-9)
    found = of.density(points, public=points)
    for label in (0, 1):
        truth = exact(of, data[labels == label], points)
        assert (
            np.mean((found["lower"][:, label] <= truth) & (truth <= found["upper"][:, label])) > 0.9
        )
