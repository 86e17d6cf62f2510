"""A stranger's package: one sketch, one question and one query that opendp_sim does not know.

Its lemma is in ``corner_counts.md``, beside this file.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays
from opendp_sim.core.claims import Post, SketchBlock, Stable
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import grid_rows
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.domains.rows import as_rows
from opendp_sim.domains.sketch import Sketch
from opendp_sim.postprocessing._impl.asked import check_queries, offered


class CornerSizes(Protocol):
    """``corner_sizes``: how many records lie in the corner of the box that a query lies in."""

    def size(self, released: Arrays, queries: Any) -> NDArray[np.float64]:
        """Return the released counts of the corners of queries: shape (q,)."""
        ...


class Corners:
    """Numbers the corners of a box of d columns: bit j says whether column j is at ``cut`` or above."""

    def __init__(self, cut: int, width: int) -> None:
        self.cut, self.width = cut, width

    def of(self, data: Any) -> NDArray[np.int64]:
        values = np.asarray(getattr(data, "values", data))
        bits: NDArray[np.int64] = (values >= self.cut) @ (1 << np.arange(self.width))
        return bits

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        out += np.bincount(self.of(as_rows(data)), minlength=len(out))

    def size(self, released: Arrays, queries: Any) -> NDArray[np.float64]:
        return np.asarray(released["counts"], dtype=np.float64)[self.of(queries)]


@register
class CornerCounts(Mechanism):
    r"""Count the records in each corner of the box.

    Stability
        .. math:: L_1 = L_2 = L_\infty = 1
    """

    key: ClassVar[str] = "corner_counts"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma")
    room = "sketches"
    offers = ("corner_sizes",)

    cut: Annotated[
        int,
        param(
            "Where a column is cut.", symbol="t", unit="steps", hint="0 is the middle.", default=0
        ),
    ] = 0

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        rows = grid_rows(self.key, domain, metric)
        corners = Corners(self.cut, rows.width)
        output = Sketch(
            self.key, (SketchBlock("counts", (2**rows.width,), l1=1, l2_squared=1, linf=1),)
        )
        return Stable(
            output=output,
            accumulate=corners.accumulate,
            sensitivity=output.sensitivity,
            capabilities={"corner_sizes": corners},
        )


@register
class CornerSize(Mechanism):
    """Say how many records lie in the corner of each query."""

    key: ClassVar[str] = "corner_size"
    source: ClassVar[Proof] = Proof(key="own", where="post-processing")
    room = "queries"
    asks_for = ("corner_sizes",)

    def bind(self, domain: Domain, metric: Metric) -> Post:
        del metric
        sizes, release = offered(self.key, domain, "corner_sizes")
        offer: CornerSizes = sizes

        def answer(released: Arrays, queries: Any) -> dict[str, NDArray[np.float64]]:
            sizes = offer.size(released, check_queries(release, queries))
            return {"size": sizes, "noise_error": np.full(len(sizes), release.deviation)}

        return Post(
            answer,
            output=AnswerColumns(("size", "noise_error")),
            expected={"noise_error": release.deviation},
            unit="records",
        )
