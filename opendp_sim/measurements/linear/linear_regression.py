"""Release a line by second moments and noisy gradients, in integers (``linear_regression.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.least_squares import CentredSums
from opendp_sim.core.arithmetic.matrix_product import matrix_product
from opendp_sim.core.arithmetic.rounding import sqrt_up
from opendp_sim.core.capabilities import Arrays
from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import fine_rows
from opendp_sim.domains.released import NamedArrays
from opendp_sim.domains.rows import as_rows
from opendp_sim.domains.standard import LEVELS, Standard
from opendp_sim.measurements.linear._impl.descent import (
    ROOM,
    Noise,
    Releases,
    RoundedNoise,
    loss_map,
    mu_squared_of,
)
from opendp_sim.measurements.linear._impl.whitening import moments, moments_norm_squared

UNIT = 2.0**-24
"""The unit of released weights, in half-ranges of the target for a half-range of a column."""
_SHARE = Fraction(1, 2)
"""The share of the loss that second moments get."""
_EXACT = 2**52
_BLOCK = 2**15


def whole_line(line: NDArray[np.float64], norm_squared: int) -> NDArray[np.int64]:
    """Round public weights to integers of unit ``UNIT``.

    Their products with rows are exact (R1).
    """
    limit = _EXACT // (math.isqrt(norm_squared * len(line)) + 1)
    # Whatever floats come: no number becomes 0, as its conversion would be beyond the limit.
    whole = np.clip(np.rint(np.nan_to_num(line / UNIT, nan=0.0)), -limit, limit)
    return whole.astype(np.int64)


def residual_gradient(
    rows: NDArray[np.float32], target: int, weights: NDArray[np.int64], largest: int
) -> NDArray[np.int64]:
    """Return the exact sum of row times clipped residual, shape (d,).

    ``rows`` (n, d + 1) are scaled, the constant first; ``weights`` (d,) are of all columns but
    ``target``.
    """
    total = np.zeros(rows.shape[1] - 1, dtype=np.int64)
    line = weights.astype(np.float64)[:, None]
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK].astype(np.float64)
        inputs = np.delete(block, target, axis=1)
        # Integers below 2**53 in any order, then one power of two and one floor a record.
        fitted = np.floor(matrix_product(inputs, line)[:, 0] * UNIT)
        left = np.clip(block[:, target] - fitted, -largest, largest)
        total += matrix_product(left[None, :], inputs)[0].astype(np.int64)
    return total


@dataclass(frozen=True)
class TwoStages:
    """What is run, from public numbers alone.

    Args:
        standard: how rows are scaled.
        target: index of the target among the scaled columns, the constant 1 first.
        rho: the loss of one record, of everything.
        steps: T.
        clip: c, the largest residual in half-ranges of the target.
    """

    standard: Standard
    target: int
    rho: float
    steps: int
    clip: float

    @property
    def largest(self) -> int:
        """The largest residual in steps."""
        return math.floor(self.clip * LEVELS)

    @property
    def moments_square(self) -> Fraction:
        """Bound on the squared L2 norm of a record's moments."""
        return moments_norm_squared(self.standard.norm_squared)

    @property
    def gradient_square(self) -> int:
        """Return an exact squared L2 bound of one gradient share (R2)."""
        return self.standard.norm_squared * self.largest**2

    @property
    def moments_scale(self) -> float:
        """Noise scale of a second moment."""
        return sqrt_up(self.moments_square / (2 * _SHARE * Fraction(self.rho)) * ROOM)

    @property
    def scale(self) -> float:
        """Noise scale of a cell of a gradient."""
        rho = (1 - _SHARE) * Fraction(self.rho)
        return sqrt_up(self.steps * self.gradient_square / (2 * rho) * ROOM)

    @property
    def releases(self) -> Releases:
        """Return every noisy release's squared L2 bound and scale."""
        steps = [(Fraction(self.gradient_square), self.scale)] * self.steps
        return [(self.moments_square, self.moments_scale), *steps]

    def run(self, rows: NDArray[np.float32], noise: Noise | None = None) -> NDArray[np.int64]:
        """Release the weights, an int64 vector (d,), of scaled rows."""
        noise = RoundedNoise() if noise is None else noise
        width, bound = self.standard.width, self.standard.norm_squared
        gram = np.zeros((width, width))
        gram[np.triu_indices(width)] = noise(moments(rows), self.moments_scale) / LEVELS**2
        gram += np.triu(gram, 1).T
        sums = CentredSums.of(gram, self.target, self.moments_scale / LEVELS**2)
        weights = whole_line(sums.fit(), bound)
        for _ in range(self.steps):
            found = noise(residual_gradient(rows, self.target, weights, self.largest), self.scale)
            step = sums.step(found / LEVELS**2, self.scale / LEVELS**2, self.clip)
            weights = whole_line(weights * UNIT + step, bound)
        return weights


@dataclass(frozen=True)
class LineReader:
    """Read a release of ``linear_regression``."""

    stages: TwoStages

    @property
    def width(self) -> int:
        """Number of data columns, the target included."""
        return self.stages.standard.rows.width

    @property
    def target(self) -> int:
        """Index of the target among the data columns."""
        return self.stages.target - 1

    def bounds(self, column: int) -> tuple[float, float]:
        """Return a data column's public bounds in data units."""
        return self.stages.standard.bounds(column)

    def coefficients(self, released: Arrays) -> NDArray[np.float64]:
        """Return the intercept, then the slopes, in data units."""
        line = np.asarray(released["weights"], dtype=np.float64) * UNIT
        return self.stages.standard.to_data(line, self.target)


