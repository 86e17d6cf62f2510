"""Release moments of each cell's records, in low dimension (``gauss_transform_sketch.md``)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.linear import public_product
from opendp_sim.core.capabilities import Arrays, KernelEstimates
from opendp_sim.core.claims import SketchBlock, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import grid_rows, kept_distance
from opendp_sim.domains.rows import GridRows, as_rows
from opendp_sim.domains.sketch import Sketch
from opendp_sim.transformations.sketches._impl.classes import PerClassReader, PerLabel

# --------------------------------------------------------------------------------------------------
# The public cells of a Gauss transform sketch: they take in its records, and read a release of it.
#
# The proofs are in ``gauss_transform_sketch.md``, beside the mechanism.

DIGITS = 16
"""Q: a moment of order 0 is the integer 2**Q, and residuals keep Q binary digits of a cell."""
MOST_COLUMNS, _MOST_CELLS = 3, 2**26
_MOST_STEPS = 2**25
"""Most grid steps of a cell's side: Lemma 1 divides by twice as many."""
_BLOCK = 2**17
"""Records folded at a time."""
_CRAMER = 1.0865
"""``|H_j(z)| exp(-z^2 / 2) <= 1.0865 sqrt(2^j j!)``, Cramer's inequality."""


def largest_moments(order: int, columns: int) -> list[int]:
    """Return a record's largest integer moments by exponents (Lemma 1)."""
    exponents = itertools.product(range(order), repeat=columns)
    return [2**DIGITS >> sum(exponent) for exponent in exponents]


