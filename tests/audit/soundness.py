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


def _of(names: str, why: str) -> dict[str, str]:
    return {f"opendp/{name}": why for name in names.split()}


ARGUMENTS = {
    # this package, where no page is named after the family: lemma and two layers
    **dict.fromkeys(
        ["bulk_gaussian", "bulk_laplace", "composition", "knn", "noise", "race", "sensitivity"],
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
    **_of(
        "sum_int sum_int_negative sum_int_insert_delete sum_int_sized sum_int_ordered sum_int_split sum_int_monotonic",
        "one record moves a saturating integer sum by at most the larger bound, or U - L when the size is known",
    ),
    **_of(
        "sum_float_checked sum_float_ordered mean_float",
        "OpenDP's proof charges the rounding of a float sum of the public size; L1 finds it unbroken",
    ),
    **_of("count count_strings count_distinct laplace_count", _ONE_CELL),
    **_of(
        "count_by count_by_categories count_by_categories_l2",
        "one record moves one cell by one, in every norm",
    ),
    **_of(
        "clamp clamp_float clamp_insert_delete cast_default cast cast_inherent is_equal find find_bin identity impute_constant impute_uniform",
        "a row map: each output row is a function of its own row (and of coins of its own)",
    ),
    "opendp/resize": "truncates or pads to a public size: one record moves at most two",
    "opendp/ordered_random": "forgets an order; Strassen's coupling shuffles both sides alike",
    "opendp/unordered": "forgets an order",
    **_of(
        "metric_bounded_symmetric metric_unbounded metric_unbounded_hamming",
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
    **_of(
        "is_null drop_null drop_null_of_a_cast index",
        "a row map, or one that leaves rows out by what they are: a row decides on its own row only",
    ),
    "opendp/lipschitz_float_mul": "a product with a constant, its rounding charged for the declared bounds",
    **_of(
        "float_checked_sum float_ordered_sum",
        "at most size_limit rows are added; OpenDP's proof charges their rounding; L1 finds it unbroken",
    ),
    **_of(
        "sized_split_sum sized_checked_sum sized_ordered_sum sized_monotonic_sum",
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
