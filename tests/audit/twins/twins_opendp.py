"""OpenDP 0.16's own constructors: sound ones as controls, and public defects as twins.

The twins are refuted blind by the sweep as well (``test_audit_opendp.py``); here they are fixed points.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import opendp.prelude as dp

from tests.audit.twins.entries import Control, Twin

SYMMETRIC, INSERT_DELETE = dp.symmetric_distance(), dp.insert_delete_distance()
CHANGE_ONE, HAMMING = dp.change_one_distance(), dp.hamming_distance()


TEXTS, THREE = (
    dp.vector_domain(dp.atom_domain(T=str)),
    dp.vector_domain(dp.atom_domain(T=int), size=3),
)
NULLS = dp.vector_domain(dp.atom_domain(T=float, nan=True))
NUMBER = dp.atom_domain(T=int), dp.absolute_distance(T=int)
REAL = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
SCORES = dp.vector_domain(dp.atom_domain(T=int), size=4), dp.linf_distance(T=int)
PURE, ZCDP, APPROX = (
    dp.max_divergence(),
    dp.zero_concentrated_divergence(),
    dp.approximate(dp.max_divergence()),
)


def ints(low: int = 0, high: int = 10, size: int | None = None) -> Any:
    return dp.vector_domain(dp.atom_domain(bounds=(low, high)), size=size)


def reals(low: float = 0.0, high: float = 10.0, size: int | None = None) -> Any:
    return dp.vector_domain(dp.atom_domain(bounds=(low, high), nan=False), size=size)


def free(kind: Any = int, size: int | None = None) -> Any:
    atom = dp.atom_domain(T=float, nan=False) if kind is float else dp.atom_domain(T=kind)
    return dp.vector_domain(atom, size=size)


def _control(name: str, make: Callable[[], Any], d_in: Any = 1, **options: Any) -> Control:
    return Control(name=f"opendp/{name}", make=make, d_in=d_in, options=options)


def _count() -> Any:
    return dp.t.make_count(free(), SYMMETRIC)


def _basic() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the name is old, and still offered
        return dp.c.make_basic_composition([_count() >> dp.m.then_laplace(2.0)] * 2)


def _profile() -> Any:
    return dp.c.make_zCDP_to_approxDP(_count() >> dp.m.then_gaussian(1.0))


def _approximate() -> Any:
    return dp.c.make_fixed_approxDP_to_approxDP(dp.c.make_fix_delta(_profile(), 1e-2))


def _gumbel() -> Any:
    """OpenDP 0.16 calls it deprecated; it is still what people run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return dp.m.make_report_noisy_max_gumbel(*SCORES, 2.0)


FAR = 2.0**50

TWINS = [
    Twin(
        name="opendp/laplace_threshold",
        why="noisy counts equal to the threshold are released; the map's delta counts those above it",
        make=lambda: (
            dp.t.make_count_by(free(str), SYMMETRIC) >> dp.m.then_laplace_threshold(1.0, 2)
        ),
    ),
    Twin(
        name="opendp/metric_bounded",
        d_in=2,
        why="insert-delete to Hamming: one move shifts all between",
        make=lambda: dp.t.make_metric_bounded(free(size=5), INSERT_DELETE),
    ),
    Twin(
        name="opendp/sum_of_squared_deviations",
        d_in=2,
        why="rounding of the mean is ignored",
        make=lambda: dp.t.make_sum_of_squared_deviations(reals(FAR, FAR + 1, 1024), SYMMETRIC),
    ),
    Twin(
        name="opendp/variance",
        d_in=2,
        why="rounding of the mean is ignored",
        make=lambda: dp.t.make_variance(reals(FAR, FAR + 1, 1024), SYMMETRIC),
    ),
    Twin(
        name="opendp/b_ary_tree",
        why="32-bit sums of a node's children wrap around",
        make=lambda: dp.t.make_b_ary_tree(
            dp.vector_domain(dp.atom_domain(T=int), size=4),
            dp.l1_distance(T=int),
            leaf_count=4,
            branching_factor=2,
        ),
    ),
    Twin(
        name="opendp/noise_threshold",
        why="as laplace_threshold: counts equal to the threshold are released and not in delta",
        make=lambda: (
            dp.t.make_count_by(TEXTS, SYMMETRIC) >> dp.m.then_noise_threshold(APPROX, 1.0, 2)
        ),
        options={"pairs": [(["a"], [])]},
    ),
]

