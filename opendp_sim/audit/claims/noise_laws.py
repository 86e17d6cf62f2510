"""Describe noise laws and the loss of a shift."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import log_ndtr, ndtr

from opendp_sim.core.errors import AuditError

_FINE = 2.0**15
"""From this many steps a scale on, a discrete law blurred by one step is the continuous one to 1e-10,
and its atoms are too many to list."""
FAMILIES = ("laplace", "gaussian", "discrete_laplace", "discrete_gaussian", "rounded_gaussian")
_ROUGH = 64.0
"""Up to this many steps a scale, a rounded law's own masses are used; beyond, its density is as good."""


@dataclass(frozen=True)
class NoiseLaw:
    """Describe independent noise of one family.

    ``scale`` is one number or one a cell. The Laplace scale is b with density proportional to
    ``exp(-|z|/b)``; the Gaussian's is the sigma of exp(-z^2 / (2 sigma^2)). The discrete families have
    the same weights on the integers; the rounded Gaussian is a normal variable rounded to the grid.
    """

    family: str
    scale: Any
    grid: float = 1.0
    """Spacing of the support of a discrete family."""

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise AuditError(
                "OS501",
                "audit.noise.family",
                expected=", ".join(FAMILIES),
                got=self.family,
                hint="leave noise= out: the whole-curve test needs no declared law.",
            )

    @property
    def gaussian(self) -> bool:
        """Whether the loss is quadratic in the shift."""
        return self.family.endswith("gaussian")

    @property
    def discrete(self) -> bool:
        """Whether the support is a grid."""
        return self.family.startswith("discrete") or self.rounded

    @property
    def rounded(self) -> bool:
        """Whether an atom has the normal mass of the cell around it."""
        return self.family == "rounded_gaussian"

    def scales(self, cells: int) -> NDArray[np.float64]:
        """Return one scale a cell."""
        return np.broadcast_to(np.asarray(self.scale, dtype=float), (cells,))

    def part(self, spots: NDArray[np.int64], cells: int) -> NoiseLaw:
        """Return the law of some of the cells."""
        return replace(self, scale=self.scales(cells)[spots])

    def loss(self, shift: NDArray[np.float64]) -> float:
        """Return the exact loss of a shift, epsilon or rho."""
        scaled = np.abs(shift) / self.scales(shift.size)
        return float((scaled**2).sum() / 2) if self.gaussian else float(scaled.sum())

    def llr(self, residual: NDArray[np.float64], shift: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log-likelihood ratios of releases.

        log p(y | x) - log p(y | x') for y = core(x) + residual, shift = core' - core.

        Args:
            residual: shape (n, m).
            shift: shape (m,).
        """
        scale = self.scales(shift.size)
        if self.gaussian:
            return np.asarray(self.cell_llr(residual, shift, scale).sum(axis=1))
        return np.asarray(((np.abs(residual - shift) - np.abs(residual)) / scale).sum(axis=1))

    def cell_llr(self, residual: Any, shift: Any, scale: Any) -> NDArray[np.float64]:
        """Return the exact log-likelihood ratios of Gaussian or rounded cells."""
        quadratic = np.asarray(((residual - shift) ** 2 - residual**2) / (2 * scale**2))
        if not self.rounded:
            return quadratic
        own = self._log_mass(residual, scale) - self._log_mass(residual - shift, scale)
        return np.where(np.isfinite(own) & (scale < _ROUGH * self.grid), own, quadratic)

    def _log_mass(self, z: Any, scale: Any) -> NDArray[np.float64]:
        """Return the log-probability of a rounded Gaussian cell."""
        size = np.abs(np.asarray(z, dtype=float))
        near = log_ndtr(-(size - self.grid / 2) / scale)
        far = log_ndtr(-(size + self.grid / 2) / scale)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(near + np.log1p(-np.exp(far - near)))

    # --- moments and distribution, in units of the scale -----------------------------------

    def support(self, scale: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a discrete cell's atoms, coarser for large scales, and probabilities."""
        step = min(scale / self.grid, _FINE)
        reach = int(np.ceil(step * (40 if not self.gaussian else 12))) + 2
        z = np.arange(-reach, reach + 1, dtype=float)
        weight = np.exp(-(z**2) / (2 * step**2)) if self.gaussian else np.exp(-np.abs(z) / step)
        if self.rounded:
            size = np.abs(z)
            weight = ndtr(-(size - 0.5) / step) - ndtr(-(size + 0.5) / step)
        return z * (scale / step), weight / weight.sum()

    def spread(self, scale: float) -> tuple[float, float]:
        """Return the mean and variance of ``|z|/b`` or z^2/s^2 of a cell."""
        if not self.discrete or scale / self.grid > _FINE:
            return (1.0, 2.0) if self.gaussian else (1.0, 1.0)
        z, p = self.support(scale)
        t = self.statistic(z, scale)
        mean = float((t * p).sum())
        # far below a step both vanish in floats; what is divided by them must not
        return max(mean, 1e-300), max(float(((t - mean) ** 2 * p).sum()), 1e-300)

    def statistic(self, residual: Any, scale: Any) -> Any:
        """Return the sufficient statistic of the scale, cell by cell."""
        return (residual / scale) ** 2 if self.gaussian else np.abs(residual) / scale

    def uniform(
        self, residual: NDArray[np.float64], scale: float, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return the (randomised, where discrete) probability integral transform of one scale's cells."""
        if not self.discrete:
            law = stats.norm if self.gaussian else stats.laplace
            return np.asarray(law.cdf(residual, scale=scale))
        if scale / self.grid > _FINE:
            blurred = residual + self.grid * (rng.random(residual.shape) - 0.5)
            law = stats.norm if self.gaussian else stats.laplace
            return np.asarray(law.cdf(blurred, scale=scale))
        z, p = self.support(scale)
        upper = np.cumsum(p)
        spot = np.clip(np.rint(residual / self.grid).astype(np.int64) + len(z) // 2, 0, len(z) - 1)
        below = upper[spot] - p[spot]
        return np.asarray(below + p[spot] * rng.random(residual.shape))


def flattened(value: Any) -> NDArray[Any]:
    """Return numbers as a flat array, lists of integers as int64."""
    array = np.asarray(value)
    return np.atleast_1d(array if array.dtype.kind in "iufO" else array.astype(float)).ravel()


def difference(minuend: NDArray[Any], subtrahend: NDArray[Any]) -> NDArray[np.float64]:
    """Return the difference; of integers exactly, then rounded once."""
    if minuend.dtype.kind in "iuO" and subtrahend.dtype.kind in "iuO":
        small = all(
            a.size == 0 or (abs(int(a.max())) < 2**62 and abs(int(a.min())) < 2**62)
            for a in (minuend, subtrahend)
        )
        if not small:
            minuend, subtrahend = minuend.astype(object), subtrahend.astype(object)
        return np.asarray(minuend - subtrahend, dtype=np.float64)
    first, second = minuend.astype(np.float64), subtrahend.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(first == second, 0.0, first - second)  # equal infinities are no distance


def read_law(noise: Any, cells: int) -> NoiseLaw:
    """Return the noise law of a law or of our measurements."""
    if isinstance(noise, NoiseLaw):
        return noise
    weights = np.ones(cells)
    if noise.weights:
        runs = [np.full(count, weight, dtype=float) for count, weight in noise.weights]
        weights = np.concatenate(runs)
    return NoiseLaw(noise.family, noise.scale * weights, float(noise.step))
