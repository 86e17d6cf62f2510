"""Release counts of records' signed projections, for regression (``paired_projections.md``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, KernelSums
from opendp_sim.core.claims import Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import fine_rows
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows, as_rows
from opendp_sim.domains.sketch import Sketch
from opendp_sim.domains.standard import LEVELS, Standard
from opendp_sim.transformations.sketches.kernels._impl.hash_families import SignedProjections
from opendp_sim.transformations.sketches.kernels.race_sketch import RaceSketch

_BLOCK = 2**15


@register
class PairedProjections(Mechanism):
    r"""Count sign patterns of records under random projections.

    Of :math:`z = (1, x, y)`.

    Space
        Input: rows of d columns on an integer grid, under symmetric distance; every column is moved
        and scaled by its public bounds to an integer in [-1024, 1024], and a constant is put first.
        Output: a flat int64 vector of one block ``counts`` of shape (1, R, 2**p), where cell
        (0, r, b) counts the records whose p signs in repetition r are the bits of b. The published
        method, kept for comparison: up to epsilon 2 its fits were at or above the error of predicting
        the mean on each set tried; ``second_moments`` fits better from the same budget.

    Stability
        .. math:: L_1 = R,\quad L_2 = \sqrt{R},\quad L_\infty = 1

        per added or removed record: it adds one to one cell in each repetition (the published
        variant, which inserts z and -z, has twice the L1 norm). Exact. Tight. Monotone.

    Privacy
        None on its own. Chain with noise.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not grid
        rows, another metric. (OS203): a column of fewer than 64 rounded steps.

    Source
        [own] Lemma 1 in ``paired_projections.md``; the surrogate is Coleman and Shrivastava's.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
        >>> sketch = (space >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
        ...     >> sim.then_paired_projections(repetitions=3, bits=2, seed=7))
        >>> sum(sketch(np.zeros((5, 2)))), sketch.map(2)
        (15, 6)
    """

    key: ClassVar[str] = "paired_projections"
    in_short: ClassVar[str] = "Count on which side of public random planes the records lie."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "sketches"
    any_units = True
    offers = ("surrogate_loss",)

    repetitions: Annotated[
        int,
        param(
            "Number of independent sign hashes.", symbol="R", unit="hashes", ge=1, le=65536,
            hint="1,000 to 8,000 under zCDP; the loss is a step function that this makes smooth.",
        ),
    ]  # fmt: skip
    bits: Annotated[
        int,
        param(
            "Signs in one hash; the surrogate is convex from 2 on.", symbol="p", unit="bits", ge=2,
            le=12, hint="4 is the published choice.",
        ),
    ] = 4  # fmt: skip
    seed: Seed

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``paired_projections.md`` for this grid, or refuse it."""
        rows = fine_rows(self.key, domain, metric)
        standard = Standard(rows)
        scaled = GridRows(
            width=standard.width, unit=1.0 / LEVELS, lower=(-LEVELS,), upper=(LEVELS,)
        )
        hashed = RaceSketch(
            repetitions=self.repetitions,
            buckets=2**self.bits,
            seed=self.seed,
            count_weight=0,
            family=SignedProjections(bits=self.bits),
        ).bind(scaled, Symmetric())
        reader = PairedReader(standard, hashed)
        return Stable(
            output=(output := Sketch(self.key, hashed.output.blocks, monotone=True)),  # type: ignore[attr-defined]
            accumulate=reader.accumulate,
            sensitivity=output.sensitivity,
            capabilities={"surrogate_loss": reader},
            matrices=hashed.matrices,
            expected={"noise of the loss per unit of cell noise": reader.noise_factor()},
        )


@dataclass(frozen=True)
class PairedReader:
    """Build one sketch's counts, and read its surrogate loss."""

    standard: Standard
    hashed: Stable

    @property
    def _sums(self) -> KernelSums:
        sums: KernelSums = self.hashed.capabilities["kernel_sums"]
        return sums

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the sign patterns of ``data`` to the flat vector ``out``."""
        values = as_rows(data).values
        for start in range(0, len(values), _BLOCK):
            self.hashed.accumulate(Rows(self.standard(values[start : start + _BLOCK])), out)  # type: ignore[misc]

    @property
    def width(self) -> int:
        """Number of data columns d."""
        return self.standard.rows.width

    def loss(self, released: Arrays, directions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the summed surrogate of directions (k, d + 1), shape (k,).

        Lemma 2: ``sum_x ((1 - a/pi)^p + (a/pi)^p) / 2`` for the angle a between record and
        direction; both signs of the direction are read from the one set of counts.
        """
        scaled = directions * (LEVELS / np.abs(directions).max(axis=1, keepdims=True))
        either = np.concatenate([scaled, -scaled])
        found = self._sums.estimate(released, either).groups[0, 0]
        both: NDArray[np.float64] = (found[: len(directions)] + found[len(directions) :]) / 2.0
        return both

    def noise_factor(self) -> float:
        """Return the loss's noise per unit of cell noise."""
        return self._sums.noise_factor() / 2**0.5

    def bounds(self, column: int) -> tuple[float, float]:
        """Return a data column's public bounds in data units."""
        return self.standard.bounds(column)

    def to_data(self, coefficients: NDArray[np.float64], target: int) -> NDArray[np.float64]:
        """Return data-unit coefficients, intercept first, from those of the scaled columns."""
        return self.standard.to_data(coefficients, target)


make_paired_projections, then_paired_projections = constructors(PairedProjections)
