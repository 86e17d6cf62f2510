"""Estimators that feel like scikit-learn's; needs the extra ``sklearn``."""

from opendp_sim.sklearn.budget import Budget
from opendp_sim.sklearn.cost import Cost, cost_of
from opendp_sim.sklearn.expected_failures import EXPECTED_FAILED_CHECKS, expected_failed_checks
from opendp_sim.sklearn.kernel_classifier import DPKernelClassifier
from opendp_sim.sklearn.kernel_density import DPKernelDensity
from opendp_sim.sklearn.logistic_regression import DPLogisticRegression
from opendp_sim.sklearn.nearest_centroid import DPNearestCentroid
from opendp_sim.sklearn.neighbors import DPKNeighborsClassifier
from opendp_sim.sklearn.one_class import DPOneClass
from opendp_sim.sklearn.refusals import (
    EstimatorRefused,
    InputRefused,
    InputTypeRefused,
    PlanRefused,
)
from opendp_sim.sklearn.ridge import DPRidge
from opendp_sim.sklearn.ridge_classifier import DPRidgeClassifier
from opendp_sim.sklearn.scaler import PublicScaler
from opendp_sim.sklearn.scoring import PrivateScore, private_score
from opendp_sim.sklearn.search import DPSearch

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
    "DPRidgeClassifier",
    "DPSearch",
    "EstimatorRefused",
    "InputRefused",
    "InputTypeRefused",
    "PlanRefused",
    "PrivateScore",
    "PublicScaler",
    "cost_of",
    "expected_failed_checks",
    "private_score",
]