TRANSFORMATIONS = [
    _control("sum_int", lambda: dp.t.make_sum(ints(), SYMMETRIC)),
    _control("sum_int_negative", lambda: dp.t.make_sum(ints(-7, 5), SYMMETRIC)),
    _control("sum_int_insert_delete", lambda: dp.t.make_sum(ints(), INSERT_DELETE)),
    _control("sum_int_sized", lambda: dp.t.make_sum(ints(size=6), SYMMETRIC), 2),
    _control("sum_int_ordered", lambda: dp.t.make_bounded_int_ordered_sum((0, 10))),
    _control("sum_int_split", lambda: dp.t.make_bounded_int_split_sum((-5, 10))),
    _control("sum_int_monotonic", lambda: dp.t.make_bounded_int_monotonic_sum((0, 10))),
    _control(
        "sum_float_checked", lambda: dp.t.make_sized_bounded_float_checked_sum(5, (0.0, 10.0)), 2
    ),
    _control(
        "sum_float_ordered", lambda: dp.t.make_sized_bounded_float_ordered_sum(5, (0.0, 10.0)), 2
    ),
    _control("mean_float", lambda: dp.t.make_mean(reals(size=5), SYMMETRIC), 2),
    _control("count", _count),
    _control("count_strings", lambda: dp.t.make_count(TEXTS, SYMMETRIC)),
    _control("count_distinct", lambda: dp.t.make_count_distinct(free(), SYMMETRIC)),
    _control("count_by", lambda: dp.t.make_count_by(TEXTS, SYMMETRIC)),
    _control(
        "count_by_categories", lambda: dp.t.make_count_by_categories(TEXTS, SYMMETRIC, ["a", "b"])
    ),
    _control(
        "count_by_categories_l2",
        lambda: dp.t.make_count_by_categories(
            TEXTS, SYMMETRIC, ["a", "b"], MO=dp.L2Distance[float]
        ),
    ),
    _control("clamp", lambda: dp.t.make_clamp(free(), SYMMETRIC, (0, 5))),
    _control("clamp_float", lambda: dp.t.make_clamp(free(float), SYMMETRIC, (0.0, 5.0))),
    _control("clamp_insert_delete", lambda: dp.t.make_clamp(free(), INSERT_DELETE, (0, 5))),
    _control("cast_default", lambda: dp.t.make_cast_default(TEXTS, SYMMETRIC, TOA=int)),
    _control(  # by itself neither it nor ``find`` gives Python anything: OpenDP has no list of options there
        "cast", lambda: dp.t.make_cast(TEXTS, SYMMETRIC, TOA=int) >> dp.t.then_impute_constant(0)
    ),
    _control("cast_inherent", lambda: dp.t.make_cast_inherent(free(int), SYMMETRIC, TOA=float)),
    _control("is_equal", lambda: dp.t.make_is_equal(TEXTS, SYMMETRIC, "a")),
    _control(
        "find", lambda: dp.t.make_find(TEXTS, SYMMETRIC, ["a", "b"]) >> dp.t.then_impute_constant(2)
    ),
    _control("find_bin", lambda: dp.t.make_find_bin(free(float), SYMMETRIC, [0.0, 1.0, 5.0])),
    _control("identity", lambda: dp.t.make_identity(free(), SYMMETRIC)),
    _control("resize", lambda: dp.t.make_resize(ints(), SYMMETRIC, size=4, constant=0)),
    _control("ordered_random", lambda: dp.t.make_ordered_random(free(), SYMMETRIC)),
    _control("unordered", lambda: dp.t.make_unordered(free(), INSERT_DELETE)),
    _control(
        "metric_bounded_symmetric", lambda: dp.t.make_metric_bounded(free(size=5), SYMMETRIC), 2
    ),
    _control("metric_unbounded", lambda: dp.t.make_metric_unbounded(free(size=5), CHANGE_ONE)),
    _control("metric_unbounded_hamming", lambda: dp.t.make_metric_unbounded(free(size=5), HAMMING)),
    _control(
        "quantile_scores",
        lambda: dp.t.make_quantile_score_candidates(
            free(), SYMMETRIC, candidates=[0, 3, 7], alpha=0.5
        ),
    ),
    _control(
        "impute_constant",
        lambda: dp.t.make_cast(TEXTS, SYMMETRIC, TOA=int) >> dp.t.then_impute_constant(0),
    ),
    _control(
        "impute_uniform", lambda: dp.t.make_impute_uniform_float(NULLS, SYMMETRIC, (0.0, 1.0))
    ),
]

