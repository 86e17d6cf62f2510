"""Release sums of column products, for least squares (``second_moments.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.countable import LARGEST_FEATURE
from opendp_sim.core.arithmetic.linear import integer_gram
from opendp_sim.core.capabilities import Arrays
from opendp_sim.core.claims import SketchBlock, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.device.device import Device, OnDevice
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import fine_rows
from opendp_sim.domains.rows import GridRows, as_rows
from opendp_sim.domains.sketch import Sketch
from opendp_sim.domains.standard import LEVELS, Standard

_CELLS = 2**18
"""Numbers that are scaled and multiplied at a time: their copies stay in the cache."""


@register
class SecondMoments(Mechanism):
    r"""Sum the products of all pairs of scaled columns.

    :math:`z_i z_j`, with columns scaled by their public bounds.

    Space
        Input: rows of d columns on an integer grid, under symmetric distance; every column is moved
        and scaled by its bounds to an integer in [-A, A], A = 1024, and a constant A is put first.
        Output: a flat int64 vector of one block ``products`` of shape ((d+1)(d+2)/2,), the upper
        triangle of :math:`\sum z z^T` by rows; without ``radius`` the first is A**2 times
        the number of records.

    Stability
        .. math:: L_2^2 \le \tfrac12\big(N^2 + m N\big),\quad L_1 \le \tfrac12\big(V^2 + N\big),
                  \quad L_\infty = m = \min(A^2, N)

        per added or removed record, with :math:`N = \min(d + 1, \text{radius}^2) A^2` a bound on
        the squared L2 norm of z and :math:`V = \lfloor \sqrt{(d + 1) N} \rfloor` on its L1 norm.
        Exact in integers. Tight without
        ``radius`` (attained at a corner of the box). Not monotone.

    Privacy
        None on its own. Chain with noise.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not grid
        rows, another metric. (OS203): a column of fewer than 64 rounded steps.

    Source
        [own] Lemma 2 in ``second_moments.md``; sufficient statistics perturbation is Vu and
        Slavkovic's, adapting the fit to what was released Wang's.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
        >>> sketch = (space >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
        ...     >> sim.then_second_moments(radius=None))
        >>> sketch(np.array([[1.0, -1.0], [1.0, 1.0]])), sketch.map(1)
        ([2097152, 2097152, 0, 2097152, 0, 2097152], 6291456)
    """

    key: ClassVar[str] = "second_moments"
    in_short: ClassVar[str] = "Add up the products of every pair of columns."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 2")
    room = "sketches"
    any_units = True
    offers = ("second_moments",)

    radius: Annotated[
        float | None,
        param(
            "Clip the L2 norm of the scaled row, with its constant 1, to this much.", symbol="r",
            unit="half-ranges", default=1.5, ge=0.001, le=1000,
            hint="1.5 is a start: long rows lose weight, not their relation, and the noise shrinks; "
            "null for no clipping.",
        ),
    ] = 1.5  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 2 of ``second_moments.md`` for this grid, or refuse it."""
        rows = fine_rows(self.key, domain, metric)
        reader = SecondMomentReader(Standard(rows, self.radius))
        return Stable(
            output=(output := Sketch(self.key, (reader.block,))),
            accumulate=reader.accumulate,
            on_device=reader.accumulate_on,
            sensitivity=output.sensitivity,
            capabilities={"second_moments": reader},
            expected={"noise of a product per unit of cell noise": reader.noise_factor()},
        )


@dataclass(frozen=True)
class SecondMomentReader:
    """Build one sketch's sums of products, and read its release."""

    standard: Standard

    @property
    def block(self) -> SketchBlock:
        """State Lemma 2."""
        columns, square = self.standard.width, self.standard.norm_squared
        # The L1 norm is at most sqrt((d + 1) N); isqrt rounds down, and L1 norms are integers.
        longest, largest = math.isqrt(columns * square), min(LEVELS**2, square)
        return SketchBlock(
            "products",
            (columns * (columns + 1) // 2,),
            l1=(longest**2 + square) // 2,
            l2_squared=(square**2 + largest * square) // 2,
            linf=largest,
        )

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the products of ``data`` to the flat vector ``out``."""
        values = as_rows(data).values
        upper = np.triu_indices(self.standard.width)
        step = max(1, _CELLS // self.standard.width)
        for start in range(0, len(values), step):
            block = self.standard(values[start : start + step])
            out += integer_gram(block, LEVELS)[upper]

    def accumulate_on(
        self,
        device: Device,
        values: OnDevice,
        labels: NDArray[np.int64] | None,
        out: NDArray[np.int64],
    ) -> None:
        """Add the products of rows in a device's memory to ``out``."""
        del labels
        upper = np.triu_indices(self.standard.width)
        out += device.gram(self.standard.on(device, values), LEVELS)[upper]

    @property
    def width(self) -> int:
        """Number of data columns d."""
        return self.standard.rows.width

    def gram(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return sums of [-1, 1] columns, constant first, and entries' unit deviation."""
        products = np.asarray(released["products"], dtype=np.float64) / LEVELS**2
        matrix = np.zeros((self.standard.width, self.standard.width))
        matrix[np.triu_indices(self.standard.width)] = products
        return matrix + np.triu(matrix, 1).T, self.noise_factor()

    def noise_factor(self) -> float:
        """Return the deviation of a ``gram`` entry per unit of cell noise."""
        return 1.0 / LEVELS**2

    def bounds(self, column: int) -> tuple[float, float]:
        """Return a data column's public bounds in data units."""
        return self.standard.bounds(column)

    def to_data(self, coefficients: NDArray[np.float64], target: int) -> NDArray[np.float64]:
        """Return data-unit coefficients, intercept first, from those of the scaled columns."""
        return self.standard.to_data(coefficients, target)


@dataclass(frozen=True)
class MomentsBeside:
    """Add up the products of a sketch's rows beside its features.

    Products are multiplied by ``times``, and their noise by ``weight`` (Lemma 3).
    """

    reader: SecondMomentReader
    times: int
    weight: int

    @classmethod
    def of(cls, rows: GridRows, l2_squared: int) -> MomentsBeside:
        """Return sums that cost about a twentieth of features of this norm."""
        reader = SecondMomentReader(Standard(rows, math.sqrt(1.0 + rows.width / 3.0)))
        own, share = reader.block.l2_squared, max(1, l2_squared // 20)
        times = min(math.isqrt(share // own), LARGEST_FEATURE // reader.block.linf)
        weight = 1 if times else math.isqrt((own - 1) // share) + 1
        return cls(reader, max(times, 1), weight)

    @property
    def block(self) -> SketchBlock:
        """State Lemma 3."""
        own, times = self.reader.block, self.times
        return SketchBlock(
            own.name,
            own.shape,
            l1=own.l1 * times,
            l2_squared=own.l2_squared * times**2,
            linf=own.linf * times,
            weight=self.weight,
        )

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the products of ``data`` to the flat vector ``out``."""
        found = np.zeros_like(out)
        self.reader.accumulate(data, found)
        out += self.times * found

    def accumulate_on(self, device: Device, values: OnDevice, out: NDArray[np.int64]) -> None:
        """Add the products of rows in a device's memory to ``out``."""
        found = np.zeros_like(out)
        self.reader.accumulate_on(device, values, None, found)
        out += self.times * found

    def gram(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return sums of [-1, 1] columns, constant first, and entries' unit deviation."""
        matrix, factor = self.reader.gram(released)
        return matrix / self.times, factor * self.weight / self.times


make_second_moments, then_second_moments = constructors(SecondMoments)
