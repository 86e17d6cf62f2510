"""Estimators that feel like scikit-learn's; needs the extra ``sklearn``.

Its modules are imported when a name of theirs is first used: a budget alone needs no scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opendp_sim.core.system.lazy_import import door

if TYPE_CHECKING:
    from opendp_sim.sklearn._validation.refusals import (
        EstimatorRefused,
        InputRefused,
        InputTypeRefused,
        PlanRefused,
    )
    from opendp_sim.sklearn.base import NoiseDecidesWarning
    from opendp_sim.sklearn.budget import Budget
    from opendp_sim.sklearn.expected_failures import EXPECTED_FAILED_CHECKS, expected_failed_checks
    from opendp_sim.sklearn.kernel_density import DPKernelDensity
    from opendp_sim.sklearn.linear_model import DPKernelClassifier, DPLogisticRegression, DPRidge
    from opendp_sim.sklearn.metrics import PrivateScore, private_score
    from opendp_sim.sklearn.model_selection import Cost, DPSearch, HashFold, cost_of, make_pipeline
    from opendp_sim.sklearn.nearest_centroid import DPNearestCentroid
    from opendp_sim.sklearn.neighbors import DPKNeighborsClassifier
    from opendp_sim.sklearn.one_class import DPOneClass
    from opendp_sim.sklearn.preprocessing import PublicScaler

__all__ = [
    "EXPECTED_FAILED_CHECKS",
    "Budget",
    "Cost",
    "DPKNeighborsClassifier",
    "DPKernelClassifier",
    "DPKernelDensity",
    "DPLogisticRegression",
    "DPNearestCentroid",
    "DPOneClass",
    "DPRidge",
    "DPSearch",
    "EstimatorRefused",
    "HashFold",
    "InputRefused",
    "InputTypeRefused",
    "NoiseDecidesWarning",
    "PlanRefused",
    "PrivateScore",
    "PublicScaler",
    "cost_of",
    "expected_failed_checks",
    "make_pipeline",
    "private_score",
]

_found = door(
    __name__,
    {
        "_validation.refusals": "EstimatorRefused InputRefused InputTypeRefused PlanRefused",
        "base": "NoiseDecidesWarning",
        "budget": "Budget",
        "expected_failures": "EXPECTED_FAILED_CHECKS expected_failed_checks",
        "kernel_density": "DPKernelDensity",
        "linear_model": "DPKernelClassifier DPLogisticRegression DPRidge",
        "metrics": "PrivateScore private_score",
        "model_selection": "Cost DPSearch HashFold cost_of make_pipeline",
        "nearest_centroid": "DPNearestCentroid",
        "neighbors": "DPKNeighborsClassifier",
        "one_class": "DPOneClass",
        "preprocessing": "PublicScaler",
    },
)


def __getattr__(name: str) -> Any:
    try:
        return _found(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        text = f"{name} needs scikit-learn: pip install 'opendp_sim[sklearn]'."
        raise ModuleNotFoundError(text, name="sklearn") from None


def __dir__() -> list[str]:
    return __all__
