"""Sound programs that change what they show of rare noise, and pairs that are no members: no accusation."""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import Decoded
from opendp_sim.audit.statistics.sampling import begin_coins, both_sides
from opendp_sim.audit.trace.closed_form import _PATTERNS, Shift, places_of, ratio_in_sight
from tests._tiers import some
from tests.audit.growing import refuted
from tests.audit.opaque.kit import APPROX, PURE, SYMMETRIC, opaque, up, whole
from tests.audit.test_sound_programs import BRIEF

SCALE = 10


def law(at: int, low: int, high: int) -> np.ndarray:
    """Return the law of ``at`` with discrete normal noise, clamped: shape (high - low + 1,)."""
    z = np.arange(-400, 401)
    mass = np.exp(-(z.astype(float) ** 2) / (2 * SCALE**2))
    return np.bincount(np.clip(at + z, low, high) - low, mass / mass.sum(), high - low + 1)


def clamped(reach: float, noise: Any) -> tuple[float, Any]:
    """Return "is anybody there" with noise, clamped to a public range; and the epsilon of its whole law."""
    low, high = -int(reach * SCALE), SCALE + int(reach * SCALE)
    epsilon = float(np.abs(np.log(law(0, low, high) / law(SCALE, low, high))).max()) * (1 + 1e-9)

    def function(rows: list[int]) -> int:
        return min(max(noise(SCALE * min(len(rows), 1)), low), high)

    return epsilon, function


NATIVE = dp.m.make_gaussian(dp.atom_domain(T=int), dp.absolute_distance(T=int), float(SCALE))


@pytest.mark.parametrize("reach", some([2.5, 3.5], 2))
def test_noise_that_is_clamped_far_out_may_have_a_pure_claim(reach: float) -> None:
    """A range of outputs makes normal noise pure; the clamp is met by few tapes or by none."""
    epsilon, function = clamped(reach, NATIVE)
    pure = opaque(whole(), SYMMETRIC, PURE, function, lambda d: up(epsilon) if d else 0.0)
    beside = opaque(
        whole(), SYMMETRIC, APPROX, function, lambda d: (up(epsilon), 1e-9) if d else (0.0, 0.0)
    )
    for obj in (pure, beside):
        assert audit(obj, 1, budget=BRIEF).verdict == "not refuted"


@pytest.mark.long
def test_noise_that_stands_everywhere_is_still_calculated() -> None:
    """Five per cent too little."""
    noise = dp.m.make_laplace(
        dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), 2.0
    )
    obj = opaque(whole(), SYMMETRIC, PURE, lambda r: noise(float(len(r))), lambda d: 0.5 * d / 1.05)
    report = refuted(obj, 1, budget="quick")
    assert report.verdict == "refuted"
    assert report.evidence is not None
    assert report.evidence.extra["how"].startswith("calculated")


def test_places_reach_far_and_lie_close_in_the_middle() -> None:
    for normal, far in ((True, 9.0), (False, 40.0)):
        places = places_of(normal=normal)
        assert (places[0], places[-1]) == (-far, far)
        assert np.diff(places[np.abs(places) <= 9]).max() <= 0.25


def shift(by: float) -> Shift:
    decoded = Decoded((0,), (1.0,), 1, ((0.0,), (0.0,)))
    first, second = np.zeros(1), np.array([by])
    return Shift(NoiseLaw("gaussian", np.ones(1)), first, second, False, decoded)


@pytest.mark.parametrize("by", [0.1, 1.0, 2.5, 20.0])
def test_what_stands_in_sight_is_a_finite_lower_bound(by: float) -> None:
    """Of normal noise: at most the truth for Renyi claims, and for pure ones what an event shows."""
    pure = ratio_in_sight(shift(by), dp.max_divergence(), 1.0)
    assert 0 < pure <= 9 * min(by, 8) + by * by / 2 + 40
    assert math.isfinite(pure)
    renyi = ratio_in_sight(shift(by), dp.renyi_divergence(), lambda alpha: alpha * by * by / 2)
    assert 0.1 < renyi <= 1 + 1e-9
    far = (9 * by + by * by, 1e-9)
    assert ratio_in_sight(shift(by), dp.approximate(dp.max_divergence()), far) == 0.0


def test_pairs_that_are_no_members_are_not_bet_on() -> None:
    """A list of different numbers: a function may do what it likes with one that is given twice."""
    domain = dp.user_domain("distinct", lambda v: isinstance(v, list) and len(set(v)) == len(v))
    noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)

    def function(rows: list[int]) -> int:
        if len(set(rows)) != len(rows):
            raise ValueError("twice")
        return noise(len(rows))

    obj = dp.m.make_user_measurement(
        domain, dp.symmetric_distance(), dp.max_divergence(), function, lambda d: 1.0 * d
    )
    pairs = [([], [1]), ([1], [1, 2]), ([3, 4], [3])]
    assert audit(obj, 1, budget=BRIEF, pairs=pairs).verdict == "not refuted"


def test_batches_of_one_size_have_coins_of_their_own() -> None:
    """A counter's parity keeps step with coins that come again: the claim holds of the round no more."""

    def sides() -> list[list[int]]:
        calls = iter(range(10**6))
        both_sides(lambda _: [next(calls) % 2], Pair([1], [], 1), 0)
        return [both_sides(lambda _: [next(calls) % 2], Pair([1], [], 1), 64)[0] for _ in range(4)]

    begin_coins()
    first = sides()
    assert len({tuple(one) for one in first}) == 4
    begin_coins()
    assert sides() == first


PLACES = places_of(normal=False)


def test_cells_are_forced_apart_and_not_to_one_place_only() -> None:
    """One cell far out beside common noise of the others, either of them, on both sides."""
    rng = np.random.default_rng(0)
    for cells in (2, 3, 8):
        far = np.array([one(12.0, PLACES, cells, n, rng) for n in range(99) for one in _PATTERNS])
        beyond = np.abs(far) > 9
        assert np.abs(far[:3]).max() <= 40
        for cell in range(cells):
            rest = np.delete(np.abs(far), cell, axis=1)
            assert (beyond[:, cell] & (rest <= 2.5).all(axis=1)).any()
            assert (beyond[:, cell] & (rest[:, 0] <= 1)).any()


def test_what_two_cells_decide_together_is_not_calculated_alone() -> None:
    """Uniform where one cell's noise is rare and the other's common: a pattern of probability 5e-5."""
    noise = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), 1.0)

    def function(rows: list[int]) -> list[int]:
        at = min(sum(min(max(r, 0), 20) for r in rows), 20)
        a, b = noise([at, at])
        if abs(a - at) > 9 and abs(b - at) <= 1:
            return [secrets.randbelow(221) - 100 for _ in "ab"]
        return [min(max(v, -100), 120) for v in (a, b)]

    obj = opaque(whole(), SYMMETRIC, PURE, function, lambda d: 20.0 * d)
    assert (
        audit(obj, 1, budget=replace(BRIEF, trace_seconds=2.0, seconds=0.2)).verdict
        == "not refuted"
    )
