"""Why every control of the corpus is sound: an exact law, or a proof that somebody can read.

``ARGUMENTS`` is looked up by the whole name first, then by the family. A control without an argument
fails ``test_every_control_has_an_argument``: "0 alarms" once counted a live defect of OpenDP as sound.
"""

from __future__ import annotations

from pathlib import Path

import opendp_sim

PACKAGE = Path(opendp_sim.__file__).parent

_LEMMA = "the lemma beside the mechanism; L1 prices its noiseless part exactly, L2 tests its noise"
_ONE_CELL = "one record moves one number by one"

ARGUMENTS = {
    # this package: lemma and two layers
    **dict.fromkeys(
        (
            "threshold_sketch",
            "moment_tree",
            "distance_tree",
            "moments_sketch",
            "slice_sketch",
            "l1_embedding",
            "distance",
            "interval_count",
            "nearest_class",
            "hybrid_knn",
            "fourier_sketch",
            "gauss_transform_sketch",
            "second_moments",
            "paired_projections",
            "exponential_sum",
            "regress",
            "ind_knn",
            "private_knn",
            "sensitivity",
            "select",
            "bound_contributions",
            "gaussian",
            "laplace",
            "bulk_gaussian",
            "bulk_laplace",
            "race_sketch",
            "quantize",
            "rescale",
            "clip_rows",
            "jl_projection",
            "fourier_features",
            "race",
            "fourier",
            "tree",
            "knn",
            "top",
            "noise",
            "density",
            "classify",
            "modes",
            "outliers",
            "sample",
            "stable_set",
            "peel",
            "choose_k",
            "stable_top_k",
            "limited_domain",
            "noise_threshold",
            "gated_peel",
            "vote_counts",
            "composition",
        ),
        _LEMMA,
    ),
    # textbook mechanisms on integer noise
    "classic/svt_1": "Dwork and Roth, theorem 3.23: threshold and queries noised, stops after one answer",
    "classic/svt_2_redraws": "Lyu, Su and Li, algorithm 2: the threshold's noise is drawn again, and paid for",
    "classic/noisy_max_1": "report noisy max, scale 2 / eps (Dwork and Roth, claim 3.9)",
    "classic/noisy_max_2": "exponential noise of scale 2 / eps (permute-and-flip's bound)",
    "classic/histogram": "one record moves one cell by one; integer Laplace of scale 1 / eps",
    "classic/parallel_laplace_split": "eps / k for each of k numbers; they add up to eps",
    # OpenDP
    **dict.fromkeys(
        (
            "opendp/sum_int",
            "opendp/sum_int_negative",
            "opendp/sum_int_insert_delete",
            "opendp/sum_int_sized",
            "opendp/sum_int_ordered",
            "opendp/sum_int_split",
            "opendp/sum_int_monotonic",
        ),
        "one record moves a saturating integer sum by at most the larger bound, or U - L when the size is known",
    ),
    **dict.fromkeys(
        ("opendp/sum_float_checked", "opendp/sum_float_ordered", "opendp/mean_float"),
        "OpenDP's proof charges the rounding of a float sum of the public size; L1 finds it unbroken",
    ),
    **dict.fromkeys(
        ("opendp/count", "opendp/count_strings", "opendp/count_distinct", "opendp/laplace_count"),
        _ONE_CELL,
    ),
    **dict.fromkeys(
        ("opendp/count_by", "opendp/count_by_categories", "opendp/count_by_categories_l2"),
        "one record moves one cell by one, in every norm",
    ),
    **dict.fromkeys(
        (
            "opendp/clamp",
            "opendp/clamp_float",
            "opendp/clamp_insert_delete",
            "opendp/cast_default",
            "opendp/cast",
            "opendp/cast_inherent",
            "opendp/is_equal",
            "opendp/find",
            "opendp/find_bin",
            "opendp/identity",
            "opendp/impute_constant",
            "opendp/impute_uniform",
        ),
        "a row map: each output row is a function of its own row (and of coins of its own)",
    ),
    "opendp/resize": "truncates or pads to a public size: one record moves at most two",
    "opendp/ordered_random": "forgets an order; Strassen's coupling shuffles both sides alike",
    "opendp/unordered": "forgets an order",
    **dict.fromkeys(
        (
            "opendp/metric_bounded_symmetric",
            "opendp/metric_unbounded",
            "opendp/metric_unbounded_hamming",
        ),
        "a change of one record is one removal and one insertion, and no order is kept that could shift",
    ),
    "opendp/quantile_scores": "the score is a linear form of two counts; one record moves either by one",
    "opendp/private_quantile": "quantile scores, then noisy max: composition of the two proofs",
    "opendp/laplace_sum": "a bounded integer sum, then integer Laplace with an exact map",
    "opendp/gaussian_sum": "a bounded integer sum, then the discrete Gaussian (Canonne, Kamath and Steinke)",
    "opendp/laplace_scalar_float": "noise on the grid of doubles, granularity charged by the map",
    "opendp/laplace_vector": "independent integer Laplace; an L1 distance costs its sum",
    "opendp/gaussian_vector": "independent discrete Gaussian; an L2 distance costs its square",
    "opendp/geometric_bounded": "integer Laplace, clamped afterwards: post-processing",
    "opendp/noisy_max": "exponential noise or Gumbel's exponential mechanism with a range distance",
    "opendp/noisy_max_zcdp": "the exponential mechanism is eps-bounded range: rho = eps^2 / 8",
    "opendp/randomized_response": "probabilities p and (1 - p) / (k - 1): enumerated exactly by L4's argument",
    "opendp/randomized_response_bool": "probabilities p and 1 - p",
    "opendp/composition": "two pure releases of one dataset: losses add up",
    "opendp/pure_as_zcdp": "rho = eps^2 / 2 (Bun and Steinke, proposition 1.4)",
    "opendp/zcdp_as_approx": "a profile of rho-zCDP by its Renyi curve",
    "opendp/fixed_delta": "one point of that profile",
    **dict.fromkeys(
        ("opendp/is_null", "opendp/drop_null", "opendp/drop_null_of_a_cast", "opendp/index"),
        "a row map, or one that leaves rows out by what they are: a row decides on its own row only",
    ),
    "opendp/lipschitz_float_mul": "a product with a constant, its rounding charged for the declared bounds",
    **dict.fromkeys(
        ("opendp/float_checked_sum", "opendp/float_ordered_sum"),
        "at most size_limit rows are added; OpenDP's proof charges their rounding; L1 finds it unbroken",
    ),
    **dict.fromkeys(
        (
            "opendp/sized_split_sum",
            "opendp/sized_checked_sum",
            "opendp/sized_ordered_sum",
            "opendp/sized_monotonic_sum",
        ),
        "one changed record of a public number of them moves an exact integer sum by at most U - L",
    ),
    "opendp/noise_pure": "integer Laplace with an exact map",
    "opendp/noise_zcdp": "the discrete Gaussian (Canonne, Kamath and Steinke)",
    "opendp/noisy_top_k": "k rounds of noisy max with exponential noise; scale pays for k",
    "opendp/noisy_top_k_zcdp": "k rounds of a bounded-range mechanism: rho = k eps^2 / 8",
    "opendp/canonical_noise": "the canonical noise of a tradeoff function (Awan and Vadhan)",
    "opendp/noisy_max_gumbel": "the exponential mechanism by Gumbel noise",
    "opendp/approximate": "a pure claim, with delta 0",
    "opendp/fixed_approximate": "one point of a profile, read as a profile",
    "opendp/basic_composition": "two pure releases of one dataset: losses add up",
}


def argument(name: str) -> str:
    """Return why a control is sound; nothing when nobody said."""
    family = name.split("/", 1)[0]
    own = next(iter(PACKAGE.rglob(f"{family}.md")), None)  # a lemma beside the mechanism
    return ARGUMENTS.get(name) or ARGUMENTS.get(family) or (_LEMMA if own else "")
