"""Project grid rows to fewer columns, distances kept on average (``jl_projection.md``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.lazy_matrices import Drawn
from opendp_sim.core.arithmetic.linear import integer_gram
from opendp_sim.core.arithmetic.row_products import exact_dtype, exact_products
from opendp_sim.core.claims import Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.device.device import Device, OnDevice
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.memory import check_memory
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.checks import grid_rows
from opendp_sim.domains.rows import GridRows, Rows, as_rows

# --------------------------------------------------------------------------------------------------
# The Walsh-Hadamard transform of integer rows: additions only, exact below 2**53.
#
# Every partial sum is a signed sum of the row's own entries, so a bound on their absolute sum below
# 2**53 makes each float64 operation exact and the result independent of how rows are batched.

_CELLS = 2**19


def signed_hadamard(
    values: NDArray[np.float64], signs: NDArray[np.int8], places: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return ``places`` (k,) of ``H diag(signs) x`` for each row, shape (n, k).

    ``H`` is the D x D matrix of ``(-1)**popcount(i & j)``, D the least power of two that is at least
    the width; rows (n, d) are padded with zeros. They are integers whose absolute values add up below
    2**53 in each row; signs are -1 or 1.
    """
    count, width = values.shape
    full = 1 << (width - 1).bit_length()
    out = np.empty((count, len(places)))
    for part in _parts(count, full):
        # Columns of the batch are rows of the work array: each step adds whole contiguous runs.
        work = np.zeros((full, part.stop - part.start))
        np.multiply(values[part].T, signs[:, None], out=work[:width])
        half = 1
        while half < full:
            pairs = work.reshape(full // (2 * half), 2, half, -1)
            total = pairs[:, 0] + pairs[:, 1]
            np.subtract(pairs[:, 0], pairs[:, 1], out=pairs[:, 1])
            pairs[:, 0] = total
            half *= 2
        out[part] = work[places].T
    out += 0.0  # one zero: the sign of zero would depend on the order of additions
    return out


def _parts(count: int, full: int) -> Iterator[slice]:
    step = max(1, _CELLS // full)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


@dataclass(frozen=True)
class SampledHadamard:
    """Random signs (d,), and which k coordinates of the transform are kept."""

    signs: NDArray[np.int8]
    places: NDArray[np.int64]

    @classmethod
    def draw(cls, key: str, seed: int, width: int, dimension: int) -> SampledHadamard:
        """Draw ``dimension`` of a transform's coordinates from a public seed (OS102)."""
        full = 1 << (width - 1).bit_length()
        if dimension > full:
            raise ParameterError(
                "OS102", f"{key}.dimension", expected=f"at most {full} columns", got=dimension,
                hint="use form: dense, or project to fewer columns.",
            )  # fmt: skip
        generator = public_generator(seed, key, "hadamard")
        signs = 2 * generator.integers(0, 2, size=width, dtype=np.int8) - 1
        return cls(signs, generator.permutation(full)[:dimension])

    @property
    def matrices(self) -> tuple[NDArray[np.generic], ...]:
        """The public matrices, for the release's fingerprint."""
        return self.signs, self.places

    def project(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Project rows."""
        return signed_hadamard(values, self.signs, self.places)

    def far(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Project public queries, which may lie outside the bounds."""
        return self.project(values)

    def middle(self, both: NDArray[np.float64]) -> tuple[int, int]:
        """Return the extreme products with the sum of the bounds."""
        found = self.far(both[None, :])
        return int(found.min()), int(found.max())

    def norm_squared(self) -> int:
        """Bound the squared largest factor, with H's exactly sqrt(D)."""
        full = 1 << (len(self.signs) - 1).bit_length()
        return min(full, len(self.signs) * len(self.places))


# --------------------------------------------------------------------------------------------------

_SLOPES = {
    "gaussian": 2 / math.e,
    "exponential": 1 / math.e,
    "cauchy": 1 / 2,
    "rational": 1 / 4,
    "p_stable_l2": 0.3600503822,
}
"""Largest ``|r k'(r)|`` of exp(-r^2), exp(-r), 1 / (1 + r^2), 1 / (1 + r) and RACE's L2 kernel."""
_FEW = 1000
"""Below this many columns the time saved is not worth the error."""
_AT_ONCE = 2**22
"""Up to this many signs are drawn to state the type; beyond, it is stated for any signs."""
_GRAM = 2**31
"""Up to this many products the norm of the matrix is bounded from its Gram matrix."""


@register
class JlProjection(Mechanism):
    r"""Project rows on few random directions, in integers.

    ``x`` becomes ``x S`` with S of signs.

    Space
        Input: rows of d integers under symmetric distance, in steps of ``unit``.
        Output: rows of ``dimension`` integers in steps of ``unit / sqrt(dimension)``, so that
        distances are kept on average; the bounds (and an L2 bound) of what S can produce.

    Stability
        .. math:: d_{out} = d_{in}

        Row by row, by exact integer arithmetic, so added and removed rows are all that differs.
        Exact. Tight.

    Privacy
        None on its own.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): more columns than the
        Hadamard form has. SpaceError (OS201, OS202): not grid rows, another metric. (OS203): sums
        of a row's entries could reach 2**51.

    Source
        [own] Lemma 1 in ``jl_projection.md``.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=3, nan=False, T=float), dp.symmetric_distance()
        >>> small = (space >> sim.then_quantize(bits=4, bounds=(-1.0, 1.0))
        ...     >> sim.then_jl_projection(dimension=2, seed=3))
        >>> small(np.array([[1.0, 0.0, 0.0]])).values ** 2, small.map(2)
        (array([[64., 64.]]), 2)
    """

    key: ClassVar[str] = "jl_projection"
    in_short: ClassVar[str] = "Shorten every row to fewer whole numbers, by a public random matrix."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "rows"

    dimension: Annotated[
        int,
        param(
            "Number of columns after the projection.", symbol="k", unit="columns", ge=1, le=65536,
            hint="the error of a kernel falls as 1 / sqrt(k): 16 to 64 is usual.",
        ),
    ]  # fmt: skip
    seed: Seed
    form: Annotated[
        Literal["dense", "hadamard"],
        param(
            "Independent signs, or sampled rows of a randomly signed Hadamard matrix.",
            symbol="F", unit="form", default="dense",
            hint="hadamard is faster from about 1,000 columns to about 100.",
        ),
    ] = "dense"  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemmas 1 and 2 of ``jl_projection.md``."""
        rows = grid_rows(self.key, domain, metric, by_person=True)
        if rows.width * rows.magnitude >= 2**51:
            raise SpaceError(
                "OS203", f"{self.key}.input_domain", expected="sums of a row's entries below 2**51",
                got=f"a bound of 2**{math.log2(rows.width * rows.magnitude):.1f}",
                hint="quantize to fewer bits.",
            )  # fmt: skip
        drawn = self._drawn(rows)

        def project(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return drawn.project(np.asarray(values, dtype=np.float64))

        def projected(data: Any) -> Rows:
            given = as_rows(data)
            return Rows(project(given.values), given.labels, given.ids)

        return Stable(
            output=_image(rows, self.dimension, drawn),
            function=projected,
            on_device=drawn.project_on if isinstance(drawn, _Dense) else None,
            on_queries=lambda data: Rows(drawn.far(as_rows(data).values)),
            widened_by="dimension",
            matrices=drawn.matrices,
            expected=_errors(self.dimension)
            | {"relative deviation of squared distances": math.sqrt(2 / self.dimension)}
            | self._work(rows.width),
            advice=_advice(rows.width),
        )

    def _drawn(self, rows: GridRows) -> _Dense | SampledHadamard:
        if self.form == "dense":
            return _Dense.draw(self, rows)
        return SampledHadamard.draw(self.key, self.seed, rows.width, self.dimension)

    def _work(self, columns: int) -> dict[str, float]:
        """Return the multiplications that a later sketch saves."""
        full = 1 << (columns - 1).bit_length()
        own = columns * self.dimension if self.form == "dense" else full * (full.bit_length() - 1)
        return {
            "own additions per row": float(own),
            "share left of a later sketch's products": self.dimension / columns,
        }


@dataclass(frozen=True)
class _Dense:
    """Hold independent signs in the narrowest exact float, drawn at first use."""

    mechanism: JlProjection
    width: int
    dtype: type[np.floating[Any]]

    @classmethod
    def draw(cls, mechanism: JlProjection, rows: GridRows) -> _Dense:
        needed = 6 * mechanism.dimension * rows.width  # signs as int8 twice, and as floats
        check_memory(
            needed, mechanism.key, "the directions", "`dimension`, or write form: hadamard"
        )
        longest = math.sqrt(rows.width) * rows.magnitude
        dtype = exact_dtype(longest, math.sqrt(rows.width), f"{mechanism.key}.input_domain")
        return cls(mechanism, rows.width, dtype)

    @property
    def cells(self) -> int:
        return self.mechanism.dimension * self.width

    @cached_property
    def signs(self) -> NDArray[Any]:
        """The signs, shape (k, d)."""
        shape = self.mechanism.dimension, self.width
        generator = public_generator(self.mechanism.seed, self.mechanism.key, "signs")
        bits = generator.integers(0, 2, size=shape, dtype=np.int8)
        return (2 * bits - 1).astype(self.dtype)

    @property
    def matrices(self) -> Drawn:
        return Drawn(self.cells, lambda: (self.signs.astype(np.int8),))

    def project(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        product = exact_products(values.astype(self.signs.dtype, copy=False), self.signs)
        # Adding zero leaves one zero: its sign would depend on the order of additions.
        out: NDArray[np.float64] = product.astype(np.float64) + 0.0
        return out

    def project_on(self, device: Device, values: OnDevice) -> OnDevice:
        """Project rows in a device's memory."""
        rows = values.astype(self.signs.dtype, copy=False)
        found = device.checked_products(rows, device.put(self.signs))
        return found.astype(np.float64) + 0.0

    def far(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Project public queries, which may lie outside the bounds."""
        return exact_products(values, self.signs.astype(np.float64)) + 0.0

    def middle(self, both: NDArray[np.float64]) -> tuple[int, int]:
        """Return bounds of the products with the sum of the bounds."""
        if self.cells > _AT_ONCE:
            most = int(np.abs(both).sum())
            return -most, most
        found = self.far(both[None, :])
        return int(found.min()), int(found.max())

    def norm_squared(self) -> int:
        """Bound the squared largest factor of a row's length."""
        few, most = sorted((self.mechanism.dimension, self.width))
        plain = self.cells
        if self.cells > _AT_ONCE or few**2 * most > _GRAM:
            return plain
        short = self.signs if few == len(self.signs) else self.signs.T
        gram = integer_gram(short.T.astype(np.float64), 1)
        # Eigenvalues of a symmetric matrix are at most its largest absolute row sum.
        return min(plain, int(np.abs(gram).sum(axis=1).max()))


def _image(rows: GridRows, dimension: int, drawn: _Dense | SampledHadamard) -> GridRows:
    """Return the output's type (Lemma 2)."""
    lower = np.broadcast_to(np.array(rows.lower, dtype=np.int64), rows.width)
    upper = np.broadcast_to(np.array(rows.upper, dtype=np.int64), rows.width)
    low, high = drawn.middle((lower + upper).astype(np.float64))
    spread = int((upper - lower).sum())
    least, most = (low - spread) // 2, (high + spread) // 2
    l2, rounding = None, 0.0
    if rows.rounding:  # Lemma 5: the longest move of a row, in root mean square
        longest = math.sqrt(drawn.norm_squared() * rows.width)
        rounding = rows.rounding * longest / math.sqrt(dimension)
    if rows.l2 is not None:
        reach = math.isqrt(rows.width * rows.l2**2)
        least, most = max(least, -reach), min(most, reach)
        l2 = math.isqrt(drawn.norm_squared() * rows.l2**2) + 1
    return GridRows(
        width=dimension,
        labels=rows.labels,
        ids=rows.ids,
        unit=rows.unit / math.sqrt(dimension),
        lower=(least,),
        upper=(most,),
        l2=l2,
        distortion=(2.0, math.sqrt(2 / dimension), 0.0),
        rounding=rounding,
    )


def _errors(dimension: int) -> dict[str, float]:
    """Bound kernel values' expected absolute error (Lemma 3)."""
    half = dimension / 2
    drift = (special.psi(half) - math.log(half)) / 2
    spread = math.sqrt(float(special.polygamma(1, half)) / 4 + drift**2)
    return {f"jl_error_{name}": slope * spread for name, slope in _SLOPES.items()}


def _advice(columns: int) -> tuple[str, ...]:
    if columns >= _FEW:
        return ()
    return (
        (
            f"in front of a kernel sketch it only adds error at {columns} columns: it saves little time "
            f"below about {_FEW:,}."
        ),
    )


make_jl_projection, then_jl_projection = constructors(JlProjection)
