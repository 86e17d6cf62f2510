"""List scikit-learn's checks that fail on purpose, with reasons.

For ``check_estimator(est, expected_failed_checks=EXPECTED_FAILED_CHECKS)`` and
``parametrize_with_checks([...], expected_failed_checks=expected_failed_checks)``.
"""

from __future__ import annotations

from typing import Any

_FRESH = "two fits are compared number by number; every fit draws fresh noise, which has no seed"
_PUBLIC = "classes are public input and never read from y"
_FORM = (
    "only the form of a table is looked at before the charge; a cell that cannot be read is missing"
)

EXPECTED_FAILED_CHECKS = {
    "check_classifier_data_not_an_array": _FRESH,
    "check_classifiers_classes": _PUBLIC,
    "check_classifiers_one_label": "that one label alone occurs is private",
    "check_classifiers_regression_target": _FORM,
    "check_classifiers_train": f"{_PUBLIC}: the shape of decision_function is theirs",
    "check_decision_proba_consistency": "one is a difference of densities, the other their shares",
    "check_dtype_object": _FORM,
    "check_estimators_empty_data_messages": "the number of records is private: none is one of them",
    "check_estimators_nan_inf": _FORM,
    "check_fit_idempotent": _FRESH,
    "check_regressor_data_not_an_array": _FRESH,
    "check_regressors_int": _FRESH,
    "check_supervised_y_2d": f"{_FRESH}; a column vector is taken without a warning",
    "check_supervised_y_no_nan": _FORM,
}
"""Name of the check to why it is failed."""


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    """Return the checks that an estimator fails on purpose.

    One with records cannot be pickled.
    """
    if not getattr(estimator, "charges_at_predict", False):
        return EXPECTED_FAILED_CHECKS
    return EXPECTED_FAILED_CHECKS | {
        "check_estimators_pickle": "a copy would hold the private records and spend the same purses"
    }
