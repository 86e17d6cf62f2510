"""Ridge classifier: one linear fit a class, all from one private matrix of sums of products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from opendp_sim.queries.regress import least_squares
from opendp_sim.sklearn.all_or_nothing import all_or_nothing
from opendp_sim.sklearn.base import PrivateEstimator
from opendp_sim.sklearn.budget import Budget
from opendp_sim.sklearn.defaults import MEASURE
from opendp_sim.sklearn.public_bounds import box_of
from opendp_sim.sklearn.public_facts import Classes, number
from opendp_sim.sklearn.tables import dtype_of
from opendp_sim.spaces.key_places import key_indices

__all__ = ["DPRidgeClassifier"]


class DPRidgeClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Predict the class whose indicator a private linear fit finds largest (``second_moments``).

    A record whose label is not in ``classes``, or with a missing value, is left out, and values
    outside the bounds are clamped: by rules that look at that record alone. Noise has no seed.

    Args:
        epsilon: the loss of one fit, at ``delta``; all classes together.
        delta: None with ``measure="pure"``.
        bounds: public ``(low, high)`` of all features, or ``(lows, highs)``.
        classes: every label that could occur. A record with another label, or with a cell that is no
            number, is left out at fit without a word: that there is one is private.
        radius: rows whose features, indicators and constant 1, each scaled to [-1, 1], are longer
            than this are shortened, which only weights them; noise grows with its square.
        unit: ``row``, or ``groups``: the persons that ``fit(X, y, groups=ids)`` names.
        max_rows: rows used of one person, with ``unit="groups"``.
        measure: ``gdp``, ``zcdp`` or ``pure``.
        budget: what each fit is charged to; None for none.

    Attributes:
        classes_: the public labels, sorted.
        coef_: shape (L, d), in data units; (1, d) for two classes.
        intercept_: shape (L,), or (1,).

    Raises:
        EstimatorRefused (OS101, OS102), InputRefused (OS602): nothing was charged. BudgetError (OS402):
            the budget refuses; nothing was charged.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = 1e-6,
        bounds: Any = None,
        classes: Any = None,
        radius: float = 1.5,
        unit: str = "row",
        max_rows: int | None = None,
        measure: str = MEASURE,
        budget: Budget | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.radius = radius
        self.unit = unit
        self.max_rows = max_rows
        self.measure = measure
        self.budget = budget

    @all_or_nothing
    def fit(self, X: Any, y: Any, groups: Any = None) -> DPRidgeClassifier:
        """Release the sums of products of features and class indicators, and fit.

        Args:
            X: shape (n, d).
            y: shape (n,), labels.
            groups: shape (n,), whose each record is, with ``unit="groups"``.
        """
        array, labels, classes = self._labelled(X, y)
        width, marks = array.shape[1], _indicators(labels, classes)
        box = box_of(self.bounds, None, width, self).beside(width, 0.0, 1.0, marks.shape[1])
        radius = number("radius", self.radius, above=1.0)
        columns = {
            "x": (array, box.column(dtype_of(array), width)),
            "marks": (marks, box.column("f32", marks.shape[1])),
        }
        sketch = {"second_moments": {"radius": radius}}
        self._released(columns, [*box.steps(), sketch], groups, features=["x", "marks"])
        self.classes_ = classes.values
        fits = np.array([self._fit_of(width, mark) for mark in range(marks.shape[1])])
        self.intercept_, self.coef_ = 2.0 * fits[:, 0] - 1.0, 2.0 * fits[:, 1:]
        return self

    def _fit_of(self, width: int, mark: int) -> NDArray[np.float64]:
        """Return intercept and slopes, in data units, of one indicator on the features alone."""
        released = self.release_.released
        sums: Any = released.capability("second_moments", "coef_")
        gram, factor = sums.gram(self.release_.arrays)
        kept = [*range(width + 1), width + 1 + mark]
        own = least_squares(gram[np.ix_(kept, kept)], width + 1, released.deviation * factor)
        whole = np.zeros(sums.width)  # the other indicators take no part
        whole[: width + 1] = own
        return np.asarray(sums.to_data(whole, width + mark))[: width + 1]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the fits, near 1 in the class and -1 outside: (q, L), or (q,) for two classes."""
        values = self._numbers(X)
        scores = np.stack([(values * slopes).sum(axis=1) for slopes in self.coef_], axis=1)
        scores += self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest fit, shape (q,)."""
        scores = self.decision_function(X)
        label = (scores > 0.0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[label])


def _indicators(labels: NDArray[Any], classes: Classes) -> NDArray[np.float32]:
    """Return one 0/1 column a class (of two classes, the second's); NaN for a foreign label.

    Record by record: the gate leaves out a record with NaN.
    """
    keys = classes.keys
    index = key_indices(labels, tuple(keys))
    marks = np.zeros((len(index), len(keys)), dtype=np.float32)
    marks[np.arange(len(index)), index] = 1.0
    marks[index < 0] = np.nan
    return marks[:, 1:] if len(keys) == 2 else marks
