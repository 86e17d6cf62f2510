"""Fit private softmax weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special
from sklearn.base import ClassifierMixin

from opendp_sim.sklearn._validation.bounds import box_of
from opendp_sim.sklearn._validation.facts import by_class
from opendp_sim.sklearn._validation.tables import dtype_of
from opendp_sim.sklearn.base import PrivateEstimator, all_or_nothing, estimator


@estimator
class DPLogisticRegression(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A softmax regression by noisy gradients (``linear_model``, ``predict``).

    A record whose label is not in ``classes``, or with a missing value, is left out, and values
    outside the bounds are clamped: by rules that look at that record alone. Noise has no seed.

    Args:
        delta: the delta at which epsilon is stated.
        bounds: public ``(low, high)`` of all columns, ``(lows, highs)``, or ``{column: (low, high)}``;
            unlike columns are each counted in their own range.
        data_norm: rows are shortened to this L2 norm. At least one of the two.
        classes: every label that could occur. A record with another label, or with a cell that is no
            number, is left out at fit without a word: that there is one is private.
        max_iter: noisy gradients; all together cost epsilon.
        size: a public guess of the number of records, or None.
        measure: ``gdp`` or ``zcdp``.

    Attributes:
        classes_: the public labels, sorted.
        n_iter_: ``max_iter``: every step is taken, whatever the data.
    """

    bounds: Any = None
    data_norm: float | None = None
    classes: Any = None
    max_iter: int = 64
    size: int | None = None

    @all_or_nothing
    def fit(self, X: Any, y: Any, groups: Any = None) -> DPLogisticRegression:
        """Release the weights.

        ``X`` (n, d), labels ``y`` (n,); ``groups`` (n,): whose each record is, with ``unit="groups"``.
        """
        array, labels, classes = self._labelled(X, y)
        width = array.shape[1]
        box = box_of(self.bounds, self.data_norm, width, self)
        columns = {
            "x": (array, box.column(dtype_of(array), width)),
            "label": classes.column(labels),
        }
        self._released(columns, box.steps(), groups, features="x", label="label")
        self.classes_, self.n_iter_ = classes.values, int(self.max_iter)
        return self

    def _release(self) -> dict[str, Any]:
        size = {} if self.size is None else {"size": self.size}
        return {"mechanism": {"linear_model": {"steps": self.max_iter, **size}}}

    def _scores(self, X: Any) -> NDArray[np.float64]:
        return self._ask("predict", X)["score"]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the logits, shape (q, L); for two classes their difference, (q,)."""
        return by_class(self._scores(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the model's probabilities, shape (q, L)."""
        return np.asarray(special.softmax(self._scores(X), axis=1))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest logit, shape (q,)."""
        label = self._scores(X).argmax(axis=1)
        return np.asarray(self.classes_[label])
