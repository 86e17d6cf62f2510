"""Sound objects at the edges of arithmetic and of chance: each was once refuted, with certainty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.checks.distribution import distribution_layer
from opendp_sim.audit.checks.noise import residual_tests
from opendp_sim.audit.claims.curves import gaussian_delta, renyi_curve
from opendp_sim.audit.claims.losses import claim_ratio, laplace_renyi
from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import GivenPairs, space_of
from opendp_sim.audit.options import scored
from opendp_sim.audit.outputs.encoding import encode
from opendp_sim.audit.subject import Subject
from opendp_sim.measurements.noise.rounded_gaussian import make_rounded_gaussian
from tests._tiers import some

SHORT = replace(
    Effort.of("quick"), seconds=0.3, stability_seconds=0.4, stability_trials=1500, total=1.0
)
RECORDS = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()


def _transformation(function: Callable[[Any], Any], metric: dp.Metric, factor: float) -> Any:
    out = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    domain = RECORDS[0] if metric == RECORDS[1] else out
    return dp.t.make_user_transformation(*RECORDS, domain, metric, function, lambda d: factor * d)


@pytest.mark.long
def test_a_random_function_whose_coin_seldom_falls_is_random() -> None:
    """With one coin for both sides the distance never grows; 24 equal answers do not hide the coin."""
    coins = np.random.default_rng(1)
    made = _transformation(lambda x: [] if coins.random() < 0.02 else x, RECORDS[1], 1)
    few = replace(SHORT, stability_trials=400)  # of which the coin falls in sixteen
    assert audit(made, 1, few).verdict == "not refuted"


@pytest.mark.long
@pytest.mark.parametrize("metric", some([dp.l1_distance(T=float), dp.l2_distance(T=float)], 2))
def test_a_random_sign_has_a_coupling_in_either_norm(metric: dp.Metric) -> None:
    coins = np.random.default_rng(2)
    made = _transformation(
        lambda x: [float(coins.choice((-1.0, 1.0))) * (10 * len(x) + 100)], metric, 10.0
    )
    assert audit(made, 1, SHORT).verdict == "not refuted"


@pytest.mark.parametrize("scale", [0.2, 0.1, 0.05, 0.01, 0.001])
@pytest.mark.parametrize("family", ["discrete_laplace", "discrete_gaussian", "rounded_gaussian"])
def test_noise_far_below_a_step_is_seldom_seen(family: str, scale: float) -> None:
    rng = np.random.default_rng(3)
    law = NoiseLaw(family, scale)
    z, p = law.support(scale)
    residual = rng.choice(z, size=(400, 20), p=p)
    tests = list(residual_tests(law, residual, rng))
    assert min(test.p for test in tests) > 1e-9
    assert min(t.p for t in residual_tests(NoiseLaw(family, 1.0), np.zeros((400, 20)), rng)) < 1e-9


def test_infinities_of_both_sides_are_no_distance() -> None:
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    made = dp.m.make_laplace(*space, 1.0)
    report = audit(made, 1.0, SHORT, core=lambda x: x, noise=NoiseLaw("laplace", 1.0))
    assert report.verdict == "not refuted"


def test_rounded_releases_may_repeat() -> None:
    """Near 4e12 a float has two thousand values to one scale of the noise: thousands of runs meet."""
    rng = np.random.default_rng(4)
    residual = np.round(rng.laplace(size=(3000, 1)) * 2048) / 2048
    repeats = list(residual_tests(NoiseLaw("laplace", 1.0), residual, rng))
    assert min(test.p for test in repeats) > 1e-9


@pytest.mark.parametrize("step", [1e-9, 1e-6, 1e-4, 9e-3, 0.011])
def test_the_renyi_divergence_of_small_shifts_is_not_rounding(step: float) -> None:
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.dps = 60
    for alpha in (1.01, 1.5, 2.0, 7.0, 300.0):
        a, t = mpmath.mpf(alpha), mpmath.mpf(step)
        terms = a / (2 * a - 1) * mpmath.e ** ((a - 1) * t)
        terms += (a - 1) / (2 * a - 1) * mpmath.e ** (-a * t)
        exact = float(mpmath.log(terms) / (a - 1))
        assert laplace_renyi(step, np.array([alpha]))[0] == pytest.approx(exact, rel=3e-10)


@pytest.mark.parametrize("move", [1.0, 2.0, 5.0])
def test_a_claim_of_the_discrete_gaussian_s_exact_delta_holds(move: float) -> None:
    law = NoiseLaw("discrete_gaussian", 3.0)
    z = np.arange(-200, 201)
    weight = np.exp(-(z**2) / 18.0)
    loss = move * (move - 2 * z) / 18.0
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
        exact = math.fsum(weight * np.maximum(0, 1 - np.exp(epsilon - loss))) / math.fsum(weight)
        measure = dp.approximate(dp.max_divergence())
        ratio = claim_ratio(law, np.array([move, 0.0]), measure, (epsilon, exact))
        assert ratio == pytest.approx(1.0, rel=1e-9) or exact < 1e-12
    each = NoiseLaw("discrete_laplace", np.array([2.0, 3.0]))
    assert claim_ratio(each, np.array([1.0, 1.0]), measure, (2.0, 0.1)) <= 1.0


@pytest.mark.parametrize("metric", [dp.absolute_distance, dp.l1_distance, dp.l2_distance])
def test_neighbours_in_32_bits_are_within_the_distance(metric: Any) -> None:
    atom = dp.atom_domain(T="f32", nan=False)
    scalar = metric is dp.absolute_distance
    space = space_of(atom if scalar else dp.vector_domain(atom, size=3), metric(T="f32"), 1.0)
    rng = np.random.default_rng(5)
    for pair in [*space.corners(rng), *(space.draw(rng) for _ in range(500))]:
        left, right = (
            np.ravel(np.asarray(side, dtype=np.float32)) for side in (pair.left, pair.right)
        )
        if not np.isfinite(left).all():
            continue
        gaps = [
            abs(Fraction(float(a)) - Fraction(float(b))) for a, b in zip(left, right, strict=True)
        ]
        size = sum(g * g for g in gaps) if metric is dp.l2_distance else sum(gaps)
        assert size <= 1


@pytest.mark.long
def test_lists_of_different_lengths_are_within_their_claim() -> None:
    """A long list is e times as likely on one side: its width once rounded the sums of all others."""
    rng = np.random.default_rng(6)
    short, long = [0.1, 0.2, 0.3, 0.4, 0.1, 0.7, 0.3], [0.1] * 7 + [0.3] * 9

    def releases(side: int, count: int) -> list[list[float]]:
        return [long if u < 0.01 * math.e**side else short for u in rng.random(count)]

    subject = Subject(
        run=lambda side: releases(side, 1)[0],
        privacy_map=float,
        measure=dp.max_divergence(),
        sample=releases,
    )
    pairs = (Pair(1, 0, 1),)
    budget = replace(SHORT, seconds=1.0, bet_pairs=2000)
    layers = [
        distribution_layer(subject, GivenPairs(pairs), 1, budget, rng, 1e-6, pairs)
        for _ in range(8)
    ]
    assert all(layer.status == "not refuted" for layer in layers)


@pytest.mark.parametrize("seed", some(range(3), 3))
def test_an_odometer_whose_driver_spends_by_its_answers_is_asked_about_one_conversation(
    seed: int,
) -> None:
    """It states another loss after another conversation: no number claims all of them."""
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    odometer = dp.c.make_fully_adaptive_composition(*space, dp.max_divergence())
    careful, bold = dp.m.make_laplace(*space, 4.0), dp.m.make_laplace(*space, 0.5)

    def drive(queryable: Any) -> tuple[float, ...]:
        first = queryable(careful)
        return (first, queryable(bold)) if first > 2 else (first,)

    assert audit(odometer, 1.0, SHORT, drive=drive, seed=seed).verdict == "not refuted"


def test_an_event_of_the_user_s_sees_an_output_without_those_beside_it() -> None:
    score = scored({"cells": lambda row: float(len(row))})["cells"]
    assert score(encode([[1.0], [1.0, 2.0], [1.0] * 16])).tolist() == [1.0, 2.0, 16.0]


def test_an_order_without_a_number_claims_nothing() -> None:
    """It once made the whole curve no number, at which nothing can be refuted."""
    grid = np.linspace(0.0, 3.0, 7)
    holes = renyi_curve(lambda alpha: math.nan if alpha < 1.5 else alpha / 2, 0.0, "")
    whole = renyi_curve(lambda alpha: alpha / 2, 0.0, "")
    assert (holes.delta(grid) >= whole.delta(grid)).all()


@pytest.mark.parametrize("move", [1.0, 2.0, 5.0])
@pytest.mark.parametrize(("scale", "grid"), [(3.0, 1.0), (0.5, 0.25), (0.4, 1.0)])
def test_a_claim_of_the_rounded_gaussian_s_curve_holds_and_a_lower_one_falls(
    move: float, scale: float, grid: float
) -> None:
    """The law attains its curve where a threshold lies between two atoms, and passes it nowhere."""
    law = NoiseLaw("rounded_gaussian", scale, grid)
    measure = dp.approximate(dp.max_divergence())
    ratios = []
    for k in range(40):
        for threshold in (k + 0.5, k + 0.8):  # attained where the threshold lies between two atoms
            epsilon = (threshold * grid - move / 2) * move / scale**2
            delta = gaussian_delta(move / scale, max(epsilon, 0.0))
            if epsilon >= 0 and delta > 1e-9:
                ratio = claim_ratio(law, np.array([move, 0.0]), measure, (epsilon, delta))
                assert ratio <= 1 + 1e-9
                ratios.append(ratio)
    assert max(ratios) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("factor", some([1, None], 2))
def test_the_rounded_gaussian_passes_on_any_grid_and_a_discrete_one_does_not(factor) -> None:
    """At scale 0.6: five steps a cell, or whole cells; the other law's atoms are 10 % off."""
    space = dp.vector_domain(dp.atom_domain(T="i64"), 8), dp.l2_distance(T=float)
    made = make_rounded_gaussian(*space, scale=0.6, factor=factor)
    assert audit(made, 1.0, SHORT).verdict == "not refuted"
    law = NoiseLaw("rounded_gaussian", 0.6, 1.0)
    other = NoiseLaw("discrete_gaussian", 0.6, 1.0)
    z, p = other.support(0.6)
    rng = np.random.default_rng(3)
    residual = rng.choice(z, size=(4000, 8), p=p)
    assert min(t.p for t in residual_tests(law, residual, rng)) < 1e-9
    assert min(t.p for t in residual_tests(other, residual, rng)) > 1e-9
