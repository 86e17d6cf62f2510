"""Rescale columns by public numbers, so that units compare (``rescale.md``)."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import real_rows
from opendp_sim.domains.frame import composed
from opendp_sim.domains.rows import RealRows, Rows, as_rows

_LARGEST = 2.0**1000
_LONGEST = 2.0**500
"""A norm bound whose square is a float; beyond it none is stated."""
_HALVINGS = 8
"""How much finer than the data's own steps a centre may make them."""


@register
class Rescale(Mechanism):
    r"""Move columns by public numbers and divide by public units.

    Space
        Input: rows of d finite floats under symmetric distance; a dataset has shape (n, d).
        Output: :math:`z_j = (x_j - c_j) / h_j`, of the same shape. With ``scale: range`` a column
        with bounds l, u has :math:`h = u - l` and becomes about [-1/2, 1/2]; the type carries c and
        h, and answers that are points or columns come back in the data's own units; distances,
        and the bandwidths of kernels, are those of the rescaled rows: in ranges, or in units of h.

    Stability
        .. math:: d_{out} = d_{in}

        Row by row and elementwise, so added and removed rows are all that differs. Exact. Tight.

    Privacy
        None on its own.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): another number of entries
        than columns, or a unit outside [2**-1000, 2**1000]. SpaceError (OS201, OS202): not real rows,
        another metric. (OS204): the range or the middle of a column without bounds.

    Source
        [own] Lemmas 1 and 2 in ``rescale.md``.

    Example
        >>> import numpy as np
        >>> from opendp_sim.domains.metrics import Symmetric
        >>> from opendp_sim.domains.rows import RealRows
        >>> declared = RealRows(width=2, lower=(0.0, 0.0), upper=(4.0, 20000.0))
        >>> alike = make_rescale(declared, Symmetric())
        >>> alike(np.array([[1.0, 20000.0]])).values, alike.map(2)
        (array([[-0.25,  0.5 ]]), 2)
    """

    key: ClassVar[str] = "rescale"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "rows"

    centre: Annotated[
        Literal["middle", "none"] | tuple[float, ...],
        param(
            "What is subtracted: the middle of each column's bounds, nothing, or numbers, one for "
            "all or one a column.", symbol="c", unit="data units", default="middle",
            hint="middle, where a norm is clipped or paid for; it changes no distance.",
        ),
    ] = "middle"  # fmt: skip
    scale: Annotated[
        Literal["range", "unit"] | tuple[float, ...],
        param(
            "What a column is divided by: the length of its bounds, 1, or numbers, one for all or "
            "one a column.", symbol="h", unit="data units", default="range",
            hint="range where columns have unlike units; numbers to say how much each one matters; "
            "unit to say that distances in data units are meant. After range or numbers distances, "
            "bandwidths and widths count in these units: 0.1 is a tenth of a range.",
        ),
    ] = "range"  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemmas 1 and 2 of ``rescale.md``."""
        rows = real_rows(self.key, domain, metric, by_person=True)
        centre, scale = self._centre(rows), self._scale(rows)
        output = self._image(rows, centre, scale)
        # Without bounds the difference or the quotient of two floats may be infinite.
        bound = not rows.lower

        def rescaled(data: Any) -> Rows:
            given = as_rows(data)
            with np.errstate(over="ignore", under="ignore"):
                values = np.asarray(given.values, dtype=np.float64) - centre
                values /= scale
            if bound:
                most = np.finfo(np.float64).max
                np.clip(values, -most, most, out=values)
            values += 0.0  # one zero: which one a difference gives depends on its operands
            return Rows(values, given.labels, given.ids)

        return Stable(output=output, function=rescaled)

    def _centre(self, rows: RealRows) -> NDArray[np.float64]:
        if self.centre == "none":
            return np.zeros(rows.width)
        if self.centre == "middle":
            lower, upper = self._bounds(rows, "centre: middle")
            return lower / 2.0 + upper / 2.0
        return self._given(rows, "centre", self.centre)

    def _scale(self, rows: RealRows) -> NDArray[np.float64]:
        if self.scale == "unit":
            return np.ones(rows.width)
        if self.scale == "range":
            lower, upper = self._bounds(rows, "scale: range")
            with np.errstate(over="ignore"):
                scale = upper - lower
        else:
            scale = self._given(rows, "scale", self.scale)
        outside = np.flatnonzero(~((scale >= 1.0 / _LARGEST) & (scale <= _LARGEST)))
        if len(outside):
            wrong = ParameterError(
                "OS102", f"{self.key}.scale", expected="numbers above 0, from 2**-1000 to 2**1000",
                got=f"{scale[outside[0]]:g}",
                hint="give positive numbers, or change the unit of the data.",
            )  # fmt: skip
            if not isinstance(self.scale, str) and len(self.scale) == rows.width:
                wrong.inside = (int(outside[0]),)
            raise wrong
        return scale

    def _bounds(
        self, rows: RealRows, wanted: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if not rows.lower:
            raise SpaceError(
                "OS204", self.key, expected=f"bounds on every column, for `{wanted}`", got="none",
                hint="declare bounds on the columns, or write the numbers here.",
            )  # fmt: skip
        lower, upper = (np.broadcast_to(np.array(v), rows.width) for v in (rows.lower, rows.upper))
        return lower, upper

    def _given(
        self, rows: RealRows, name: str, values: str | tuple[float, ...]
    ) -> NDArray[np.float64]:
        numbers = np.array(values, dtype=np.float64)
        if numbers.size not in (1, rows.width) or not np.isfinite(numbers).all():
            raise ParameterError(
                "OS102", f"{self.key}.{name}", expected=f"1 or {rows.width} finite numbers",
                got=values, hint="write one number for all columns, or one a column in their order.",
            )  # fmt: skip
        return np.broadcast_to(numbers, rows.width).copy()

    def _image(
        self, rows: RealRows, centre: NDArray[np.float64], scale: NDArray[np.float64]
    ) -> RealRows:
        """Return the output's bounds (Lemma 2) and frame."""
        own = tuple(zip(centre.tolist(), scale.tolist(), strict=True))
        frame = composed(rows.frame, own, rows.width)
        with np.errstate(over="ignore", under="ignore"):
            ends = [
                ((np.array(end) - centre) / scale + 0.0).tolist() if end else []
                for end in (rows.lower, rows.upper)
            ]
        if frame is None or not all(abs(v) <= _LARGEST for end in ends for v in end):
            raise ParameterError(
                "OS102", f"{self.key}.scale", expected="rescaled bounds below 2**1000 in size",
                got="larger ones", hint="give a larger scale, or a centre nearer to the data.",
            )  # fmt: skip
        if len(set(map(tuple, zip(*ends, strict=True)))) == 1:
            ends = [end[:1] for end in ends]
        return replace(
            rows,
            lower=tuple(ends[0]),
            upper=tuple(ends[1]),
            norm=_norm(rows, centre, scale),
            lattice=_lattice(rows, centre, scale),
            frame=frame,
            plain=False,
        )


