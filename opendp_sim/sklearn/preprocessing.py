"""Scale by public bounds to [0, 1] without learning."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from opendp_sim.sklearn._validation.bounds import box_of
from opendp_sim.sklearn._validation.tables import checked_table, numbers_of
from opendp_sim.sklearn.base import all_or_nothing


class PublicScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Clamp columns to public bounds and scale to [0, 1].

    Before a private estimator. ``StandardScaler`` and ``MinMaxScaler`` learn from the data, which no
    private estimator behind them can see or make up for. This one is a function of each record alone.

    Args:
        bounds: public ``(low, high)`` of all columns, ``(lows, highs)``, or ``{column: (low, high)}``.

    Raises:
        EstimatorRefused (OS101, OS102), InputRefused (OS602): no bounds, or no table.

    Example:
        >>> scaler = PublicScaler(bounds={0: (0, 1), 1: (10, 30)})
        >>> scaler.fit_transform([[0.5, 20.0], [2.0, 0.0]]).tolist()
        [[0.5, 0.5], [1.0, 0.0]]
    """

    def __init__(self, *, bounds: Any = None) -> None:
        self.bounds = bounds

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> PublicScaler:
        """Remember the number and names of the columns; look at no value."""
        del y
        checked_table(self, X, reset=True)
        box = box_of(self.bounds, None, self.n_features_in_, self)
        self.data_min_, self.data_max_ = np.array(box.lower), np.array(box.upper)
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the scaled table, shape (n, d); missing values stay NaN."""
        check_is_fitted(self)
        values = np.clip(
            numbers_of(checked_table(self, X, reset=False)), self.data_min_, self.data_max_
        )
        return np.asarray((values - self.data_min_) / (self.data_max_ - self.data_min_))

    def __sklearn_tags__(self) -> Any:
        """Say that missing values pass, and sparse tables do not."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = False
        return tags
