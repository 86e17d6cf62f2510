"""Classify queries by the greatest density (``classify.md``)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays
from opendp_sim.core.claims import Post
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.postprocessing._impl.asked import check_queries, kernel_sums
from opendp_sim.postprocessing._impl.control_variate import PublicPoints, with_public
from opendp_sim.postprocessing.density import least_records

COLUMNS = ("label", "margin", "score")


@register
class Classify(Mechanism):
    r"""Predict the label of every query from per-class kernel sums.

    Space
        Input: a release with ``per_label: true`` and public queries, or the answers of ``density``
        on one. Output: columns ``label`` (q,), an index into the public labels, ``margin`` (q,) and
        ``score`` (q, L). Under ``max_likelihood`` a class that is not visibly larger than its noise
        counts as one that is just so.

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release and public queries: no further loss.

    Raises
        ParameterError (OS101): an unknown rule. SpaceError (OS201): neither a release nor densities.
        (OS204): the release has no labels. ReleaseError (OS702): no kernel sums.

    Source
        [own] Lemmas 1 and 2 in ``classify.md``.

    Example
        >>> Classify().spec()
        {'rule': 'max_likelihood', 'public': 'auto'}
    """

    key: ClassVar[str] = "classify"
    in_short: ClassVar[str] = "Choose the class that has the most similar records."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "queries"
    by_class: ClassVar[bool] = True
    asks_for = ("kernel_sums",)

    rule: Annotated[
        Literal["max_likelihood", "map"],
        param(
            "max_likelihood compares mean kernel values, a class that is not visibly larger than its "
            "noise counting as one that is; map compares sums, so priors count.",
            symbol="m", unit="none", default="max_likelihood",
            hint="with one p-stable hash a repetition the kernel's tail is heavy and map predicts "
            "the majority: use max_likelihood, or joined hashes.",
        ),
    ] = "max_likelihood"  # fmt: skip

    public: PublicPoints = "auto"

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a per-label release, or to the densities computed from one."""
        del metric
        if isinstance(domain, AnswerColumns):
            self._need(domain.labels)
            if not {"density", "records", "least_records"} <= set(domain.columns):
                raise SpaceError(
                    "OS201", f"{self.key}.input_domain", expected="densities",
                    got=", ".join(domain.columns), hint="put `density` before `classify`.",
                )  # fmt: skip

            def again(answer: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
                sizes, least = answer["records"], answer["least_records"]
                sums = answer["density"]
                if domain.normalised:
                    sums = sums * np.maximum(sizes, least)
                return self._best(sums, sizes, least)

            return Post(again, takes="answer", output=AnswerColumns(COLUMNS, domain.labels))
        sums, deviation = kernel_sums(self.key, domain)
        self._need(sums.labels)
        noise = deviation * sums.noise_factor()

        def classify(released: Arrays, queries: Any) -> dict[str, NDArray[Any]]:
            asked = check_queries(domain, queries)
            read = with_public(self.public, self.key, domain, sums, deviation, asked)
            found = read.estimate(released, asked).groups[0].T
            sizes, factor = sums.totals(released)
            return self._best(found, sizes, least_records(factor * deviation, noise))

        return Post(
            classify,
            takes="release",
            by_query=self.public != "queries",
            output=AnswerColumns(COLUMNS, sums.labels),
            expected={"noise_error": noise},
            of_a_record=1.0,
            unit="records",
        )

    def _best(self, sums: NDArray[np.float64], sizes: Any, least: Any) -> dict[str, NDArray[Any]]:
        """Return the arg max by row."""
        # Without a floor, noise over a class of few records outweighs every mean kernel value.
        scores = sums if self.rule == "map" else sums / np.maximum(sizes, least)
        ordered = np.sort(scores, axis=1)
        margin = ordered[:, -1] - ordered[:, -2] if scores.shape[1] > 1 else ordered[:, -1]
        return {"label": scores.argmax(axis=1), "margin": margin, "score": scores}

    def _need(self, labels: object) -> None:
        if labels is None:
            raise SpaceError(
                "OS204", f"{self.key}.input_domain", expected="per-label structures", got="no labels",
                hint="set `per_label: true` on the sketch and give `select` a label.",
            )  # fmt: skip
