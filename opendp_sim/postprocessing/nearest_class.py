"""Predict the class with smallest mean distance, or nearest mean (``nearest_class.md``)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.class_means import ShrunkMeans
from opendp_sim.core.capabilities import Arrays, DistanceReading
from opendp_sim.core.claims import Post
from opendp_sim.core.errors import ParameterError, ReleaseError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.released import AnswerColumns, Released
from opendp_sim.postprocessing._impl.asked import check_queries, offered
from opendp_sim.postprocessing._impl.units import of_distances

COLUMNS = ("label", "margin", "score")
DEVIATION = "margin_deviation"


@register
class NearestClass(Mechanism):
    r"""Predict each query's nearest class.

    Space
        Input: a release with ``per_label: true`` of a sketch that offers ``class_means``
        (``moments_sketch``) or, for ``rule: mean_distance``, ``distance_sums``; and public queries
        of shape (q, d) in data units. Output: columns ``label`` (q,), an index into the public
        labels, ``margin`` (q,) and ``score`` (q, L), minus the distances (for ``nearest_mean`` the
        squared ones; after a ``rescale``, of rescaled rows); and for ``nearest_mean``
        ``margin_deviation`` (q,), by how much noise may have moved the margin. Classes whose released
        size is within its noise do not win.

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release and public queries: no further loss.

    Raises
        ParameterError (OS101): an unknown rule. (OS102): a prior for distances. SpaceError (OS201):
        not a release. (OS204): the release has no labels. ReleaseError (OS702): the release has
        neither means nor distances, or no squares for the prior. DataError (OS607): queries of
        another width, or not finite.

    Source
        [own] Lemma 1 in ``nearest_class.md``; means are shrunk as James and Stein's, positive part;
        the rule is that of Section 11 of Backurs et al.

    Example
        >>> NearestClass().spec()
        {'rule': 'nearest_mean', 'prior': 'none'}
    """

    key: ClassVar[str] = "nearest_class"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "queries"
    by_class: ClassVar[bool] = True
    asks_for = ("class_means", "distance_sums")

    rule: Annotated[
        Literal["nearest_mean", "mean_distance"],
        param(
            "nearest_mean compares distances to the released class means; mean_distance compares the "
            "mean distances to the records of each class.", symbol="m", unit="none",
            default="nearest_mean",
            hint="nearest_mean needs moments_sketch; mean_distance any sketch of distances.",
        ),
    ] = "nearest_mean"  # fmt: skip
    prior: Annotated[
        Literal["none", "released"],
        param(
            "released: large classes win close calls, as far as their released sizes and the variance "
            "within classes say; none: sizes do not count.", symbol="pi", unit="none", default="none",
            hint="released raises accuracy where one class dominates, at the expense of small ones; "
            "it needs `squares: true` on moments_sketch.",
        ),
    ] = "none"  # fmt: skip

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
        self._check_prior(offer)
        if self.rule == "nearest_mean":
            return _by_means(offer, release, prior=self.prior == "released")
        return _by_distances(offer, release)

    def _check_prior(self, offer: Any) -> None:
        if self.prior == "none":
            return
        if self.rule != "nearest_mean":
            raise ParameterError(
                "OS102", f"{self.key}.prior", expected="`none` with `rule: mean_distance`",
                got=self.prior, hint="mean distances are no likelihoods: leave `prior` out.",
            )  # fmt: skip
        if not offer.has_squares:
            raise ReleaseError(
                "OS702", f"{self.key}.prior", expected="a release with sums of squares",
                got="one without", hint="set `squares: true` on moments_sketch, or leave `prior` out.",
            )  # fmt: skip


def _by_means(offer: Any, release: Released, *, prior: bool) -> Post:
    """Compare squared distances to the shrunk means (``core/arithmetic/class_means.md``)."""
    # Minus squared distances in data units.
    area = 2.0 * getattr(release.queries, "unit", 1.0) ** 2
    prepared: list[tuple[Arrays, ShrunkMeans]] = []

    def classify(released: Arrays, queries: Any) -> dict[str, NDArray[Any]]:
        asked = check_queries(release, queries)
        if not prepared or prepared[0][0] is not released:
            found = offer.class_sums(released, release.deviation)
            prepared[:] = [(released, ShrunkMeans.of(found))]
        means = prepared[0][1]
        values = np.asarray(getattr(asked, "values", asked), dtype=np.float64)
        scores = means.scores(values) + (means.prior if prior else 0.0)
        order = means.leaders(scores)
        gaps = np.maximum(means.gaps(scores, order), 0.0) if scores.shape[1] > 1 else scores[:, 0]
        return {
            "label": order[:, 0].astype(np.int64),
            "margin": area * gaps,
            "score": area * scores,
            DEVIATION: area * means.gap_deviation(values, order),
        }

    return Post(
        classify,
        takes="release",
        output=AnswerColumns((*COLUMNS, DEVIATION), offer.labels),
        unit=of_distances(release.queries, 2.0),
    )


def _by_distances(offer: Any, release: Released) -> Post:
    """Compare mean distances; classes of no visible size come last (Lemma 2)."""
    prepared: list[tuple[Arrays, DistanceReading]] = []

    def classify(released: Arrays, queries: Any) -> dict[str, NDArray[Any]]:
        asked = check_queries(release, queries)
        if not prepared or prepared[0][0] is not released:
            prepared[:] = [(released, offer.reading(released, None, 0.1))]
        counted = offer.counted(released)
        noise = release.deviation * counted.factor
        wins = counted.sizes > 2.0 * noise
        wins[int(np.argmax(counted.sizes))] = True
        scores = -prepared[0][1].at(asked).values.T / np.maximum(counted.sizes, max(1.0, noise))
        order = np.lexsort((-scores, np.broadcast_to(~wins, scores.shape)), axis=1)
        top = np.take_along_axis(scores, order[:, :2], axis=1)
        margin = np.maximum(top[:, 0] - top[:, 1], 0.0) if scores.shape[1] > 1 else scores[:, 0]
        return {"label": order[:, 0].astype(np.int64), "margin": margin, "score": scores}

    return Post(
        classify,
        takes="release",
        output=AnswerColumns(COLUMNS, offer.labels),
        unit=of_distances(release.queries, offer.power),
    )
