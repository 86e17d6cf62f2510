"""Read noisy user counts of public or largest items (``counts.md``)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, ItemCounts
from opendp_sim.core.claims import Post
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.shared_parameters import Confidence
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.cell import columned
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.postprocessing._impl.asked import offered
from opendp_sim.postprocessing._impl.noise_quantiles import reach

COLUMNS = ("rank", "item", "count", "noise_error", "lower", "upper")


@register
class Counts(Mechanism):
    r"""Read a catalogue's noisy counts with intervals.

    Items by falling count.

    Space
        Input: a release of a sketch that offers ``item_counts`` (``vote_counts`` over a public
        catalogue, with noise); no queries. Output: columns over the items, the largest noisy count
        first: ``rank`` (from 1), ``item``, ``count``, ``noise_error`` (one standard deviation),
        ``lower`` and ``upper``, each of shape (m,), or (top,) with ``top``.

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release: no further loss, however often and with whatever ``top``.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): top is above the number of
        items. ReleaseError (OS702): the release counts no items. SpaceError (OS201): not a release.

    Source
        [own] Lemma 1 in ``counts.md``.

    Example
        >>> Counts(top=3).spec()["confidence"]
        0.95
    """

    key: ClassVar[str] = "counts"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "queries"
    asks_for = ("item_counts",)

    top: Annotated[
        int | None,
        param(
            "How many items, the largest noisy counts; none for all.", symbol="k", unit="items",
            default=None, ge=1, le=10**6, hint="all are paid for: a smaller table costs no less.",
        ),
    ] = None  # fmt: skip
    confidence: Confidence = 0.95

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a release that offers item counts."""
        del metric
        counts, release = offered(self.key, domain, "item_counts")
        offer: ItemCounts = counts
        if self.top is not None and self.top > len(offer.items):
            raise ParameterError(
                "OS102", f"{self.key}.top", expected=f"at most {len(offer.items)} items", got=self.top,
                hint="leave it out for all of them.",
            )  # fmt: skip
        items = columned(list(offer.items))
        noise = release.deviation
        half = reach(release, self.confidence) * noise

        def answer(released: Arrays, queries: Any = None) -> dict[str, NDArray[Any]]:
            del queries
            found = np.asarray(released[offer.block], dtype=np.float64)
            order = np.argsort(-found, kind="stable")[: self.top]
            count = found[order]
            columns = np.arange(1, len(order) + 1), items[order], count, np.full(len(order), noise)
            return dict(zip(COLUMNS, (*columns, count - half, count + half), strict=True))

        return Post(
            answer,
            takes="release",
            output=AnswerColumns(COLUMNS),
            expected={"noise_error": noise},
            asks=False,
            of_a_record=1.0,
            unit="votes",
        )