MEASUREMENTS = [
    _control("laplace_count", lambda: _count() >> dp.m.then_laplace(1.0)),
    _control("laplace_sum", lambda: dp.t.make_sum(ints(), SYMMETRIC) >> dp.m.then_laplace(10.0)),
    _control("gaussian_sum", lambda: dp.t.make_sum(ints(), SYMMETRIC) >> dp.m.then_gaussian(10.0)),
    _control("laplace_scalar_float", lambda: dp.m.make_laplace(*REAL, 1.0), 1.0),
    _control("laplace_vector", lambda: dp.m.make_laplace(THREE, dp.l1_distance(T=int), 1.0)),
    _control(
        "gaussian_vector", lambda: dp.m.make_gaussian(THREE, dp.l2_distance(T=float), 1.0), 1.0
    ),
    _control("geometric_bounded", lambda: dp.m.make_geometric(*NUMBER, 1.0, bounds=(-5, 5))),
    _control("noisy_max", lambda: dp.m.make_noisy_max(*SCORES, PURE, 2.0)),
    _control("noisy_max_zcdp", lambda: dp.m.make_noisy_max(*SCORES, ZCDP, 2.0)),
    _control("randomized_response", lambda: dp.m.make_randomized_response(["a", "b", "c"], 0.7)),
    _control("randomized_response_bool", lambda: dp.m.make_randomized_response_bool(0.75)),
    _control(
        "composition",
        lambda: dp.c.make_composition(
            [
                _count() >> dp.m.then_laplace(2.0),
                dp.t.make_count_distinct(free(), SYMMETRIC) >> dp.m.then_laplace(2.0),
            ]
        ),
    ),
    _control("pure_as_zcdp", lambda: dp.c.make_pureDP_to_zCDP(_count() >> dp.m.then_laplace(1.0))),
    _control("zcdp_as_approx", _profile),
    _control("fixed_delta", lambda: dp.c.make_fix_delta(_profile(), 1e-2)),
    _control(
        "private_quantile",
        lambda: dp.m.make_private_quantile(
            free(), SYMMETRIC, PURE, candidates=[0, 3, 7], alpha=0.5, scale=2.0
        ),
    ),
]
FURTHER = [
    _control("is_null", lambda: dp.t.make_is_null(NULLS, SYMMETRIC)),
    _control("drop_null", lambda: dp.t.make_drop_null(NULLS, SYMMETRIC)),
    _control(
        "drop_null_of_a_cast",
        lambda: dp.t.make_cast(TEXTS, SYMMETRIC, TOA=int) >> dp.t.then_drop_null(),
    ),
    _control(
        "index",
        lambda: (
            dp.t.make_find(TEXTS, SYMMETRIC, ["a", "b"])
            >> dp.t.then_impute_constant(2)
            >> dp.t.then_index(["x", "y"], "z")
        ),
    ),
    _control(
        "lipschitz_float_mul", lambda: dp.t.make_lipschitz_float_mul(*REAL, 2.0, (-10.0, 10.0)), 1.0
    ),
    _control("float_checked_sum", lambda: dp.t.make_bounded_float_checked_sum(8, (0.0, 10.0))),
    _control("float_ordered_sum", lambda: dp.t.make_bounded_float_ordered_sum(8, (0.0, 10.0))),
    _control("sized_split_sum", lambda: dp.t.make_sized_bounded_int_split_sum(5, (-5, 10)), 2),
    _control("sized_checked_sum", lambda: dp.t.make_sized_bounded_int_checked_sum(5, (0, 10)), 2),
    _control("sized_ordered_sum", lambda: dp.t.make_sized_bounded_int_ordered_sum(5, (0, 10)), 2),
    _control(
        "sized_monotonic_sum", lambda: dp.t.make_sized_bounded_int_monotonic_sum(5, (0, 10)), 2
    ),
    _control("noise_pure", lambda: dp.m.make_noise(*NUMBER, PURE, 1.0)),
    _control("noise_zcdp", lambda: dp.m.make_noise(*NUMBER, ZCDP, 1.0)),
    _control("noisy_top_k", lambda: dp.m.make_noisy_top_k(*SCORES, PURE, k=2, scale=4.0)),
    _control("noisy_top_k_zcdp", lambda: dp.m.make_noisy_top_k(*SCORES, ZCDP, k=2, scale=4.0)),
    _control("canonical_noise", lambda: dp.m.make_canonical_noise(*REAL, 1.0, (1.0, 1e-2)), 1.0),
    _control("noisy_max_gumbel", _gumbel),
    _control("approximate", lambda: dp.c.make_approximate(_count() >> dp.m.then_laplace(1.0))),
    _control("fixed_approximate", _approximate),
    _control("basic_composition", _basic),
]
CONTROLS = [*TRANSFORMATIONS, *MEASUREMENTS, *FURTHER]
