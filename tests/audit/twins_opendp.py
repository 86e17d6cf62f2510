"""OpenDP 0.16's own constructors: sound ones as controls, and public defects as twins.

The twins are refuted blind by the sweep as well (``test_audit_opendp.py``); here they are fixed points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import opendp.prelude as dp

from opendp_sim.audit import Control, Twin

SYMMETRIC, INSERT_DELETE = dp.symmetric_distance(), dp.insert_delete_distance()
CHANGE_ONE, HAMMING = dp.change_one_distance(), dp.hamming_distance()


def ints(low: int = 0, high: int = 10, size: int | None = None) -> Any:
    return dp.vector_domain(dp.atom_domain(bounds=(low, high)), size=size)


def reals(low: float = 0.0, high: float = 10.0, size: int | None = None) -> Any:
    return dp.vector_domain(dp.atom_domain(bounds=(low, high), nan=False), size=size)


def free(kind: Any = int, size: int | None = None) -> Any:
    atom = dp.atom_domain(T=float, nan=False) if kind is float else dp.atom_domain(T=kind)
    return dp.vector_domain(atom, size=size)


def _control(name: str, make: Callable[[], Any], d_in: Any = 1, **options: Any) -> Control:
    return Control(name=f"opendp/{name}", make=make, d_in=d_in, options=options)


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
    _control("count", lambda: dp.t.make_count(free(), SYMMETRIC)),
    _control("count_strings", lambda: dp.t.make_count(free(str), SYMMETRIC)),
    _control("count_distinct", lambda: dp.t.make_count_distinct(free(), SYMMETRIC)),
    _control("count_by", lambda: dp.t.make_count_by(free(str), SYMMETRIC)),
    _control(
        "count_by_categories",
        lambda: dp.t.make_count_by_categories(free(str), SYMMETRIC, ["a", "b"]),
    ),
    _control(
        "count_by_categories_l2",
        lambda: dp.t.make_count_by_categories(
            free(str), SYMMETRIC, ["a", "b"], MO=dp.L2Distance[float]
        ),
    ),
    _control("clamp", lambda: dp.t.make_clamp(free(), SYMMETRIC, (0, 5))),
    _control("clamp_float", lambda: dp.t.make_clamp(free(float), SYMMETRIC, (0.0, 5.0))),
    _control("clamp_insert_delete", lambda: dp.t.make_clamp(free(), INSERT_DELETE, (0, 5))),
    _control("cast_default", lambda: dp.t.make_cast_default(free(str), SYMMETRIC, TOA=int)),
    _control(  # by itself neither it nor ``find`` gives Python anything: OpenDP has no list of options there
        "cast",
        lambda: dp.t.make_cast(free(str), SYMMETRIC, TOA=int) >> dp.t.then_impute_constant(0),
    ),
    _control("cast_inherent", lambda: dp.t.make_cast_inherent(free(int), SYMMETRIC, TOA=float)),
    _control("is_equal", lambda: dp.t.make_is_equal(free(str), SYMMETRIC, "a")),
    _control(
        "find",
        lambda: dp.t.make_find(free(str), SYMMETRIC, ["a", "b"]) >> dp.t.then_impute_constant(2),
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
        lambda: dp.t.make_cast(free(str), SYMMETRIC, TOA=int) >> dp.t.then_impute_constant(0),
    ),
    _control(
        "impute_uniform",
        lambda: dp.t.make_impute_uniform_float(
            dp.vector_domain(dp.atom_domain(T=float, nan=True)), SYMMETRIC, (0.0, 1.0)
        ),
    ),
]

MEASUREMENTS = [
    _control("laplace_count", lambda: dp.t.make_count(free(), SYMMETRIC) >> dp.m.then_laplace(1.0)),
    _control("laplace_sum", lambda: dp.t.make_sum(ints(), SYMMETRIC) >> dp.m.then_laplace(10.0)),
    _control("gaussian_sum", lambda: dp.t.make_sum(ints(), SYMMETRIC) >> dp.m.then_gaussian(10.0)),
    _control(
        "laplace_scalar_float",
        lambda: dp.m.make_laplace(
            dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), 1.0
        ),
        1.0,
    ),
    _control(
        "laplace_vector",
        lambda: dp.m.make_laplace(
            dp.vector_domain(dp.atom_domain(T=int), size=3), dp.l1_distance(T=int), 1.0
        ),
    ),
    _control(
        "gaussian_vector",
        lambda: dp.m.make_gaussian(
            dp.vector_domain(dp.atom_domain(T=int), size=3), dp.l2_distance(T=float), 1.0
        ),
        1.0,
    ),
    _control(
        "geometric_bounded",
        lambda: dp.m.make_geometric(
            dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0, bounds=(-5, 5)
        ),
    ),
    _control(
        "noisy_max",
        lambda: dp.m.make_noisy_max(
            dp.vector_domain(dp.atom_domain(T=int), size=4),
            dp.linf_distance(T=int),
            dp.max_divergence(),
            2.0,
        ),
    ),
    _control(
        "noisy_max_zcdp",
        lambda: dp.m.make_noisy_max(
            dp.vector_domain(dp.atom_domain(T=int), size=4),
            dp.linf_distance(T=int),
            dp.zero_concentrated_divergence(),
            2.0,
        ),
    ),
    _control("randomized_response", lambda: dp.m.make_randomized_response(["a", "b", "c"], 0.7)),
    _control("randomized_response_bool", lambda: dp.m.make_randomized_response_bool(0.75)),
    _control(
        "composition",
        lambda: dp.c.make_composition(
            [
                dp.t.make_count(free(), SYMMETRIC) >> dp.m.then_laplace(2.0),
                dp.t.make_count_distinct(free(), SYMMETRIC) >> dp.m.then_laplace(2.0),
            ]
        ),
    ),
    _control(
        "pure_as_zcdp",
        lambda: dp.c.make_pureDP_to_zCDP(
            dp.t.make_count(free(), SYMMETRIC) >> dp.m.then_laplace(1.0)
        ),
    ),
    _control(
        "zcdp_as_approx",
        lambda: dp.c.make_zCDP_to_approxDP(
            dp.t.make_count(free(), SYMMETRIC) >> dp.m.then_gaussian(1.0)
        ),
    ),
    _control(
        "fixed_delta",
        lambda: dp.c.make_fix_delta(
            dp.c.make_zCDP_to_approxDP(
                dp.t.make_count(free(), SYMMETRIC) >> dp.m.then_gaussian(1.0)
            ),
            1e-2,
        ),
    ),
    _control(
        "private_quantile",
        lambda: dp.m.make_private_quantile(
            free(), SYMMETRIC, dp.max_divergence(), candidates=[0, 3, 7], alpha=0.5, scale=2.0
        ),
    ),
]
CONTROLS = [*TRANSFORMATIONS, *MEASUREMENTS]
