"""Detect outliers where private records are rare, at stated false alarms."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import special
from sklearn.base import OutlierMixin

from opendp_sim.sklearn._validation.bounds import box_of
from opendp_sim.sklearn._validation.facts import number
from opendp_sim.sklearn._validation.kernel_backend import kernel_step
from opendp_sim.sklearn._validation.tables import dtype_of
from opendp_sim.sklearn.base import PrivateEstimator, all_or_nothing, estimator

_LEAST, _MOST = 1e-300, 1.0 - 2.0**-53


@estimator
class DPOneClass(OutlierMixin, PrivateEstimator):  # type: ignore[misc]
    """Tell queries that private records resemble from others (a kernel sketch, ``outliers``).

    Records with missing values are left out, and values outside the bounds are clamped, by rules that
    look at that record alone. There is no ``fit_predict``: labels of training records are not private.

    Args:
        bounds: public ``(low, high)`` of all columns, ``(lows, highs)``, or ``{column: (low, high)}``;
            unlike columns are each counted in their own range, and so is the bandwidth.
        data_norm: rows are shortened to this L2 norm. At least one of the two.
        bandwidth: h of the kernel ``exp(-r**2 / (2 h**2))``.
        threshold: mean kernel value below which a query is an outlier: 0.01 is as lonely as if one
            record in a hundred were in the same place.
        false_alarms: chance of flagging a query whose true value is at the threshold.
        engine: ``gauss_transform`` (up to three columns), ``fourier``, ``race``, or ``auto``: the
            first under ``measure="pure"`` for ranges of over 9.9 bandwidths, else ``fourier``.
        n_components: frequencies, or hashes; None for as many as ``size`` asks for, or without it 8,000
            where points are grown, else 2,000.
        size: about how many records, from public knowledge: it chooses up to 8,000 frequencies, whose
            sampling error then stays below a third of the noise if it can.
        random_state: seed of the public matrices; noise has none.
        points: as for ``sim.density``: ``grown`` from the release, which takes seconds at the first
            question, ``none``, or ``auto``.
    """

    bounds: Any = None
    data_norm: float | None = None
    bandwidth: float = 1.0
    threshold: float = 0.01
    false_alarms: float = 0.05
    engine: str = "auto"
    n_components: int | None = None
    size: int | None = None
    random_state: int | None = 0
    points: str = "auto"

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> DPOneClass:
        """Release the sketch of a density.

        ``X`` (n, d); ``groups`` (n,): whose each record is, with ``unit="groups"``.
        """
        del y
        array = self._seen(X, reset=True)
        width = array.shape[1]
        number("threshold", self.threshold, above=0.0, below=1.0)
        false_alarms = number("false_alarms", self.false_alarms, above=0.0, below=1.0)
        box = box_of(self.bounds, self.data_norm, width, self)
        step, self.engine_ = kernel_step(self, box, width, self._noise())
        columns = {"x": (array, box.column(dtype_of(array), width))}
        self._released(columns, [*box.steps(), step], groups, features="x")
        self.offset_ = float(special.ndtri(false_alarms))
        return self

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Return densities above the threshold in deviations, shape (q,)."""
        found = self._ask("outliers", X, threshold=self.threshold, false_alarms=self.false_alarms)
        chance = np.clip(found["probability"], _LEAST, _MOST)
        return np.asarray(special.ndtri(chance))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return ``score_samples`` above ``offset_``, negative for outliers, (q,)."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return 1 where records are, and -1 for outliers, shape (q,)."""
        return np.where(self.decision_function(X) < 0.0, -1, 1)

    @property
    def fit_predict(self) -> NoReturn:
        """Refuse, as training records' labels would not be private."""
        raise AttributeError(
            "DPOneClass has no fit_predict: labels of training records are not private"
        )
