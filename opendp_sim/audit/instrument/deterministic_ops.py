"""List OpenDP's transformations that draw nothing.

Any other one may draw. ``make_resize`` chooses records by chance where there are too many,
``make_ordered_random`` and ``make_bounded_float_checked_sum`` shuffle, ``make_impute_uniform_float``
draws what it fills in. A map of OpenDP's has a new random order at every call: ``make_count_by`` makes
one, and a mapping that is handed to OpenDP's object, by Python or by a user's function, becomes one.
"""

from __future__ import annotations

from typing import Any

OF_A_USER = "make_user_transformation"
_CHAIN = "make_chain_tt"
_MAP = "HashMap"
"""How OpenDP names the type of a map, alone or in another type."""
_NOTHING = frozenset(
    f"make_{name}"
    for name in (
        *("b_ary_tree", "consistent_b_ary_tree", "quantile_score_candidates", "cdf"),
        *("quantiles_from_counts", "cast", "cast_default", "cast_inherent", "clamp", "identity"),
        *("count", "count_by_categories", "count_distinct", "drop_null", "find"),
        *("find_bin", "index", "is_equal", "is_null", "impute_constant", "lipschitz_float_mul"),
        *("sum", "mean", "variance", "sum_of_squared_deviations", "metric_bounded"),
        *("metric_unbounded", "unordered", "select_column", "subset_by", "df_cast_default"),
        *("df_is_equal", "split_dataframe", "split_lines", "split_records", "create_dataframe"),
        *("bounded_int_monotonic_sum", "bounded_int_ordered_sum", "bounded_int_split_sum"),
        *("sized_bounded_int_monotonic_sum", "sized_bounded_int_ordered_sum"),
        *("sized_bounded_int_split_sum", "sized_bounded_int_checked_sum"),
        *("sized_bounded_float_checked_sum", "sized_bounded_float_ordered_sum"),
    )
)


def made_by(made: Any) -> tuple[str, dict[str, Any]]:
    """Return the constructor and arguments in OpenDP's record of an object."""
    told = getattr(made, "__opendp_dict__", None)
    told = told if isinstance(told, dict) else {}
    return str(told.get("__function__")), told.get("__kwargs__", {})


def has_maps(made: Any) -> bool:
    """Return whether an object takes or returns OpenDP's unordered maps."""
    sides = (getattr(made, f"{side}_domain", None) for side in ("input", "output"))
    types = [getattr(side, "carrier_type", "") for side in sides]
    return any(_MAP in str(kind) for kind in (*types, made_by(made)[1].get("TO")))


def draws_nothing(made: Any) -> bool:
    """Return whether a transformation draws nothing, not even an order."""
    name, parts = made_by(made)
    if name == _CHAIN:
        return all(draws_nothing(parts[f"transformation{i}"]) for i in (0, 1))
    return (name in _NOTHING or name == OF_A_USER) and not has_maps(made)
