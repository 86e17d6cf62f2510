"""Ridge regression from private sums of products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from opendp_sim.sklearn.all_or_nothing import all_or_nothing
from opendp_sim.sklearn.base import PrivateEstimator
from opendp_sim.sklearn.budget import Budget
from opendp_sim.sklearn.defaults import MEASURE
from opendp_sim.sklearn.public_bounds import box_of, pair_of
from opendp_sim.sklearn.public_facts import number
from opendp_sim.sklearn.refusals import InputRefused
from opendp_sim.sklearn.tables import column_of, dtype_of

__all__ = ["DPRidge"]


class DPRidge(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """A linear fit of one bounded target (``second_moments``, ``regress``).

    The strength of the penalty is not a parameter: it is chosen from what was released and its known
    noise. Records with missing values are left out, and values outside the bounds are clamped, by
    rules that look at that record alone. Noise has no seed.

    Args:
        epsilon: the loss of one fit, at ``delta``.
        delta: None with ``measure="pure"``.
        bounds: public ``(low, high)`` of all features, or ``(lows, highs)``: each is counted in its own
            range, so one pair for unlike columns (an age, an income) drowns the narrow ones in noise.
        y_bounds: public ``(low, high)`` of the target.
        radius: rows whose features, target and constant 1, each scaled to [-1, 1], are longer than
            this are shortened, which only weights them; noise grows with its square.
        unit: ``row``, or ``groups``: the persons that ``fit(X, y, groups=ids)`` names.
        max_rows: rows used of one person, with ``unit="groups"``.
        measure: ``gdp``, ``zcdp`` or ``pure``.
        budget: what each fit is charged to; None for none.

    Attributes:
        coef_: shape (d,), in data units.
        intercept_: a float.

    Raises:
        EstimatorRefused (OS101, OS102), InputRefused (OS602): nothing was charged. BudgetError (OS402):
            the budget refuses; nothing was charged.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 1, 2000)[:, None]
        >>> fit = DPRidge(epsilon=10.0, bounds=(0, 1), y_bounds=(0, 4)).fit(X, 3 * X[:, 0])
        >>> bool(abs(fit.coef_[0] - 3) < 1)
        True
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = 1e-6,
        bounds: Any = None,
        y_bounds: Any = None,
        radius: float = 1.5,
        unit: str = "row",
        max_rows: int | None = None,
        measure: str = MEASURE,
        budget: Budget | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.y_bounds = y_bounds
        self.radius = radius
        self.unit = unit
        self.max_rows = max_rows
        self.measure = measure
        self.budget = budget

    @all_or_nothing
    def fit(self, X: Any, y: Any, groups: Any = None) -> DPRidge:
        """Release the sums of products, and fit.

        Args:
            X: shape (n, d).
            y: shape (n,), the target.
            groups: shape (n,), whose each record is, with ``unit="groups"``.
        """
        array, target = self._seen(X, reset=True), column_of(y, "y")
        if target.dtype.kind not in "biufO":
            raise InputRefused(
                "OS602",
                "y",
                expected="real numbers",
                got=f"dtype {target.dtype}",
                hint="for labels take DPRidgeClassifier.",
            )
        who, width = type(self).__name__, array.shape[1]
        low, high = pair_of(self.y_bounds, f"{who}.y_bounds")
        box = box_of(self.bounds, None, width, self).beside(width, low, high, 1)
        radius = number("radius", self.radius, above=1.0)
        columns = {
            "x": (array, box.column(dtype_of(array), width)),
            "y": (target, {**box.column("f64", 1), "dtype": "float64"}),
        }
        sketch = {"second_moments": {"radius": radius}}
        self._released(columns, [*box.steps(), sketch], groups, features=["x", "y"])
        found = self.release_.ask("regress", answer="coefficients")["coefficient"]
        self.intercept_, self.coef_ = float(found[0]), np.asarray(found[1:])
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the linear function at each query, shape (q,)."""
        return np.asarray((self._numbers(X) * self.coef_).sum(axis=1) + self.intercept_)
