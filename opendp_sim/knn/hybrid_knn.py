"""Hybrid kNN: released class means answer what they are sure of, Ind-KNN the rest.

Proof of the privacy map: ``hybrid_knn.md``, beside this file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from opendp_sim.core.claims import Interactive
from opendp_sim.core.constructors import constructors
from opendp_sim.core.few_records import too_few
from opendp_sim.core.mechanism import Mechanism, Source, one_of, param, register
from opendp_sim.core.rounding import float_down, float_up
from opendp_sim.core.space import Domain, Metric
from opendp_sim.knn.ind_knn import IndKnn
from opendp_sim.knn.parts.hybrid import Hybrid
from opendp_sim.knn.parts.kernels import KERNELS, Cosine, Kernel
from opendp_sim.knn.parts.rule import Rule, lasts
from opendp_sim.spaces.checks import grid_rows
from opendp_sim.spaces.metrics import Symmetric
from opendp_sim.spaces.rows import GridRows, as_rows

__all__ = ["HybridKnn", "make_hybrid_knn", "then_hybrid_knn"]


@register
class HybridKnn(Mechanism):
    r"""Predict labels from noisy class means; ask neighbours only about the least certain queries.

    Space
        Input: labelled rows on an integer grid under symmetric distance. Output: an OpenDP
        queryable as that of ``ind_knn``; it needs ``{"reference": rows}`` or a first batch of 50. For
        queries the means decide, votes are their scores; counts and deviations are NaN (null in a
        session): nobody was counted, and no noise drawn but that of the means. For the others, the label
        weighs the votes of the two leading classes against how often the means were right so far.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = d_{in}^2 B

        under zero-concentrated divergence, and :math:`\mu(d_{in}) = d_{in} \sqrt{2 B}` of Gaussian
        differential privacy, for any number of adaptively chosen queries: a share of
        B for the means, released once, and the rest as each record's purse. Exact; rounds outward.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not grid
        rows, another metric. (OS203): the grid is too fine. (OS204): no labels. Of a query: DataError
        (OS607), BudgetError (OS406), InternalError (OS902).

    Source
        [own] Lemma 2 in ``hybrid_knn.md``.

    Example
        >>> import opendp.prelude as dp
        >>> from opendp_sim.spaces.rows import GridRows
        >>> dp.enable_features("contrib")
        >>> grid = GridRows(width=2, labels=("left", "up"), unit=0.01, lower=(-100,), upper=(100,))
        >>> make_hybrid_knn(grid, Symmetric(), rho=0.5, queries=100, size=2000).map(2)
        2.0
    """

    key: ClassVar[str] = "hybrid_knn"
    source: ClassVar[Source] = Source(key="own", where="Lemma 2")
    room = "measurements"
    forgets_answers: ClassVar[bool] = True
    """A session may fold answers that lie far back: what was learned from them stays."""

    rho: Annotated[
        float,
        param(
            "The loss of everything ever answered.", symbol="B", unit="rho of zCDP",
            ge=1e-24, le=1e6, hint="0.031 is epsilon 1, 0.108 is epsilon 2 at delta 1e-5.",
        ),
    ]  # fmt: skip
    queries: Annotated[
        int,
        param(
            "How many queries are planned, easy ones included; never a limit.", symbol="T",
            unit="queries", ge=1, le=10**9, hint="a public number.",
        ),
    ]  # fmt: skip
    size: Annotated[
        int,
        param(
            "A public guess of the number of records.", symbol="n", unit="records", ge=2,
            le=10**12, hint="from public knowledge; never the exact private number.",
        ),
    ]  # fmt: skip
    share: Annotated[
        float,
        param(
            "The share of the budget that the class means get.", symbol="a", unit="share",
            default=0.5, ge=0.01, le=0.99, hint="0.3 to 0.7: the means need little on large sets.",
        ),
    ] = 0.5  # fmt: skip
    hard: Annotated[
        float,
        param(
            "The share of queries that neighbours are asked about: those with the smallest gap.",
            symbol="f", unit="share", default=0.3, gt=0.0, lt=1.0,
            hint="0.15 to 0.5: more where the means are poor.",
        ),
    ] = 0.3  # fmt: skip
    prior: Annotated[
        Literal["none", "released"],
        param(
            "released: by the means, large classes win close calls, as far as released sizes and the "
            "variance within classes say; none: sizes do not count.",
            symbol="pi", unit="none", default="none",
            hint="released raises accuracy where one class dominates, at the expense of small ones.",
        ),
    ] = "none"  # fmt: skip
    kernel: Annotated[
        Kernel, one_of(*KERNELS),
        param(
            "How the weight of a neighbour falls with distance.", symbol="kappa", unit="none",
            default=Cosine(), hint="cosine, or {rbf: {bandwidth: 1.0}}, {student: {bandwidth: 1.0}}.",
        ),
    ] = Cosine()  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Interactive:
        """State Lemma 2 of ``hybrid_knn.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=True)
        inner = self.neighbours_setting.bind(rows, Symmetric())
        purse, facts = Fraction(self.rho), self._facts(inner.expected)
        return Interactive(
            measure="zero_concentrated_divergence",
            privacy_map=lambda d_in: float_up(purse * d_in * d_in),  # Lemma 2
            start=lambda data: self.resume(rows, data).ask,
            resume=lambda data, store: self.resume(rows, data, store),
            priced=True,
            mu_squared=2 * purse,
            expected=facts,
            reason=self._reason(facts, len(rows.labels or ())),
        )

    def resume(self, rows: GridRows, data: Any, store: Any = None) -> Hybrid:
        """Return a service over ``data``, where ``store`` left off."""
        data = rows.normal(data)
        rows.check(data)
        return Hybrid(self, rows, as_rows(data), store)

    @property
    def neighbours_setting(self) -> IndKnn:
        """The Ind-KNN that answers hard queries, with the rest of the budget."""
        rest = Fraction(self.rho) - self.means_rho
        asked = max(1, math.ceil(self.queries * self.hard))
        return IndKnn(rho=float_down(rest), queries=asked, size=self.size, kernel=self.kernel)

    def _reason(self, facts: Mapping[str, float], classes: int) -> str:
        """Say, from public numbers, whether a hybrid is the right release at all."""
        asked = self.neighbours_setting.queries
        served = (
            f"set by its rule for the {asked:,} least certain of {self.queries:,} queries of about "
            f"{self.size:,} records; {lasts(facts)}"
        )
        alone = Rule(self.rho, self.queries, self.size, classes)
        if alone.overcrowded or (alone.crowded and too_few(self.size, self.rho)):
            return f"{served}; {alone.instead}"
        if not alone.crowded:
            return (
                f"{served}; with neighbourhoods this much smaller than a class `ind_knn` alone usually "
                "serves better"
            )
        return f"{served}; `linear_model` alone was right as often or more on every set we tried"

    def _facts(self, of_neighbours: Mapping[str, float]) -> dict[str, float]:
        """Return what the plan shows: of the neighbours on hard queries, of the means on all."""
        facts = dict(of_neighbours)
        # Queries that the means decide cost a record nothing; all that are near to it may be others.
        facts["queries_a_typical_record_serves"] /= self.hard
        whole = facts.pop("relative_noise_of_class_means") * math.sqrt(1.0 - self.share)
        facts["relative_noise_of_its_means"] = whole / math.sqrt(self.share)
        facts["relative_noise_of_class_means"] = whole
        return facts

    @property
    def means_rho(self) -> Fraction:
        """What the means may cost, exactly."""
        return Fraction(self.share) * Fraction(self.rho)


make_hybrid_knn, then_hybrid_knn = constructors(HybridKnn)
