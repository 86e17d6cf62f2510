"""Quantize real rows to an integer grid (``quantize.md``)."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np

from opendp_sim.core.claims import Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.device.device import Device, OnDevice
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import real_rows
from opendp_sim.domains.row_norms import norm_slack
from opendp_sim.domains.rows import GridRows, RealRows, Rows, as_rows

_LEAST_ON_DEVICE = 2.0**-100
"""Units below which a float32 too small for its exponent matters; a card may read it as zero."""


@register
class Quantize(Mechanism):
    r"""Round coordinates to multiples of a unit, within bounds.

    The unit and the bounds are public.

    Space
        Input: rows of d finite floats under symmetric distance; a dataset has shape (n, d).
        Output: rows of d integers (integer-valued float64), one for each input row, in steps of
        ``unit = (largest bound - smallest bound) / 2**bits``; for columns of whole numbers, of the
        next smaller power of two up to 1, which has no rounding.

    Stability
        .. math:: d_{out} = d_{in}

        Row by row and elementwise, so added and removed rows are all that differs. Exact. Tight.

    Privacy
        None on its own.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): a lower bound is not below
        its upper bound, or bounds are too close or too far apart for floats.
        SpaceError (OS201): not real rows. (OS204): no bounds here or in the type.

    Source
        [own] Lemma 1 in ``quantize.md``.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
        >>> grid = space >> then_quantize(bits=3, bounds=(-1.0, 1.0))
        >>> grid(np.array([[0.3, -9.0]])).values, grid.map(2)
        (array([[ 1., -4.]]), 2)
    """

    key: ClassVar[str] = "quantize"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "rows"

    bits: Annotated[
        int,
        param(
            "Binary digits of the grid: 2**bits steps between the widest pair of bounds.",
            symbol="b", unit="bits", ge=1, le=24,
            hint="12 to 16 is usual; the rounding error is half a step.",
        ),
    ]  # fmt: skip
    bounds: Annotated[
        tuple[float | tuple[float, ...], float | tuple[float, ...]] | None,
        param(
            "Public lower and upper bound, one number each or one a column; values outside clamp.",
            symbol="l,u", unit="data units", default=None,
            hint="give (lower, upper) from public knowledge, or declare bounds on the column.",
        ),
    ] = None  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``quantize.md``."""
        rows = real_rows(self.key, domain, metric, by_person=True)
        lower, upper = self._bounds(rows)
        unit = self._unit(lower, upper, rows.lattice)
        low = tuple(math.floor(v / unit + 0.5) for v in lower)
        high = tuple(math.floor(v / unit + 0.5) for v in upper)
        output = GridRows(
            width=rows.width,
            labels=rows.labels,
            ids=rows.ids,
            unit=unit,
            lower=low,
            upper=high,
            l2=_grid_norm(rows, unit, low, high),
            frame=rows.frame,
            rounding=0.0 if _divides(unit, rows.lattice) else 0.5,
        )

        def steps(data: Any, low: Any, high: Any) -> Rows:
            given = as_rows(data)
            raw = given.values if given.values.dtype.kind in "fiu" else given.values.astype("f8")
            values = np.divide(raw, unit, dtype=np.float64)
            np.rint(values, out=values)  # in place: fresh pages cost as much as the arithmetic
            np.clip(values, low, high, out=values)
            values += 0.0  # one zero: which one `clip` returns depends on the shape
            return Rows(values, given.labels, given.ids)

        least, most = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)

        def steps_on(device: Device, values: OnDevice) -> OnDevice:
            found = device.xp.rint(values.astype(np.float64, copy=False) / unit)
            found = device.xp.maximum(found, device.put(least))
            return device.xp.minimum(found, device.put(most)) + 0.0

        return Stable(
            output=output,
            function=lambda data: steps(data, least, most),
            on_device=steps_on if unit >= _LEAST_ON_DEVICE else None,
            on_queries=lambda data: steps(data, -(2.0**52), 2.0**52),
            expected={"rounding": output.rounding * unit},
        )

    def _unit(
        self, lower: tuple[float, ...], upper: tuple[float, ...], lattice: float | None
    ) -> float:
        """Return the grid's unit, or refuse the bounds."""
        unit = (max(upper) - min(lower)) / 2.0**self.bits
        if lattice is not None and lattice / 2.0**64 < unit < 2.0 * lattice:
            # Lemma 3: the data's own step over a power of two, for at most one more bit.
            unit = lattice * 2.0 ** min(0, math.floor(math.log2(unit / lattice)))
        # Below 2**-1000 or above 2**1000 a step, or what is divided by it, leaves the normal floats.
        if not 2.0**-1000 <= unit <= 2.0**1000 or max(map(abs, (*lower, *upper))) / unit >= 2.0**51:
            raise ParameterError(
                "OS102", f"{self.key}.bounds",
                expected="bounds that are apart by a normal number of their own size",
                got="steps that floats cannot tell apart, or cannot hold",
                hint="change the unit of the data, or lower `bits`.",
            )  # fmt: skip
        return unit

    def _bounds(self, rows: RealRows) -> tuple[tuple[float, ...], tuple[float, ...]]:
        given = self.bounds if self.bounds is not None else (rows.lower, rows.upper)
        lower, upper = (v if isinstance(v, tuple) else (v,) for v in given)
        if not lower:
            raise SpaceError(
                "OS204", self.key, expected="bounds, here or on the column", got="none",
                hint="add `bounds: [lower, upper]` from public knowledge.",
            )  # fmt: skip
        fits = len(lower) == len(upper) and len(lower) in (1, rows.width)
        if not fits or not all(
            math.isfinite(a) and math.isfinite(b) and a < b
            for a, b in zip(lower, upper, strict=True)
        ):
            raise ParameterError(
                "OS102", f"{self.key}.bounds", expected="finite lower < upper, one or one a column",
                got=given, hint="write bounds: [0.0, 16.0], or two lists as long as the row.",
            )  # fmt: skip
        return lower, upper


def _divides(unit: float, lattice: float | None) -> bool:
    """Return whether every multiple of ``lattice`` is whole units."""
    return lattice is not None and unit <= lattice and math.frexp(lattice / unit)[0] == 0.5


def _grid_norm(
    rows: RealRows, unit: float, low: tuple[int, ...], high: tuple[int, ...]
) -> int | None:
    """Return an integer L2 bound in steps."""
    if rows.norm is None or rows.norm[0] == "linf":
        return None
    # An L1 bound is an L2 bound. Clamping toward an interval that holds 0 shortens; else no claim.
    if any(a > 0 for a in low) or any(b < 0 for b in high):
        return None
    return math.ceil(rows.norm[1] / unit * norm_slack(rows.width) + math.sqrt(rows.width) / 2) + 1


make_quantize, then_quantize = constructors(Quantize)
