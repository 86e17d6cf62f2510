"""Noise has a law where its own construction names it: a map is a bound, and names no family and no scale."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from opendp_sim.audit.instrument.native_laws import Law, Laws
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.core import dp

WHOLE, REAL = dp.atom_domain(T=int), dp.atom_domain(T=float, nan=False)
DISTANCE, FLOAT = dp.absolute_distance(T=int), dp.absolute_distance(T=float)


def lap(scale: float) -> dp.Measurement:
    return dp.m.make_laplace(WHOLE, DISTANCE, scale)


def user(measure: dp.Measure, loss: float) -> dp.Measurement:
    noise = lap(40.0)
    return dp.m.make_user_measurement(WHOLE, DISTANCE, measure, noise, lambda d: d * loss)


def loose() -> dp.Measurement:
    same = dp.t.make_user_transformation(
        WHOLE, DISTANCE, WHOLE, DISTANCE, lambda v: v, lambda d: 2 * d
    )
    return same >> lap(20.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: dp.c.make_pureDP_to_zCDP(lap(20.0)),
        loose,
        lambda: user(dp.max_divergence(), 0.03),
        lambda: user(dp.zero_concentrated_divergence(), 0.03),
        lambda: dp.m.make_laplace(REAL, FLOAT, 10.0, k=-2),
        lambda: dp.m.make_geometric(WHOLE, DISTANCE, 10.0, bounds=(-5, 5)),
        lambda: dp.c.make_composition([lap(20.0), lap(20.0)]),
        lambda: lap(2.0**26),  # stops at the ends of 32 bits
    ],
)
def test_what_only_bounds_its_loss_has_no_law(make) -> None:
    made, laws = make(), Laws()
    assert [laws.of(made)[0] for _ in range(2)] == [None, None]


@pytest.mark.parametrize(
    ("make", "law"),
    [
        (lambda: lap(20.0), Law("laplace", 20.0, True, False, "i32")),
        (
            lambda: (WHOLE, DISTANCE) >> dp.m.then_gaussian(3.0),
            Law("gaussian", 3.0, True, False, "i32"),
        ),
        (lambda: dp.m.make_laplace(REAL, FLOAT, 10.0), Law("laplace", 10.0, False, False, "f64")),
        (
            lambda: dp.m.make_noise(WHOLE, DISTANCE, dp.zero_concentrated_divergence(), 4.0),
            Law("gaussian", 4.0, True, False, "i32"),
        ),
    ],
)
def test_a_constructor_names_the_law_that_its_releases_have(make, law: Law) -> None:
    """By 240 releases at zero and at 100, in a Kolmogorov-Smirnov test (false alarms: 1e-7 each)."""
    made, laws = make(), Laws()
    assert [laws.of(made) for _ in range(2)] == [(law, False), (law, True)]
    reference = law.reference(np.random.default_rng(3))
    for at in (0, 100):
        argument = at if law.whole else float(at)
        noise = [made(argument) - at for _ in range(240)]
        assert stats.ks_2samp(noise, reference).pvalue >= 1e-7


def test_noise_near_the_ends_of_its_type_is_no_shift() -> None:
    atom = dp.atom_domain(T="u32")
    noise = dp.m.make_laplace(atom, dp.absolute_distance(T="u32"), 5.0)
    tape = Tape(None, np.random.default_rng(0))
    law = tape.laws.of(noise)[0]
    assert law is not None
    assert [law.clear_of_ends(at) for at in (0, 299, 301, 2**31)] == [False, False, True, False]


def test_wide_normal_noise_is_imitated_without_a_list_of_its_values() -> None:
    noise = Law("gaussian", 1e12, True, False).scout(4000, np.random.default_rng(0))
    assert abs(np.std(noise) / 1e12 - 1) < 0.05
