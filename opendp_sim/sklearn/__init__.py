"""Estimators that feel like scikit-learn's; needs the extra ``sklearn``.

Its modules are imported when a name of theirs is first used: a budget alone needs no scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    from opendp_sim.sklearn.linear_model import DPLogisticRegression, DPRidge
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

_WHERE = {
    "Budget": "budget",
    "Cost": "model_selection",
    "DPKNeighborsClassifier": "neighbors",
    "DPKernelClassifier": "linear_model",
    "DPKernelDensity": "kernel_density",
    "DPLogisticRegression": "linear_model",
    "DPNearestCentroid": "nearest_centroid",
    "DPOneClass": "one_class",
    "DPRidge": "linear_model",
    "DPSearch": "model_selection",
    "EXPECTED_FAILED_CHECKS": "expected_failures",
    "EstimatorRefused": "_validation.refusals",
    "HashFold": "model_selection",
    "InputRefused": "_validation.refusals",
    "InputTypeRefused": "_validation.refusals",
    "NoiseDecidesWarning": "base",
    "PlanRefused": "_validation.refusals",
    "PrivateScore": "metrics",
    "PublicScaler": "preprocessing",
    "cost_of": "model_selection",
    "expected_failed_checks": "expected_failures",
    "make_pipeline": "model_selection",
    "private_score": "metrics",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"opendp_sim.sklearn has no {name!r}; it offers {', '.join(__all__)}")
    try:
        module = import_module(f"{__name__}.{_WHERE[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        text = f"{name} needs scikit-learn: pip install 'opendp_sim[sklearn]'."
        raise ModuleNotFoundError(text, name="sklearn") from None
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return __all__
