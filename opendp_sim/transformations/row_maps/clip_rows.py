"""Clip every row to a public norm bound (``clip_rows.md``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import real_rows
from opendp_sim.domains.rows import RealRows, Rows, as_rows

_LARGEST = float(np.finfo(np.float64).max)


@register
class ClipRows(Mechanism):
    r"""Shrink every longer row to a public norm bound.

    Space
        Input: rows of d finite floats under symmetric distance; a dataset has shape (n, d).
        Output: the same rows, those with a norm above ``bound`` scaled down (L1, L2) or clamped
        coordinate by coordinate (L∞). The real norm of every output row, rounding included, is at
        most ``bound``, and the type carries it.

    Stability
        .. math:: d_{out} = d_{in}

        Row by row, in a fixed order of operations within the row, so added and removed rows are all
        that differs. Exact. Tight.

    Privacy
        None on its own.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not real
        rows, another metric.

    Source
        [own] Lemma 1 in ``clip_rows.md``.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
        >>> clipped = space >> then_clip_rows(norm="l2", bound=1.0)
        >>> clipped(np.array([[3.0, 4.0], [0.25, 0.0]])).values, clipped.map(2)
        (array([[0.6 , 0.8 ], [0.25, 0.  ]]), 2)
    """

    key: ClassVar[str] = "clip_rows"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "rows"

    norm: Annotated[
        Literal["l1", "l2", "linf"],
        param(
            "Which norm of a row is bounded.", symbol="p", unit="norm",
            hint="l2 for Gaussian noise on sums, l1 for Laplace noise, linf for coordinates.",
        ),
    ]  # fmt: skip
    bound: Annotated[
        float,
        param(
            "The largest norm of an output row.", symbol="B", unit="data units", ge=2.0**-500,
            le=2.0**500, hint="choose from public knowledge; half the rows clipped is too tight.",
        ),
    ]  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemmas 1 and 2 of ``clip_rows.md``."""
        rows = real_rows(self.key, domain, metric, by_person=True)
        output = _within(rows, self.norm, self.bound)
        least, most = np.array(output.lower), np.array(output.upper)

        def clipped(data: Any) -> Rows:
            given = as_rows(data)
            values = np.array(given.values, dtype=np.float64, order="C")
            np.clip(values, -_LARGEST, _LARGEST, out=values)  # infinities, of OpenDP's own domain
            if self.norm != "linf":
                _shrink(values, self.norm, self.bound)
            np.clip(values, least, most, out=values)
            values += 0.0  # one zero: which one `clip` returns depends on the shape
            return Rows(values, given.labels, given.ids)

        return Stable(output=output, function=clipped, on_queries=as_rows)


def _within(rows: RealRows, norm: str, bound: float) -> RealRows:
    """Return the output's type."""
    lower = tuple(max(min(v, 0.0), -bound) for v in rows.lower) or (-bound,)
    upper = tuple(min(max(v, 0.0), bound) for v in rows.upper) or (bound,)
    return replace(rows, lower=lower, upper=upper, norm=(norm, bound), plain=False, lattice=None)


def _shrink(values: NDArray[np.float64], norm: str, bound: float) -> None:
    """Scale down, in place, every row possibly beyond the bound.

    Only elementwise operations on whole columns, in the order of the columns: each row's bits are
    decided by that row alone (no reduction whose order depends on shape, alignment or layout).
    """
    count, width = values.shape
    largest = np.zeros(count)
    for column in values.T:
        np.maximum(largest, np.abs(column), out=largest)
    safe = np.where(largest > 0.0, largest, 1.0)
    total = np.zeros(count)  # of the row over its largest entry, so nothing over- or underflows
    for column in values.T:
        share = column / safe
        total += np.abs(share) if norm == "l1" else share * share
    size = total if norm == "l1" else np.sqrt(total)
    slack = (width + 8) * 2.0**-52  # Lemma 2: more than all roundings together
    with np.errstate(over="ignore"):
        long = largest * size * (1.0 + slack) > bound
    factor = bound / size[long] * (1.0 - 2.0 * slack)
    values[long] = values[long] / safe[long, None] * factor[:, None]


make_clip_rows, then_clip_rows = constructors(ClipRows)