@register
class LinearRegression(Mechanism):
    r"""Release a line that predicts one column from the others.

    Second moments give a first line, noisy gradients of clipped residuals improve it.

    Space
        Input: rows of d columns on an integer grid, the target among them, under symmetric distance;
        columns are scaled by their public bounds to integers in [-A, A], A = 1024, with a constant A
        first, and rows longer than ``radius`` are shortened. Output: a flat int64 vector ``weights``
        of shape (d,): the intercept, then the slopes of the other columns in order, of scaled columns,
        in units of 2**-24. A release of it is asked by ``regress``.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = \frac{d_{in}^2}{2} \Big(\frac{M^2}{s_M^2} + T \frac{(B c)^2}{s^2}\Big)
                  \le \rho\, d_{in}^2

        under zero-concentrated divergence, and :math:`d_{in} \sqrt{2 \rho}`-Gaussian DP, of everything
        that is released: second moments of length M, at half of the loss, and T gradients, to each of
        which a record adds an integer vector of length at most B times an integer of at most c.
        OpenDP's own maps and composition; exact noise; rounds outward.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): no such column, or noise
        beyond int64. SpaceError (OS201, OS202): not grid rows, another metric. (OS203): a column of
        fewer than 64 rounded steps.

    Source
        [own] Lemmas R1 to R4 in ``linear_regression.md``; improving a noisy fit by fits of its
        residuals is the idea of Tang, Aydore, Kearns, Rho, Roth, Wang, Wang and Wu (2023).

    Example
        >>> import numpy as np, opendp.prelude as dp
        >>> from opendp_sim.domains.metrics import Symmetric
        >>> from opendp_sim.domains.rows import GridRows, Rows
        >>> dp.enable_features("contrib")
        >>> grid = GridRows(width=2, unit=0.01, lower=(-100,), upper=(100,))
        >>> fit = make_linear_regression(grid, Symmetric(), rho=0.5)
        >>> x = np.linspace(-100, 100, 20_001).round()
        >>> rows = Rows(np.stack([x, (0.5 * x).round()], axis=1))
        >>> intercept, slope = np.array(fit(rows)) / 2**24
        >>> bool(abs(slope - 0.5) < 0.1), fit.map(2)
        (True, 2.0)
    """

    key: ClassVar[str] = "linear_regression"
    in_short: ClassVar[str] = (
        "Fit a line to one column by the others, and improve it in small steps with noise in each."
    )
    source: ClassVar[Proof] = Proof(key="own", where="Lemma R3")
    room = "measurements"
    offers = ("line",)

    rho: Annotated[
        float,
        param(
            "The loss of everything that is released.", symbol="rho", unit="rho of zCDP",
            ge=1e-24, le=1e6, hint="0.017 is epsilon 1, 0.063 is epsilon 2 at delta 1e-6.",
        ),
    ]  # fmt: skip
    target: Annotated[
        int | None,
        param(
            "Index of the column to predict; nothing for the last.", symbol="t", unit="none",
            default=None, ge=0, le=4095,
            hint="write the column's number: from 0, in the order of `select: features`.",
        ),
    ] = None  # fmt: skip
    steps: Annotated[
        int,
        param(
            "Number of noisy gradients; noise grows so that all together cost half of rho.",
            symbol="T", unit="steps", default=4, ge=1, le=1024, hint="4 is enough for most tables.",
        ),
    ] = 4  # fmt: skip
    clip: Annotated[
        float,
        param(
            "The largest residual that counts in a gradient.", symbol="c", unit="half-ranges",
            default=0.4, ge=0.001, le=1000,
            hint="smaller where the target varies less than its bounds: noise grows with it.",
        ),
    ] = 0.4  # fmt: skip
    radius: Annotated[
        float,
        param(
            "Clip the L2 norm of the scaled row, with its constant 1 and its target, to this much.",
            symbol="r", unit="half-ranges", default=1.5, ge=0.001, le=1000,
            hint="1.5 is a start: long rows lose weight, not their relation, and the noise shrinks.",
        ),
    ] = 1.5  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma R3 of ``linear_regression.md`` for this grid, or refuse it."""
        rows = fine_rows(self.key, domain, metric)
        target = rows.width - 1 if self.target is None else self.target
        if target >= rows.width:
            raise ParameterError(
                "OS102", f"{self.key}.target", expected=f"a column below {rows.width}", got=target,
                hint="columns are numbered from 0 in the order of `select: features`.",
            )  # fmt: skip
        stages = TwoStages(Standard(rows, self.radius), target + 1, self.rho, self.steps, self.clip)

        def release(data: Any) -> NDArray[np.int64]:
            data = rows.normal(data)
            rows.check(data)
            return stages.run(scaled_rows(stages.standard, as_rows(data).values))

        return Private(
            measure="zero_concentrated_divergence",
            privacy_map=loss_map(self.key, stages.releases),
            function=release,
            output=NamedArrays((("weights", (rows.width,)),)),
            capabilities={"line": LineReader(stages)},
            mu_squared=mu_squared_of(stages.releases),
            expected={
                "steps": float(self.steps),
                "noise_of_a_residual_sum_in_records": stages.scale
                / sqrt_up(stages.gradient_square),
            },
            reason=f"second moments, then {self.steps} noisy gradients of clipped residuals",
        )


def scaled_rows(standard: Standard, values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return scaled rows (n, d + 1), integers that float32 holds exactly."""
    out = np.empty((len(values), standard.width), dtype=np.float32)
    for start in range(0, len(values), _BLOCK):
        out[start : start + _BLOCK] = standard(values[start : start + _BLOCK])
    return out


make_linear_regression, then_linear_regression = constructors(LinearRegression)
