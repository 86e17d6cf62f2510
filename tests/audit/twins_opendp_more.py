"""Further constructors of OpenDP 0.16: sized sums, nulls, noise by measure, rank, canonical noise, casts of claims."""

from __future__ import annotations

import warnings
from typing import Any

import opendp.prelude as dp

from opendp_sim.audit import Control, Twin

SYMMETRIC = dp.symmetric_distance()
TEXTS, WHOLE = dp.vector_domain(dp.atom_domain(T=str)), dp.vector_domain(dp.atom_domain(T=int))
NULLS = dp.vector_domain(dp.atom_domain(T=float, nan=True))
NUMBER = dp.atom_domain(T=int), dp.absolute_distance(T=int)
REAL = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
SCORES = dp.vector_domain(dp.atom_domain(T=int), size=4), dp.linf_distance(T=int)
PURE, ZCDP, APPROX = (
    dp.max_divergence(),
    dp.zero_concentrated_divergence(),
    dp.approximate(dp.max_divergence()),
)


def _count() -> Any:
    return dp.t.make_count(WHOLE, SYMMETRIC)


def _basic() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the name is old, and still offered
        return dp.c.make_basic_composition([_count() >> dp.m.then_laplace(2.0)] * 2)


def _approximate() -> Any:
    noisy = dp.c.make_zCDP_to_approxDP(_count() >> dp.m.then_gaussian(1.0))
    return dp.c.make_fixed_approxDP_to_approxDP(dp.c.make_fix_delta(noisy, 1e-2))


TWINS = [
    Twin(
        name="opendp/noise_threshold",
        why="as laplace_threshold: counts equal to the threshold are released and not in delta",
        make=lambda: (
            dp.t.make_count_by(TEXTS, SYMMETRIC) >> dp.m.then_noise_threshold(APPROX, 1.0, 2)
        ),
        options={"pairs": [(["a"], [])]},
    )
]


def _gumbel() -> Any:
    """OpenDP 0.16 calls it deprecated; it is still what people run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return dp.m.make_report_noisy_max_gumbel(*SCORES, 2.0)


_MADE: dict[str, tuple[Any, Any]] = {
    "is_null": (lambda: dp.t.make_is_null(NULLS, SYMMETRIC), 1),
    "drop_null": (lambda: dp.t.make_drop_null(NULLS, SYMMETRIC), 1),
    "drop_null_of_a_cast": (
        lambda: dp.t.make_cast(TEXTS, SYMMETRIC, TOA=int) >> dp.t.then_drop_null(),
        1,
    ),
    "index": (
        lambda: (
            dp.t.make_find(TEXTS, SYMMETRIC, ["a", "b"])
            >> dp.t.then_impute_constant(2)
            >> dp.t.then_index(["x", "y"], "z")
        ),
        1,
    ),
    "lipschitz_float_mul": (lambda: dp.t.make_lipschitz_float_mul(*REAL, 2.0, (-10.0, 10.0)), 1.0),
    "float_checked_sum": (lambda: dp.t.make_bounded_float_checked_sum(8, (0.0, 10.0)), 1),
    "float_ordered_sum": (lambda: dp.t.make_bounded_float_ordered_sum(8, (0.0, 10.0)), 1),
    "sized_split_sum": (lambda: dp.t.make_sized_bounded_int_split_sum(5, (-5, 10)), 2),
    "sized_checked_sum": (lambda: dp.t.make_sized_bounded_int_checked_sum(5, (0, 10)), 2),
    "sized_ordered_sum": (lambda: dp.t.make_sized_bounded_int_ordered_sum(5, (0, 10)), 2),
    "sized_monotonic_sum": (lambda: dp.t.make_sized_bounded_int_monotonic_sum(5, (0, 10)), 2),
    "noise_pure": (lambda: dp.m.make_noise(*NUMBER, PURE, 1.0), 1),
    "noise_zcdp": (lambda: dp.m.make_noise(*NUMBER, ZCDP, 1.0), 1),
    "noisy_top_k": (lambda: dp.m.make_noisy_top_k(*SCORES, PURE, k=2, scale=4.0), 1),
    "noisy_top_k_zcdp": (lambda: dp.m.make_noisy_top_k(*SCORES, ZCDP, k=2, scale=4.0), 1),
    "canonical_noise": (lambda: dp.m.make_canonical_noise(*REAL, 1.0, (1.0, 1e-2)), 1.0),
    "noisy_max_gumbel": (_gumbel, 1),
    "approximate": (lambda: dp.c.make_approximate(_count() >> dp.m.then_laplace(1.0)), 1),
    "fixed_approximate": (_approximate, 1),
    "basic_composition": (_basic, 1),
}
CONTROLS = [Control(name=f"opendp/{name}", make=make, d_in=d) for name, (make, d) in _MADE.items()]
