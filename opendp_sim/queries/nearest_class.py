"""Nearest class: the class at the smallest mean distance, or with the nearest noisy mean.

Why the noise of the means is taken out: ``nearest_class.md``, beside this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, ClassMeans, DistanceSums
from opendp_sim.core.claims import Post
from opendp_sim.core.errors import ReleaseError, SpaceError
from opendp_sim.core.linear import public_product
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.queries.distance import check_queries, offered
from opendp_sim.spaces.released import Answers, Released

__all__ = ["NearestClass"]

COLUMNS = ("label", "margin", "score")


@register
class NearestClass(Mechanism):
    r"""Predict for every query the label of the class that is nearest to it.

    Space
        Input: a release with ``per_label: true`` of a sketch that offers ``class_means``
        (``moments_sketch``) or, for ``rule: mean_distance``, ``distance_sums``; and public queries
        of shape (q, d) in data units. Output: columns ``label`` (q,), an index into the public
        labels, ``margin`` (q,) and ``score`` (q, L), minus the distances.

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release and public queries: no further loss.

    Raises
        ParameterError (OS101): an unknown rule. SpaceError (OS201): not a release. (OS204): the
        release has no labels. ReleaseError (OS702): the release has neither means nor distances.
        DataError (OS607): queries of another width, or not finite.

    Source
        [own] Lemma 1 in ``nearest_class.md``; the rule is that of Section 11 of Backurs et al.

    Example
        >>> NearestClass().spec()
        {'rule': 'nearest_mean'}
    """

    key: ClassVar[str] = "nearest_class"
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
    room = "queries"
    asks_for = ("class_means", "distance_sums")

    rule: Annotated[
        Literal["nearest_mean", "mean_distance"],
        param(
            "nearest_mean compares distances to the noisy class means; mean_distance compares the "
            "mean distances to the records of each class.", symbol="m", unit="none",
            default="nearest_mean",
            hint="nearest_mean needs moments_sketch; mean_distance any sketch of distances.",
        ),
    ] = "nearest_mean"  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a per-label release."""
        del metric
        names = {"nearest_mean": "class_means", "mean_distance": "distance_sums"}
        name, held = names.pop(self.rule), getattr(domain, "capabilities", ())
        ((rule, other),) = names.items()
        if name not in held and other in held:
            raise ReleaseError(
                "OS702", f"{self.key}.rule", expected=f"a release that answers `{name}`",
                got=f"one that answers `{other}`", hint=f"write `rule: {rule}`.",
            )  # fmt: skip
        offer, release = offered(self.key, domain, name)
        if offer.labels is None:
            raise SpaceError(
                "OS204", f"{self.key}.input_domain", expected="per-label structures", got="no labels",
                hint="set `per_label: true` on the sketch and give `select` a label.",
            )  # fmt: skip
        make = _mean_rule if self.rule == "nearest_mean" else self._distance_rule
        prepared: list[tuple[Arrays, Callable[[Any], NDArray[np.float64]]]] = []

        def classify(released: Arrays, queries: Any) -> dict[str, NDArray[Any]]:
            if not prepared or prepared[0][0] is not released:
                prepared[:] = [(released, make(offer, release, released))]
            return _best(prepared[0][1](check_queries(release, queries)))

        return Post(classify, takes="release", output=Answers(COLUMNS, offer.labels))

    @staticmethod
    def _distance_rule(
        offer: DistanceSums, release: Released, released: Arrays
    ) -> Callable[[Any], NDArray[np.float64]]:
        del release
        reading = offer.reading(released, None, 0.1)
        sizes = np.maximum(offer.counted(released).sizes, 1.0)
        return lambda queries: -reading.at(queries).values.T / sizes


def _mean_rule(
    offer: ClassMeans, release: Released, released: Arrays
) -> Callable[[Any], NDArray[np.float64]]:
    """Minus squared distances to the means, less what their noise adds on average (Lemma 2)."""
    means, factor = offer.means(released)
    unit = getattr(release.queries, "unit", 1.0)
    added = means.shape[1] * np.square(release.deviation * factor)
    own = np.square(means).sum(axis=1) - added

    def score(queries: Any) -> NDArray[np.float64]:
        values = np.asarray(getattr(queries, "values", queries), dtype=np.float64)
        near = 2 * public_product(values, means.T) - own - np.square(values).sum(axis=1)[:, None]
        scaled: NDArray[np.float64] = near * unit**2
        return scaled

    return score


def _best(scores: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Arg max by row; ties go to the first label, a fixed public order."""
    ordered = np.sort(scores, axis=1)
    margin = ordered[:, -1] - ordered[:, -2] if scores.shape[1] > 1 else ordered[:, -1]
    return {"label": scores.argmax(axis=1), "margin": margin, "score": scores}
