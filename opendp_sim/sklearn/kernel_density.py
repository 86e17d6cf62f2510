"""Estimate kernel densities by one private sketch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from opendp_sim.accounting.release.answers import Answers
from opendp_sim.io.origin import NOTHING_PRIVATE, Remembered, origin_of, refuse_private
from opendp_sim.sklearn._validation.bounds import box_of
from opendp_sim.sklearn._validation.kernel_backend import kernel_step, log_volume, seed_of
from opendp_sim.sklearn._validation.refusals import as_refusals
from opendp_sim.sklearn._validation.tables import dtype_of
from opendp_sim.sklearn.base import PrivateEstimator, all_or_nothing, estimator


@estimator
class DPKernelDensity(DensityMixin, PrivateEstimator):  # type: ignore[misc]
    """A Gaussian kernel density with a privacy loss, like ``KernelDensity``.

    Records with missing values are left out, and values outside the bounds are clamped, by rules that
    look at that record alone.

    Args:
        bounds: public ``(low, high)`` of all columns, ``(lows, highs)``, or ``{column: (low, high)}``;
            unlike columns are each counted in their own range, and so is the bandwidth.
        data_norm: rows are shortened to this L2 norm. At least one of the two.
        bandwidth: h of the kernel ``exp(-r**2 / (2 h**2))``.
        engine: ``gauss_transform`` (up to three columns), ``fourier``, ``race`` (another kernel: the
            share of shared hashes, of width ``bandwidth``), or ``auto``.
        n_components: frequencies, or hashes; None for as many as ``size`` asks for, or without it 8,000
            where points are grown, else 2,000.
        size: about how many records, from public knowledge: it chooses up to 8,000 frequencies, whose
            sampling error then stays below a third of the noise if it can.
        random_state: seed of the public matrices; noise has none.
        points: as for ``sim.density``: ``grown`` from the release, which takes seconds at the first
            question, ``none``, or ``auto``.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 1, 5000)[:, None]
        >>> kde = DPKernelDensity(epsilon=5.0, bounds=(-2, 2), bandwidth=0.2).fit(X)
        >>> bool(np.exp(kde.score_samples([[0.5]]))[0] > 0.8)
        True
    """

    bounds: Any = None
    data_norm: float | None = None
    bandwidth: float = 1.0
    engine: str = "auto"
    n_components: int | None = None
    size: int | None = None
    random_state: int | None = 0
    points: str = "auto"

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> DPKernelDensity:
        """Release the sketch of a density.

        ``X`` (n, d); ``groups`` (n,): whose each record is, with ``unit="groups"``.
        """
        del y
        array = self._seen(X, reset=True)
        width = array.shape[1]
        box = box_of(self.bounds, self.data_norm, width, self)
        step, self.engine_ = kernel_step(self, box, width, self._noise())
        columns = {"x": (array, box.column(dtype_of(array), width))}
        self._released(columns, [*box.steps(), step], groups, features="x")
        self._given = Remembered(X, array)
        self.log_volume_ = log_volume(box, width, self.bandwidth, self.engine_)
        return self

    def density(self, X: Any, confidence: float = 0.95) -> Answers:
        """Return sums of kernel values with errors and intervals, as a table."""
        return self._ask("density", X, confidence=confidence)

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Return the logarithm of the density at each query, shape (q,).

        A density below the deviation of its noise counts as that deviation, so it is always finite.
        With ``engine="race"`` it is the logarithm of the mean kernel value.
        """
        found = self._ask("density", X, normalise=True)
        value = np.maximum(found["density"], found["noise_error"])
        return np.asarray(np.log(value) - self.log_volume_)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the total log density, private for public records only."""
        del y
        return float(np.sum(self.score_samples(X)))

    def sample(
        self, n_samples: int = 1, random_state: int | None = 0, *, candidates: Any
    ) -> NDArray[Any]:
        """Draw from public candidates in proportion to their density, shape (n_samples, d).

        The table of the fit, as long as it is in memory, is refused (OS704): rows of it would leave.
        """
        seed = seed_of(random_state)
        check_is_fitted(self)
        private = self._given.origin() if hasattr(self, "_given") else NOTHING_PRIVATE
        with as_refusals():
            refuse_private(origin_of(candidates), private, "candidates")
        drawn = self._ask("sample", candidates, size=n_samples, seed=seed)
        return np.asarray(self._seen(candidates, reset=False)[drawn["candidate"]])
