"""Sample public candidates in proportion to a released density (``sample.md``)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays
from opendp_sim.core.claims import Post
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.postprocessing._impl.asked import check_queries, kernel_sums


@register
class Sample(Mechanism):
    r"""Draw public candidates in proportion to released kernel sums.

    Space
        Input: a release of a sketch that offers ``kernel_sums``, and public candidates of shape
        (q, d) in data units. Output: columns ``candidate`` (k,), indices of drawn candidates with
        repetition, and ``label`` (k,), the index of the class each was drawn for (0 without
        ``per_label``).

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release and public candidates: no further loss, however many are drawn.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201): not a release.
        ReleaseError (OS702): no kernel sums. DataError (OS607): candidates of another width.

    Source
        [own] Lemma 1 in ``sample.md``.

    Example
        >>> Sample(size=10, seed=1).spec()
        {'size': 10, 'seed': 1}
    """

    key: ClassVar[str] = "sample"
    in_short: ClassVar[str] = "Draw points from a public list, more often where records are dense."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "queries"
    asks_for = ("kernel_sums",)

    size: Annotated[
        int,
        param("How many to draw.", symbol="k", unit="points", ge=1, le=10**7, hint="as many as needed."),
    ]  # fmt: skip
    seed: Seed

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a release that offers kernel sums."""
        del metric
        sums, deviation = kernel_sums(self.key, domain)

        def draw(released: Arrays, candidates: Any) -> dict[str, NDArray[np.int64]]:
            found = sums.estimate(released, check_queries(domain, candidates)).groups[0]
            # (L, q): noise can make a density negative; it then has no share.
            mass = np.maximum(found, 0.0).ravel()
            total = float(mass.sum())
            share = mass / total if total > 0 else np.full(mass.size, 1.0 / mass.size)
            generator = public_generator(self.seed, self.key)
            drawn = generator.choice(mass.size, size=self.size, p=share)
            return {"candidate": drawn % found.shape[1], "label": drawn // found.shape[1]}

        return Post(
            draw,
            takes="release",
            by_query=False,
            output=AnswerColumns(("candidate", "label")),
            expected={"noise_error": deviation * sums.noise_factor()},
            of_a_record=1.0,
            unit="records",
        )
