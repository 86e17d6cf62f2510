"""scikit-learn's own checks: a slice of them here, all of them with ``-m deep``."""

from __future__ import annotations

import warnings

import pytest
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from opendp_sim import sklearn as face

CLASSES = {"bounds": (-10, 10), "classes": [0, 1, 2, 3]}
ESTIMATORS = [
    face.DPNearestCentroid(**CLASSES, epsilon=1e6),
    face.DPKernelClassifier(**CLASSES, epsilon=1e6, bandwidth=2.0),
    face.DPLogisticRegression(**CLASSES, epsilon=100.0, max_iter=4),
    face.DPKernelDensity(bounds=(-10, 10)),
    face.DPOneClass(bounds=(-10, 10), threshold=0.1, epsilon=1000.0),
    face.DPRidge(bounds=(-10, 10), y_bounds=(-10, 10), epsilon=1e6),
    face.DPKNeighborsClassifier(
        **CLASSES, epsilon=1e5, threshold=0.5, queries=10_000, allow_scoring=True
    ),
    face.PublicScaler(bounds=(-10, 10)),
]
FAST = {
    "check_do_not_raise_errors_in_init_or_set_param",
    "check_dict_unchanged",
    "check_dont_overwrite_attributes",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_estimators_unfitted",
    "check_fit2d_predict1d",
    "check_n_features_in_after_fitting",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
}
"""One fit each at most, and what a pipeline or a search stands on."""


@pytest.mark.few(4)
@pytest.mark.parametrize("est", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_a_slice_of_the_checks(est):
    ran = set()
    for copied, check in estimator_checks_generator(est, legacy=True):
        name = getattr(check, "func", check).__name__
        if name in FAST - face.expected_failed_checks(est).keys() and name not in ran:
            ran.add(name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(copied)
    assert len(ran) >= 9


@pytest.mark.deep
@pytest.mark.parametrize("est", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.filterwarnings("ignore")
def test_all_checks_pass_or_are_failed_for_a_reason(est):
    found = check_estimator(
        est, expected_failed_checks=face.expected_failed_checks(est), on_fail=None, on_skip=None
    )
    assert [r["check_name"] for r in found if r["status"] == "failed"] == []
