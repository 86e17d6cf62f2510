"""Classify by one private density a class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from opendp_sim.accounting.release.answers import Answers
from opendp_sim.sklearn._validation.bounds import box_of
from opendp_sim.sklearn._validation.facts import by_class, choice
from opendp_sim.sklearn._validation.kernel_backend import kernel_step
from opendp_sim.sklearn._validation.tables import dtype_of
from opendp_sim.sklearn.base import PrivateEstimator, all_or_nothing, estimator


@estimator
class DPKernelClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Predict the class with the largest private density.

    A sketch a class, ``classify``. A record whose label is not in ``classes``, or with a missing
    value, is left out, and values outside the bounds are clamped: by rules that look at that record
    alone. Noise has no seed.

    Args:
        bounds: public ``(low, high)`` of all columns, ``(lows, highs)``, or ``{column: (low, high)}``;
            unlike columns are each counted in their own range, and so is the bandwidth.
        data_norm: rows are shortened to this L2 norm. At least one of the two.
        classes: every label that could occur. A record with another label, or with a cell that is no
            number, is left out at fit without a word: that there is one is private.
        bandwidth: h of the kernel ``exp(-r**2 / (2 h**2))``.
        priors: ``uniform``, or ``empirical``: large classes weigh more.
        engine: ``gauss_transform`` (up to three columns), ``fourier``, ``race``, or ``auto``: the
            first under ``measure="pure"`` for ranges of over 9.9 bandwidths, else ``fourier``.
        n_components: frequencies, or hashes.
        random_state: seed of the public matrices; noise has none.

    Attributes:
        classes_: the public labels, sorted.
    """

    bounds: Any = None
    data_norm: float | None = None
    classes: Any = None
    bandwidth: float = 1.0
    priors: str = "uniform"
    engine: str = "auto"
    n_components: int = 2000
    random_state: int | None = 0

    @all_or_nothing
    def fit(self, X: Any, y: Any, groups: Any = None) -> DPKernelClassifier:
        """Release one density a class.

        ``X`` (n, d), labels ``y`` (n,); ``groups`` (n,): whose each record is, with ``unit="groups"``.
        """
        array, labels, classes = self._labelled(X, y)
        width = array.shape[1]
        choice("priors", self.priors, ("uniform", "empirical"))
        box = box_of(self.bounds, self.data_norm, width, self)
        step, self.engine_ = kernel_step(self, box, width, per_label=True)
        columns = {
            "x": (array, box.column(dtype_of(array), width)),
            "label": classes.column(labels),
        }
        self._released(columns, [*box.steps(), step], groups, features="x", label="label")
        self.classes_ = classes.values
        return self

    def _scores(self, X: Any) -> Answers:
        rule = "map" if self.priors == "empirical" else "max_likelihood"
        return self._ask("classify", X, rule=rule)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the densities, shape (q, L); for two classes their difference, (q,)."""
        return by_class(self._scores(X)["score"])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return each class's share of densities, shape (q, L).

        They are not calibrated. Noise can make a density negative; it then has no share. Where none is
        positive, all shares are equal.
        """
        mass = np.maximum(self._scores(X)["score"], 0.0)
        total = mass.sum(axis=1, keepdims=True)
        even = np.full_like(mass, 1.0 / mass.shape[1])
        return np.asarray(np.divide(mass, total, out=even, where=total > 0.0))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest density, shape (q,)."""
        label = self._scores(X)["label"]
        return np.asarray(self.classes_[label])
