"""Classify by private class means."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from opendp_sim.core.arithmetic.class_means import ShrunkMeans
from opendp_sim.postprocessing.modes import points_of
from opendp_sim.sklearn._validation.bounds import box_of
from opendp_sim.sklearn._validation.facts import by_class, choice
from opendp_sim.sklearn._validation.tables import dtype_of
from opendp_sim.sklearn.base import PrivateEstimator, all_or_nothing, estimator


@estimator
class DPNearestCentroid(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Predict the class whose private mean is nearest (``moments_sketch``, ``nearest_class``).

    A record whose label is not in ``classes``, or with a missing value, is left out, and values
    outside the bounds are clamped: by rules that look at that record alone. Noise has no seed.

    Args:
        bounds: public ``(low, high)`` of all columns, ``(lows, highs)``, or ``{column: (low, high)}``;
            unlike columns are each counted in their own range.
        data_norm: rows are shortened to this L2 norm; noise grows with it. At least one of the two.
        classes: every label that could occur. A record with another label, or with a cell that is no
            number, is left out at fit without a word: that there is one is private.
        priors: ``uniform``, or ``empirical``: large classes win close calls.

    Attributes:
        classes_: the public labels, sorted.
        centroids_: shape (L, d), the private means in data units, shrunk as far as noise asks.

    Example:
        >>> import numpy as np
        >>> X = np.array([[0.0, 0.0]] * 500 + [[1.0, 1.0]] * 500)
        >>> y = np.array(["a"] * 500 + ["b"] * 500)
        >>> clf = DPNearestCentroid(epsilon=2.0, bounds=(0, 1), classes=["a", "b"]).fit(X, y)
        >>> clf.predict([[0.1, 0.1], [0.9, 0.9]]).tolist()
        ['a', 'b']
    """

    bounds: Any = None
    data_norm: float | None = None
    classes: Any = None
    priors: str = "uniform"

    @all_or_nothing
    def fit(self, X: Any, y: Any, groups: Any = None) -> DPNearestCentroid:
        """Release the class means.

        ``X`` (n, d), labels ``y`` (n,); ``groups`` (n,): whose each record is, with ``unit="groups"``.
        """
        array, labels, classes = self._labelled(X, y)
        box = box_of(self.bounds, self.data_norm, array.shape[1], self)
        empirical = choice("priors", self.priors, ("uniform", "empirical")) == "empirical"
        columns = {
            "x": (array, box.column(dtype_of(array), array.shape[1])),
            "label": classes.column(labels),
        }
        sketch = {"moments_sketch": {"per_label": True, "squares": empirical}}
        self._released(columns, [*box.steps(), sketch], groups, features="x", label="label")
        self.classes_ = classes.values
        self.centroids_ = self._centroids()
        return self

    def _centroids(self) -> NDArray[np.float64]:
        released = self.release_.released
        offer: Any = released.capability("class_means", "centroids_")
        means = ShrunkMeans.of(offer.class_sums(self.release_.arrays, released.deviation))
        return np.asarray(points_of("centroids_", released)(means.means + means.centre))

    def _scores(self, X: Any) -> Any:
        prior = "released" if self.priors == "empirical" else "none"
        return self._ask("nearest_class", X, prior=prior)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return minus the squared distances, (q, L), or a difference (q,)."""
        return by_class(self._scores(X)["score"])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return queries' nearest classes that noise does not hide, (q,)."""
        label = self._scores(X)["label"]
        return np.asarray(self.classes_[label])
