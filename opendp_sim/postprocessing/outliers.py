"""Detect outliers of a density, at stated false alarms (``outliers.md``)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays
from opendp_sim.core.claims import Post
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.postprocessing._impl.asked import kernel_sums
from opendp_sim.postprocessing._impl.control_variate import PublicPoints, points_chosen
from opendp_sim.postprocessing.density import Density

COLUMNS = ("outlier", "score", "probability")


@register
class Outliers(Mechanism):
    r"""Flag queries of low density at a false-alarm rate.

    Their mean kernel value is below a threshold.

    Space
        Input: a release of a sketch that offers ``kernel_sums``, and public queries of shape (q, d)
        in data units. Output: columns of shape (q, L): ``outlier``, 1 where
        :math:`\hat f + z_{1-\alpha} \hat\sigma < T` and the interval of ``density`` lies below T;
        ``score``, the estimated mean kernel value :math:`\hat f`; ``probability``, that noise and
        sketch alone would show so low a value at a query whose true value is T (1 for a class that is
        not visibly larger than its noise: it is never flagged).

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release and public queries: no further loss.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201): not a release.
        ReleaseError (OS702): no kernel sums. DataError (OS607): queries of another width.

    Source
        [own] Lemma 1 in ``outliers.md``.

    Example
        >>> Outliers(threshold=0.01).spec()
        {'threshold': 0.01, 'false_alarms': 0.05, 'public': 'auto'}
    """

    key: ClassVar[str] = "outliers"
    in_short: ClassVar[str] = "Flag points that have hardly any records around them."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "queries"
    asks_for = ("kernel_sums",)

    threshold: Annotated[
        float,
        param(
            "Mean kernel value below which a query is an outlier.", symbol="T", unit="mean kernel value",
            gt=0, lt=1, hint="0.01 means: as lonely as if 1 record in 100 were in the same place.",
        ),
    ]  # fmt: skip
    false_alarms: Annotated[
        float,
        param(
            "Chance of flagging a query whose true value is at the threshold or above.",
            symbol="alpha", unit="probability", default=0.05, gt=0, lt=1,
            hint="smaller misses more outliers; the miss rate is in the column `probability`.",
        ),
    ] = 0.05  # fmt: skip

    public: PublicPoints = "auto"

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a release that offers kernel sums."""
        sums, _ = kernel_sums(self.key, domain)
        public = points_chosen(self.public, sums)
        confidence = min(max(1.0 - 2.0 * self.false_alarms, 0.5), 1.0 - 2.0**-40)
        density = Density(normalise=True, confidence=confidence, public=self.public).bind(
            domain, metric
        )

        def flag(released: Arrays, queries: Any) -> dict[str, NDArray[np.float64]]:
            found = density.function(released, queries)
            score = found["density"]
            deviation = np.hypot(found["noise_error"], found["sketch_error"])
            bias = np.reshape(sums.bias(queries), (-1, 1)) * (1 if public == "none" else 2)
            chance = special.ndtr((score + bias - self.threshold) / np.maximum(deviation, 1e-300))
            chance = np.where(found["records"] < found["least_records"], 1.0, chance)
            return {
                # The interval also holds what no repetition has shown (Lemma 3 of density.md).
                "outlier": (
                    (chance < self.false_alarms) & (found["upper"] < self.threshold)
                ).astype(np.int64),
                "score": score,
                "probability": chance,
            }

        return Post(
            flag,
            takes="release",
            by_query=self.public != "queries",
            output=AnswerColumns(COLUMNS, sums.labels),
            expected=density.expected,
            likely=density.likely,
            of_a_record=density.of_a_record,
            unit=density.unit,
        )
