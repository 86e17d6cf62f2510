"""Predict a released model's label of greatest score (``predict.md``)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, ClassScores
from opendp_sim.core.claims import Post
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.released import AnswerColumns, Released
from opendp_sim.postprocessing._impl.asked import check_queries

COLUMNS = ("label", "margin", "score")


@register
class Predict(Mechanism):
    r"""Predict the label of every query from a released model.

    Space
        Input: a release that offers ``class_scores`` (``linear_model``) and public queries of shape
        (q, d) in data units. Output: columns ``label`` (q,), an index into the public labels,
        ``margin`` (q,), the logit of that label less that of the next (infinite with one label), and
        ``score`` (q, L), the logits: ``softmax(score)`` are the model's probabilities.

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release and public queries: no further loss.

    Raises
        SpaceError (OS201): not a release. ReleaseError (OS702): the release has no scores. DataError
        (OS607): queries of another width, or not finite.

    Source
        [own] Lemma 1 in ``predict.md``.

    Example
        >>> Predict().spec()
        {}
    """

    key: ClassVar[str] = "predict"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "queries"
    asks_for = ("class_scores",)

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a release of a model."""
        del metric
        if not isinstance(domain, Released):
            raise SpaceError(
                "OS201", f"{self.key}.input_domain", expected="a release",
                got=type(domain).__name__, hint="name a released stage under `from:`.",
            )  # fmt: skip
        model: ClassScores = domain.capability("class_scores", self.key)

        def predict(released: Arrays, queries: Any) -> dict[str, NDArray[Any]]:
            scores = model.scores(released, check_queries(domain, queries))
            order = np.argsort(-scores, axis=1, kind="stable")[:, :2]  # ties: the first label
            top = np.take_along_axis(scores, order, axis=1)
            alone = top.shape[1] < 2
            margin = np.full(len(top), np.inf) if alone else top[:, 0] - top[:, 1]
            return {"label": order[:, 0].astype(np.int64), "margin": margin, "score": scores}

        return Post(predict, takes="release", output=AnswerColumns(COLUMNS, model.labels))
