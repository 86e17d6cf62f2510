"""Fit private linear models, of a number or of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special
from sklearn.base import ClassifierMixin, RegressorMixin

from opendp_sim.sklearn._validation.bounds import box_of, pair_of
from opendp_sim.sklearn._validation.facts import by_class, number
from opendp_sim.sklearn._validation.kernel_backend import waves_steps
from opendp_sim.sklearn._validation.refusals import InputRefused
from opendp_sim.sklearn._validation.tables import dtype_of, label_array
from opendp_sim.sklearn.base import PrivateEstimator, all_or_nothing, estimator

_RARE = 0.05
_MORE = (
    "more records, a larger epsilon, tighter bounds or fewer columns may help, and `private_score` "
    "measures what the model is worth."
)


@estimator
class DPRidge(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """A linear fit of one bounded target (``linear_regression``, ``regress``).

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
        """Release a line, under pure DP of sums of products.

        ``X`` (n, d), target ``y`` (n,); ``groups`` (n,): whose each record is, with ``unit="groups"``.
        """
        array, target = self._seen(X, reset=True), label_array(y, "y")
        if target.dtype.kind not in "biufO":
            raise InputRefused(
                "OS602", "y", expected="real numbers", got=f"dtype {target.dtype}",
                hint="for labels take DPLogisticRegression.",
            )  # fmt: skip
        who, width = type(self).__name__, array.shape[1]
        low, high = pair_of(self.y_bounds, f"{who}.y_bounds")
        box = box_of(self.bounds, self.data_norm, width, self).beside(width, low, high)
        radius = number("radius", self.radius, above=1.0)
        columns = {
            "x": (array, box.column(dtype_of(array), width)),
            "y": (target, {**box.column("f64", 1), "dtype": "float64"}),
        }
        steps = box.steps()
        if self.measure == "pure":  # gradients would cost far more in L1
            steps = [*steps, {"second_moments": {"radius": radius}}]
        self._released(columns, steps, groups, features=["x", "y"])
        found = self.release_.ask("regress", answer="coefficients")["coefficient"]
        self.intercept_, self.coef_ = float(found[0]), np.asarray(found[1:])
        self.y_bounds_ = (low, high)
        return self

    def _release(self) -> dict[str, Any]:
        if self.measure == "pure":
            return super()._release()
        return {"mechanism": {"linear_regression": {"radius": float(self.radius)}}}

    def _doubt(self) -> str | None:
        return None if self.coef_.any() else f"no slope can be distinguished from noise: {_MORE}"

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the linear function at each query, clipped to ``y_bounds``, shape (q,)."""
        fitted = (self._numbers(X) * self.coef_).sum(axis=1) + self.intercept_
        return np.asarray(np.clip(fitted, *self.y_bounds_))


@estimator
class DPLogisticRegression(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A softmax regression by noisy gradients (``linear_model``, ``predict``).

    Of the columns, or of public random waves of them (``fourier_features``): a kernel logistic
    regression, whose borders between classes are curved. Noise does not grow with their number.

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
        features: ``linear``, the columns; or ``fourier``, their waves, for curved borders between
            classes in up to about 50 columns.
        bandwidth: h of the kernel ``exp(-r**2 / (2 h**2))`` that the waves stand for, in ranges of unlike
            columns; None for a tenth of the diagonal of ``bounds``, or for half of ``data_norm``.
        n_components: frequencies, each two waves; time and memory grow with them.
        random_state: seed of the public frequencies; noise has none.
        measure: ``gdp`` or ``zcdp``.

    Attributes:
        classes_: the public labels, sorted.
        n_iter_: ``max_iter``: every step is taken, whatever the data.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
        >>> y = (X**2).sum(axis=1) < 0.6  # a disc
        >>> fit = DPLogisticRegression(
        ...     epsilon=9.0, bounds=(-1, 1), classes=[0, 1], features="fourier"
        ... ).fit(X, y.astype(int))
        >>> bool(fit.score(X, y.astype(int)) > 0.9)
        True
    """

    bounds: Any = None
    data_norm: float | None = None
    classes: Any = None
    max_iter: int = 64
    size: int | None = None
    features: str = "linear"
    bandwidth: float | None = None
    n_components: int = 150
    random_state: int | None = 0

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
        steps = [*box.steps(), *waves_steps(self, box)]
        self._released(columns, steps, groups, features="x", label="label")
        self.classes_, self.n_iter_ = classes.values, int(self.max_iter)
        return self

    def _release(self) -> dict[str, Any]:
        size = {} if self.size is None else {"size": self.size}
        rows = {} if self.features == "linear" else {"rows": "length"}
        return {"mechanism": {"linear_model": {"steps": self.max_iter, **rows, **size}}}

    def _doubt(self) -> str | None:
        scores: Any = self.release_.released.capability("class_scores", type(self).__name__)
        if scores.chance_of_noise(self.release_.arrays) <= _RARE:
            return None
        return (
            "the released weights are such as noise alone makes in more than 1 of 20 runs, so they do "
            f"not show that data decided anything: {_MORE}"
        )

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


@estimator
class DPKernelClassifier(DPLogisticRegression):
    """A kernel logistic regression, ``DPLogisticRegression`` of waves.

    The largest of one private density a class, which ``classify`` answers of a release, with uniform
    priors and under pure DP too, is right as often in two columns, and far less often in many.

    Attributes:
        classes_: the public labels, sorted.
        n_iter_: ``max_iter``: every step is taken, whatever the data.
    """

    features: str = "fourier"