@dataclass(frozen=True)
class GaussReader(PerClassReader):
    """Build one sketch from public cells, and read its release."""

    mechanism: GaussTransformSketch
    rows: GridRows
    lower: NDArray[np.float64]
    cell: int
    """Side of a cell, in grid steps."""
    counts: tuple[int, ...]
    """Cells along each column."""
    weight: int

    @classmethod
    def fit(cls, mechanism: GaussTransformSketch, rows: GridRows, weight: int) -> GaussReader:
        """Lay cells over the type's bounds."""
        cell = math.floor(min(mechanism.side * mechanism.bandwidth / rows.unit, 2.0 * _MOST_STEPS))
        lower = np.broadcast_to(np.array(rows.lower, dtype=np.float64), (rows.width,))
        upper = np.broadcast_to(np.array(rows.upper, dtype=np.float64), (rows.width,))
        counts = tuple(int(v) for v in (upper - lower) // max(cell, 1) + 1)
        reader = cls(mechanism, rows, lower, cell, counts, weight)
        if not 2 <= cell <= _MOST_STEPS or math.prod(reader.shape) > _MOST_CELLS:
            raise ParameterError(
                "OS102", f"{mechanism.key}.bandwidth",
                expected=f"cells of 2 to 2**25 grid steps, and at most {_MOST_CELLS} numbers",
                got=f"cells of {cell} steps, {math.prod(reader.shape)} numbers",
                hint="quantize to other bits, choose another bandwidth, lower the order, or use "
                "`fourier_sketch`.",
            )  # fmt: skip
        return reader

    @property
    def per_label(self) -> bool:
        """Whether there is one structure a label."""
        return self.mechanism.per_label

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the moments."""
        return (self.classes, *self.counts, *(self.mechanism.order,) * self.rows.width)

    @property
    def distance(self) -> str:
        """The distance that the kernel is a function of."""
        return "l2"

    @property
    def side(self) -> float:
        """Side of a cell in bandwidths, as rounded."""
        return self.cell * self.rows.unit / self.mechanism.bandwidth

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows = as_rows(data)
        labels = rows.labels if self.mechanism.per_label else None
        size = math.prod(self.shape)
        moments = out[:size].reshape(-1, self.mechanism.order**self.rows.width)
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            self._fold(rows.values[part], None if labels is None else labels[part], moments)
        sizes = [len(rows)] if labels is None else np.bincount(labels, minlength=self.classes)
        out[size:] += self.weight * np.asarray(sizes, dtype=np.int64)

    def _fold(
        self,
        values: NDArray[np.float64],
        labels: NDArray[np.int64] | None,
        moments: NDArray[np.int64],
    ) -> None:
        """Add integer moments (cells, exponents)."""
        index = np.zeros(len(values), dtype=np.int64) if labels is None else labels.astype(np.int64)
        powers = []
        for column, count in enumerate(self.counts):
            offset = values[:, column] - self.lower[column]
            place = np.floor_divide(offset, self.cell)
            index = index * count + place.astype(np.int64)
            # Twice the distance from the middle of the cell, an integer in [1 - cell, cell - 1].
            residual = 2.0 * (offset - place * self.cell) - (self.cell - 1)
            residual = np.trunc(residual * 2.0**DIGITS / (2 * self.cell))
            powers.append(_powers(residual, self.mechanism.order))
        each = itertools.product(range(self.mechanism.order), repeat=len(powers))
        for column, exponents in enumerate(each):
            feature = powers[0][exponents[0]]
            for power, exponent in zip(powers[1:], exponents[1:], strict=True):
                feature = np.trunc(feature * power[exponent] * 2.0**-DIGITS)
            # Sums of integers below 2**53, so bincount's float sums are exact in any order.
            sums = np.bincount(index, weights=feature, minlength=len(moments))
            moments[:, column] += sums.astype(np.int64)

    # --- reading --------------------------------------------------------------------------------

    def estimate(self, released: Arrays, queries: Any, groups: int = 1) -> KernelEstimates:
        """Return the estimates of kernel sums, without repetitions (Lemma 2)."""
        values = as_rows(queries).values
        order, columns = self.mechanism.order, self.rows.width
        moments = np.asarray(released["moments"], dtype=np.float64).reshape(self.shape) / 2**DIGITS
        # Axes to (L, cells_1, exponents_1, cells_2, exponents_2, ...), then one axis a column.
        axes = [0, *(axis for i in range(columns) for axis in (1 + i, 1 + columns + i))]
        folded = moments.transpose(axes).reshape(self.classes, self.counts[0] * order, -1)
        found = np.empty((self.classes, len(values)))
        step = max(1, 2**22 // folded.shape[2])
        for start in range(0, len(values), step):
            part = slice(start, start + step)
            weights = [self._weights(values[part, i], i) for i in range(columns)]
            for label in range(self.classes):
                partial = public_product(weights[0], folded[label])
                for weight in weights[1:]:
                    partial = partial.reshape(len(weight), weight.shape[1], -1)
                    partial = np.einsum("qab,qa->qb", partial, weight)
                found[label, part] = partial[:, 0]
        every = np.repeat(found[None], groups, axis=0)
        return KernelEstimates(every, np.zeros_like(found), 1, np.array(math.inf))

    def _weights(self, values: NDArray[np.float64], column: int) -> NDArray[np.float64]:
        """Return queries' weights by column's cell and exponent, ``(q, M * r)``."""
        middles = self.lower[column] + np.arange(self.counts[column]) * self.cell
        middles = middles + (self.cell - 1) / 2
        z = (values[:, None] - middles) * (self.rows.unit / self.mechanism.bandwidth)
        terms = hermite_terms(z, self.side, self.mechanism.order)
        return np.moveaxis(terms, 0, 2).reshape(len(values), -1)

    def totals(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the released sizes by class and their noise per cell deviation."""
        return np.asarray(released["total"], dtype=np.float64) / self.weight, self.count_factor()

    def medians_of(self, groups: int) -> int:
        """Return the number of groups of `estimate`, 1 without draws."""
        del groups
        return 1

    def count_factor(self) -> float:
        """Return the record count's deviation per unit of cell noise."""
        return 1.0 / self.weight

    @cached_property
    def _query_norm(self) -> float:
        """Return a column's largest L2 norm of weights (Lemma 3)."""
        reach = math.ceil(6.0 / self.side)
        inside = np.linspace(-0.5, 0.5, 65)
        z = (inside[:, None] - np.arange(-reach, reach + 1)) * self.side
        terms = hermite_terms(z, self.side, self.mechanism.order)
        return float(np.sqrt(np.square(terms).sum(axis=(0, 2)).max()))

    def with_count(self) -> float:
        """Return the covariance of an estimate and the unread count."""
        return 0.0

    def noise_factor(self) -> float:
        """Return an estimate's largest noise per unit of cell noise (Lemma 3)."""
        return float(self._query_norm**self.rows.width / 2**DIGITS)

    def change(self, moved: float) -> float:
        """Bound a kernel value's change when its distance changes by ``moved``."""
        return min(moved * math.sqrt(2.0 / math.e) / self.mechanism.bandwidth, 1.0)

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kernel at real distances."""
        return np.exp(-np.square(distance / self.mechanism.bandwidth))

    def bias(self, queries: Any = None) -> float:
        """Return the largest error of one record's kernel value."""
        del queries
        return self.truncation()

    def truncation(self) -> float:
        """Return the largest error of one record's kernel value (Lemma 2)."""
        order = np.arange(self.mechanism.order + 60)
        log_factorial = np.cumsum(np.log(np.maximum(order, 1)))
        bound = _CRAMER * np.exp(order * math.log(self.side / math.sqrt(2)) - log_factorial / 2)
        kept = bound[: self.mechanism.order]
        # An integer power of exponent j is short by at most min(j, 2.25) steps of 2**-Q.
        steps = np.minimum(order[: len(kept)], 2.25)
        weight = kept * 2.0 ** order[: len(kept)]
        columns, step = self.rows.width, 2.0**-DIGITS
        tail, short = float(bound[len(kept) :].sum()), float((weight * steps).sum()) * step
        products = (columns - 1) * step * float(weight.sum()) ** columns
        whole = float(bound.sum()) + short
        return columns * whole ** (columns - 1) * (tail + short) + products

    def sketch_deviation(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the error without noise, ``truncation`` times the records."""
        rows, queries = distance.shape
        return np.full(queries, rows * self.truncation())


def hermite_terms(z: NDArray[np.float64], side: float, order: int) -> NDArray[np.float64]:
    """Return ``side^j / j! H_j(z) exp(-z^2)`` for j below ``order``, first axis."""
    terms = np.empty((order, *z.shape))
    terms[0] = np.exp(-z * z)
    if order > 1:
        terms[1] = 2.0 * side * z * terms[0]
    for j in range(2, order):
        # H_j = 2 z H_{j-1} - 2 (j - 1) H_{j-2}, both terms scaled by side^j / j!.
        terms[j] = (2.0 * side / j) * (z * terms[j - 1] - side * terms[j - 2])
    return terms


def _powers(residual: NDArray[np.float64], order: int) -> list[NDArray[np.float64]]:
    """Return 2**Q times the powers of ``residual / 2**Q``."""
    powers = [np.full(residual.shape, 2.0**DIGITS)]
    for _ in range(1, order):
        powers.append(np.trunc(powers[-1] * residual * 2.0**-DIGITS))
    return powers


# --------------------------------------------------------------------------------------------------


@register
class GaussTransformSketch(Mechanism):
    r"""Sum monomials of records' places, cell by cell.

    Space
        Input: rows of d <= 3 columns on an integer grid, with or without labels, under symmetric
        distance. Output: a flat int64 vector of two blocks: ``moments`` of shape
        (L, M_1, ..., M_d, r, ..., r), where the last d axes are the exponents of the residual in
        units of a cell, times 2**16 and truncated; and ``total`` of shape (L,), ``count_weight``
        times the number of records of class l. L is 1 without ``per_label``.

    Stability
        .. math:: L_1 = \sum_{|j|} m_j + w,\quad L_2^2 = \sum_{|j|} m_j^2 + w^2,\quad
                  L_\infty = \max(2^{16}, w),\qquad m_j = \lfloor 2^{16 - |j|} \rfloor

        over exponents :math:`j \in \{0..r-1\}^d`, per added or removed record: a residual is at most
        half a cell. Exact in integers. Within a part in the steps of a cell of attained.

    Privacy
        None on its own. Chain with noise.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): cells are smaller than two
        grid steps, or too many. SpaceError (OS201, OS202): not grid rows of at most three columns,
        another metric. (OS204): `per_label` without labels.

    Source
        [own] Lemma 1 in ``gauss_transform_sketch.md``; the expansion is Greengard and Strain's, the
        private sum of it is Wagner, Naamad and Mishra's.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=1, nan=False, T=float), dp.symmetric_distance()
        >>> sketch = (space >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
        ...     >> sim.then_gauss_transform_sketch(bandwidth=0.5, order=3, count_weight=5))
        >>> sketch(np.zeros((4, 1)))[-1], sketch.map(1)
        (20, 114693)
    """

    key: ClassVar[str] = "gauss_transform_sketch"
    in_short: ClassVar[str] = (
        "Divide space into cells, and add up where in its cell every record lies."
    )
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "sketches"
    offers = ("kernel_sums",)

    bandwidth: Annotated[
        float,
        param(
            "Bandwidth h of the kernel exp(-r**2 / (2 h**2)); `make_`, `then_` and records take "
            "h sqrt(2).", symbol="sigma",
            unit="data units", gt=0,
            hint="the distance at which two records count as near; cells grow with it.",
        ),
    ]  # fmt: skip
    order: Annotated[
        int,
        param(
            "Exponents per column.", symbol="r", unit="terms", default=8, ge=1, le=14,
            hint="6 to 10: the error per record is 1e-3 at 6, 4e-5 at 8, 1e-6 at 10.",
        ),
    ] = 8  # fmt: skip
    side: Annotated[
        float,
        param(
            "Side of a cell in bandwidths, rounded to whole grid steps.", symbol="h",
            unit="bandwidths", default=0.75, gt=0, le=2,
            hint="0.75 has the least noise under zCDP; larger cells are fewer and need more terms.",
        ),
    ] = 0.75  # fmt: skip
    per_label: PerLabel = False
    count_weight: Annotated[
        int | None,
        param(
            "Integer weight of the total count's own cell.", symbol="w", unit="none", default=None,
            ge=1, le=2**20, hint="default: a twentieth of the moments' squared L2 norm.",
        ),
    ] = None  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``gauss_transform_sketch.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        if rows.width > MOST_COLUMNS:
            raise SpaceError(
                "OS201", f"{self.key}.input_domain", expected=f"at most {MOST_COLUMNS} columns",
                got=f"{rows.width} columns",
                hint="the sketch grows as a power of the columns: use `fourier_sketch`.",
            )  # fmt: skip
        most = largest_moments(self.order, rows.width)
        l1, l2_squared = sum(most), sum(m * m for m in most)
        weight = self.count_weight or max(1, round(math.sqrt(l2_squared / 20)))
        reader = GaussReader.fit(self, rows, weight)
        blocks = (
            SketchBlock("moments", reader.shape, l1=l1, l2_squared=l2_squared, linf=2**DIGITS),
            SketchBlock("total", (reader.classes,), l1=weight, l2_squared=weight**2, linf=weight),
        )  # Lemma 1
        return Stable(
            output=(output := Sketch(self.key, blocks)),
            accumulate=reader.accumulate,
            sensitivity=output.sensitivity,
            capabilities={"kernel_sums": reader},
            expected={
                "noise per unit of cell noise": reader.noise_factor(),
                "error per record": reader.truncation(),
                "kernel steepness": 2.0 / math.e,
            },
            advice=kept_distance(rows, reader.distance),
        )


make_gauss_transform_sketch, then_gauss_transform_sketch = constructors(GaussTransformSketch)
