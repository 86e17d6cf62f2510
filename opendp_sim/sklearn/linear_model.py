"""Ridge regression from private sums of products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin

from opendp_sim.domains.category_codes import key_indices
from opendp_sim.postprocessing.regress import least_squares
from opendp_sim.sklearn._validation.bounds import box_of, pair_of
from opendp_sim.sklearn._validation.facts import PublicClasses, number
from opendp_sim.sklearn._validation.refusals import InputRefused
from opendp_sim.sklearn._validation.tables import dtype_of, label_array
from opendp_sim.sklearn.base import PrivateEstimator, all_or_nothing, estimator


@estimator
class DPRidge(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """A linear fit of one bounded target (``second_moments``, ``regress``).

    The strength of the penalty is not a parameter: it is chosen from what was released and its known
    noise. Records with missing values are left out, and values outside the bounds are clamped, by
    rules that look at that record alone. Noise has no seed.

    Args:
        bounds: public ``(low, high)`` of all features, or ``(lows, highs)``: each is counted in its own
            range, so one pair for unlike columns (an age, an income) drowns the narrow ones in noise.
        data_norm: a bound of rows' L2 norm: each feature is clamped to it and minus it. At least one of
            the two.
        y_bounds: public ``(low, high)`` of the target.
        radius: rows whose features, target and constant 1, each scaled to [-1, 1], are longer than
            this are shortened, which only weights them; noise grows with its square.

    Attributes:
        coef_: shape (d,), in data units.
        intercept_: a float.
        y_bounds_: the target's bounds at the fit, as two floats: predictions are clipped to them.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 1, 2000)[:, None]
        >>> fit = DPRidge(epsilon=10.0, bounds=(0, 1), y_bounds=(0, 4)).fit(X, 3 * X[:, 0])
        >>> bool(abs(fit.coef_[0] - 3) < 1)
        True
    """

    bounds: Any = None
    data_norm: float | None = None
    y_bounds: Any = None
    radius: float = 1.5

    @all_or_nothing
    def fit(self, X: Any, y: Any, groups: Any = None) -> DPRidge:
        """Release the sums of products, and fit.

        ``X`` (n, d), target ``y`` (n,); ``groups`` (n,): whose each record is, with ``unit="groups"``.
        """
        array, target = self._seen(X, reset=True), label_array(y, "y")
        if target.dtype.kind not in "biufO":
            raise InputRefused(
                "OS602", "y", expected="real numbers", got=f"dtype {target.dtype}",
                hint="for labels take DPRidgeClassifier.",
            )  # fmt: skip
        who, width = type(self).__name__, array.shape[1]
        low, high = pair_of(self.y_bounds, f"{who}.y_bounds")
        box = box_of(self.bounds, self.data_norm, width, self).beside(width, low, high, 1)
        radius = number("radius", self.radius, above=1.0)
        columns = {
            "x": (array, box.column(dtype_of(array), width)),
            "y": (target, {**box.column("f64", 1), "dtype": "float64"}),
        }
        sketch = {"second_moments": {"radius": radius}}
        self._released(columns, [*box.steps(), sketch], groups, features=["x", "y"])
        found = self.release_.ask("regress", answer="coefficients")["coefficient"]
        self.intercept_, self.coef_ = float(found[0]), np.asarray(found[1:])
        self.y_bounds_ = (low, high)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the linear function at each query, within ``y_bounds``, shape (q,)."""
        fitted = (self._numbers(X) * self.coef_).sum(axis=1) + self.intercept_
        return np.asarray(np.clip(fitted, *self.y_bounds_))


# --------------------------------------------------------------------------------------------------
# Ridge classifier: one linear fit a class, all from one private matrix of sums of products.


@estimator
class DPRidgeClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Predict the class whose indicator a private linear fit finds largest (``second_moments``).

    A record whose label is not in ``classes``, or with a missing value, is left out, and values
    outside the bounds are clamped: by rules that look at that record alone. Noise has no seed.

    Args:
        epsilon: the loss of one fit, at ``delta``; all classes together.
        bounds: public ``(low, high)`` of all features, or ``(lows, highs)``.
        data_norm: a bound of rows' L2 norm: each feature is clamped to it and minus it. At least one of
            the two.
        classes: every label that could occur. A record with another label, or with a cell that is no
            number, is left out at fit without a word: that there is one is private.
        radius: rows whose features, indicators and constant 1, each scaled to [-1, 1], are longer
            than this are shortened, which only weights them; noise grows with its square.

    Attributes:
        classes_: the public labels, sorted.
        coef_: shape (L, d), in data units; (1, d) for two classes.
        intercept_: shape (L,), or (1,).
    """

    bounds: Any = None
    data_norm: float | None = None
    classes: Any = None
    radius: float = 1.5

    @all_or_nothing
    def fit(self, X: Any, y: Any, groups: Any = None) -> DPRidgeClassifier:
        """Release the sums of products of features and class indicators, and fit.

        ``X`` (n, d), labels ``y`` (n,); ``groups`` (n,): whose each record is, with ``unit="groups"``.
        """
        array, labels, classes = self._labelled(X, y)
        width, marks = array.shape[1], _indicators(labels, classes)
        box = box_of(self.bounds, self.data_norm, width, self).beside(
            width, 0.0, 1.0, marks.shape[1]
        )
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
        """Return one indicator's intercept and slopes."""
        released = self.release_.released
        sums: Any = released.capability("second_moments", "coef_")
        gram, factor = sums.gram(self.release_.arrays)
        kept = [*range(width + 1), width + 1 + mark]
        own = least_squares(gram[np.ix_(kept, kept)], width + 1, released.deviation * factor)
        whole = np.zeros(sums.width)  # the other indicators take no part
        whole[: width + 1] = own
        return np.asarray(sums.to_data(whole, width + mark))[: width + 1]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the fits, (q, L), or (q,) for two classes.

        Near 1 in the class and -1 outside.
        """
        values = self._numbers(X)
        scores = np.stack([(values * slopes).sum(axis=1) for slopes in self.coef_], axis=1)
        scores += self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest fit, shape (q,)."""
        scores = self.decision_function(X)
        label = (scores > 0.0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[label])


def _indicators(labels: NDArray[Any], classes: PublicClasses) -> NDArray[np.float32]:
    """Return 0/1 columns of the classes.

    Of two classes, the second's; NaN for a foreign label. Record by record: the gate leaves out a
    record with NaN.
    """
    keys = classes.keys
    index = key_indices(labels, tuple(keys))
    marks = np.zeros((len(index), len(keys)), dtype=np.float32)
    marks[np.arange(len(index)), index] = 1.0
    marks[index < 0] = np.nan
    return marks[:, 1:] if len(keys) == 2 else marks