def _norm(
    rows: RealRows, centre: NDArray[np.float64], scale: NDArray[np.float64]
) -> tuple[str, float] | None:
    """Return the image's norm bound (Lemma 2), rounded up."""
    if rows.norm is None:
        return None
    order, bound = rows.norm
    moved = math.fsum(np.abs(centre)) if order != "linf" else float(np.abs(centre).max(initial=0.0))
    if order == "l2":
        moved = math.hypot(*centre.tolist())
    with np.errstate(over="ignore"):
        most = (bound + moved) * (1.0 + 2.0**-40) / float(scale.min()) + 2.0**-900
    return (order, most) if most < _LONGEST else None


def _lattice(
    rows: RealRows, centre: NDArray[np.float64], scale: NDArray[np.float64]
) -> float | None:
    """Return a step that divides every output (Lemma 3), or None."""
    units = set(scale.tolist())
    if rows.lattice is None or not rows.lower or len(units) != 1:
        return None
    unit = units.pop()
    if math.frexp(unit)[0] != 0.5:  # no power of two: quotients are rounded
        return None
    step = Fraction(rows.lattice)
    for _ in range(_HALVINGS):
        if all((Fraction(c) / step).denominator == 1 for c in centre.tolist()):
            break
        step /= 2
    else:
        return None
    reach = max(map(abs, (*rows.lower, *rows.upper))) + float(np.abs(centre).max())
    return float(step / Fraction(unit)) if reach / float(step) < 2.0**51 else None


make_rescale, then_rescale = constructors(Rescale)
