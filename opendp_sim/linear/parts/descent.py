"""Noisy gradient descent: the public rule of its steps, and the run. Lemma 6 of ``linear_model.md``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import SpaceError
from opendp_sim.core.rounding import sqrt_up
from opendp_sim.linear.parts.scaled import SIDE, ScaledRows
from opendp_sim.linear.parts.softmax import CLIP, gradient, whole_weights
from opendp_sim.linear.parts.whitening import (
    WIDEST,
    moments,
    moments_norm_squared,
    whitened,
    whitening_of,
)
from opendp_sim.noise.parts.sampling_noise import add_rounded

__all__ = ["LOGIT", "Descent", "Seen", "rounded_noise"]

LOGIT = 2.0**-24
"""The unit of released weights: a logit of a row of length 1 a unit."""
_ROOM = 1 + Fraction(1, 2**40)
"""Room for the outward rounding of OpenDP's maps."""
_KAPPA, _MOMENTUM = 1.2, 0.8
"""The deviation that noise alone gives a weight, for rows of length 1; how much of a step is kept."""
_CAP, _CAP_WHITENED = 200.0, 100.0
"""The most that one step may move, in normalised time, where the size is guessed or known."""
_SHARE = Fraction(1, 5)
"""The share of the loss that whitening gets."""

Noise = Callable[[NDArray[np.int64], float], NDArray[np.int64]]
"""Cells and a scale to noisy cells: the only way from records to anything that is released."""


def rounded_noise(cells: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    """Return the cells plus rounded Gaussian noise, exactly; sums beyond int64 saturate."""
    flat = np.ascontiguousarray(cells).ravel()
    return add_rounded(flat, [(flat.size, Fraction(scale))]).reshape(cells.shape)


@dataclass(frozen=True)
class Seen:
    """Scaled records: integers of shape (n, d + 1), and their labels (n,)."""

    rows: NDArray[np.float32]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Descent:
    """What is run, from public numbers alone.

    Args:
        scaled: how rows are scaled.
        classes: K.
        rho: the loss of one record, of everything.
        steps: T.
        whiten: whether second moments are released first.
        size: a public guess of the number of records, or None.
    """

    scaled: ScaledRows
    classes: int
    rho: float
    steps: int
    whiten: bool
    size: int | None

    def check(self, where: str) -> None:
        """Refuse rows too wide for the exact products of Lemma 5 (OS203)."""
        if self.whiten and self.scaled.width > WIDEST:
            raise SpaceError(
                "OS203", where, expected=f"at most {WIDEST - 1:,} columns with `whiten`",
                got=self.scaled.width - 1, hint="leave `whiten` out: it is for few columns.",
            )  # fmt: skip

    @property
    def _whitening_rho(self) -> Fraction:
        return _SHARE * Fraction(self.rho) if self.whiten else Fraction(0)

    @property
    def norm_squared(self) -> int:
        """Bound on the squared L2 norm of the rows that gradients see."""
        return SIDE**2 if self.whiten else self.scaled.norm_squared

    @property
    def gradient_square(self) -> int:
        """Bound on the squared L2 norm of what a record adds to one gradient, exactly (Lemma 3)."""
        return self.norm_squared * CLIP**2

    @property
    def whitening_scale(self) -> float:
        """Noise scale of a second moment."""
        square = moments_norm_squared(self.scaled)
        return sqrt_up(square / (2 * self._whitening_rho) * _ROOM)

    @property
    def scale(self) -> float:
        """Noise scale of a cell of a gradient."""
        rho = Fraction(self.rho) - self._whitening_rho
        return sqrt_up(self.steps * self.gradient_square / (2 * rho) * _ROOM)

    @property
    def releases(self) -> list[tuple[Fraction, float]]:
        """Every noisy release: the square of a bound on a record's L2 norm in it, and its scale."""
        first = [(moments_norm_squared(self.scaled), self.whitening_scale)] if self.whiten else []
        return [*first, *[(Fraction(self.gradient_square), self.scale)] * self.steps]

    @property
    def mu_squared(self) -> Fraction:
        """Gaussian DP of the whole at distance 1, exactly."""
        return sum((square / Fraction(scale) ** 2 for square, scale in self.releases), Fraction(0))

    def rate(self, size: float | None) -> float:
        """Return by how much a unit of a gradient's cell moves a weight, momentum apart."""
        strength = _KAPPA * math.sqrt(2.0 * self.rho * float(1 - _SHARE if self.whiten else 1))
        if size is not None:
            cap = _CAP_WHITENED if self.whiten else _CAP
            strength = min(strength, cap * self.steps / max(size, 1.0))
        return (1.0 - _MOMENTUM) * strength / (self.steps * CLIP * SIDE)

    def run(self, seen: Seen, noise: Noise = rounded_noise) -> NDArray[np.int64]:
        """Release the weights, after the whitening matrix if there is one: a flat int64 vector."""
        rows, size, first = seen.rows, self.size, np.zeros(0, dtype=np.int64)
        if self.whiten:
            cells = noise(moments(rows), self.whitening_scale)
            first, counted = whitening_of(cells, self.scaled.width, self.whitening_scale)
            rows, size = whitened(rows, first), int(min(counted, 2.0**62))
        found = self._descend(Seen(rows, seen.labels), self.rate(size), noise)
        limit = 2.0**62
        weights = np.clip(np.rint(found / LOGIT), -limit, limit).astype(np.int64)
        return np.concatenate([first.ravel(), weights.ravel()])

    def _descend(self, seen: Seen, rate: float, noise: Noise) -> NDArray[np.float64]:
        """Return the mean of the weights over the last half of the steps: shape (d + 1, K)."""
        shape = self.scaled.width, self.classes
        weights, moved, mean = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        last = self.steps - self.steps // 2
        for step in range(self.steps):
            whole, f = whole_weights(weights, self.norm_squared)
            noisy = noise(gradient(seen.rows, seen.labels, whole, f), self.scale)
            moved = _MOMENTUM * moved - rate * noisy
            weights = weights + moved
            if step >= self.steps - last:
                mean += weights / last
        return mean
