"""Predict by released class means, unsure queries by Ind-KNN (``hybrid_knn.md``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.rounding import float_down, float_up
from opendp_sim.core.claims import Interactive
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Proof, one_of, param, register
from opendp_sim.core.sample_size import too_few
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import grid_rows
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows, as_rows
from opendp_sim.io.origin import origin_of
from opendp_sim.measurements.knn._impl.calibration import Rule, lasts
from opendp_sim.measurements.knn._impl.class_means import ClassMeans
from opendp_sim.measurements.knn._impl.kernels import VOTE_KERNELS, Cosine, VoteKernel
from opendp_sim.measurements.knn._impl.predictor import Predictor
from opendp_sim.measurements.knn._impl.public_votes import QueryRows
from opendp_sim.measurements.knn._impl.service import Predictions, Store, unreadable
from opendp_sim.measurements.knn._impl.stored import (
    kept_answers,
    kept_cells,
    kept_reference,
    replaying,
)
from opendp_sim.measurements.knn._impl.updates import FixedRecords
from opendp_sim.measurements.knn.ind_knn import IndKnn

# --------------------------------------------------------------------------------------------------
# When noisy votes overturn the class means: learned from the votes already released, at no cost.
#
# Nothing here sees a record; everything is a function of the transcript.

_IMAGINED = 30
"""Leads that are imagined before the first: as strong as their noise, right two times in three."""
_FIRST_RIGHT = 2 / 3
_SUREST = 0.99
_CAUTION = 2.0
"""Standard errors by which votes must be louder than their noise, before they count for anything."""


@dataclass
class Doubt:
    """Weigh votes against the class that leads by the means.

    A lead is the votes of the leading class minus those of the second, in deviations of its noise. Over
    many queries its law is taken for ``N(+m, 1)`` where the first is right and ``N(-m, 1)`` where it is
    not: the mean square is ``1 + m**2``, and the mean tells how often the first is right. The second wins
    where that makes it more likely: with votes of nothing but noise (m = 0), never.

    Attributes:
        seen: how many leads so far. total: their sum. squares: the sum of their squares.
    """

    seen: int = _IMAGINED
    total: float = _IMAGINED * (2 * _FIRST_RIGHT - 1)
    squares: float = 2.0 * _IMAGINED

    @classmethod
    def of(cls, state: NDArray[np.float64]) -> Doubt:
        """Return the doubt in ``state``."""
        seen, total, squares = state.tolist()
        if not (np.isfinite(state).all() and seen >= 1):
            raise ValueError("no state")
        return cls(int(seen), total, squares)

    @property
    def state(self) -> NDArray[np.float64]:
        """Three numbers, exactly as they are."""
        return np.array([self.seen, self.total, self.squares], dtype=np.float64)

    def learn(self, leads: NDArray[np.float64]) -> None:
        """Take account of released leads, shape (k,)."""
        self.seen += len(leads)
        self.total += float(leads.sum())
        self.squares += float(np.square(leads).sum())

    def overturned(self, leads: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return where the second class is more likely, shape (k,)."""
        luck = _CAUTION * math.sqrt(2.0 / self.seen)  # deviation of a mean square of noise
        strength = math.sqrt(max(0.0, self.squares / self.seen - 1.0 - luck))
        if strength == 0.0:
            return np.zeros(len(leads), dtype=np.bool_)
        right = (1.0 + self.total / self.seen / strength) / 2
        right = min(max(right, 0.5), _SUREST)
        overturned: NDArray[np.bool_] = 2 * strength * leads < -math.log(right / (1 - right))
        return overturned


# --------------------------------------------------------------------------------------------------
# The running hybrid: released class means, and Ind-KNN for the queries they are unsure of.


class Hybrid(FixedRecords):
    """Answer from class means, or from neighbours when unsure.

    Neighbours are asked about the two leaders.

    Args:
        setting: the mechanism record (``HybridKnn``).
        domain: the grid of the rows.
        data: the records.
        store: keeps charges, the reference and the means.
    """

    def __init__(
        self, setting: Any, domain: GridRows, data: Rows, store: Store | None = None
    ) -> None:
        super().__init__(setting, domain, store)
        self._inner = Predictor(setting.neighbours_setting, domain, data, store)
        self._private = origin_of(data.values)
        self._means: ClassMeans | None = None
        self._reference: NDArray[np.float64] | None = None
        self._doubt = Doubt()
        if store is not None:
            with replaying():
                self._replay(store)
            self._set_out_again()

    def _set_out_again(self) -> None:
        """Look again at the public queries that the store was shown."""
        if self._reference is not None:
            self._guard(self._set_out)

    def _replay(self, store: Store) -> None:
        """Bring the means, and what they taught, to where the store is."""
        for kind, payload in store.entries():
            if kind == "reference":
                self._reference = kept_reference(self._domain, payload)
            elif kind == "means":
                self._means = ClassMeans(self._lens, *kept_cells(self._domain, payload))
            elif kind == "easy":
                self._doubt = Doubt.of(payload["doubt"])
            elif kind == "answers" and self._means is not None:
                queries, votes, deviations = kept_answers(self._domain, payload)
                _, order, _ = self._lead(self._means, queries)
                self._doubt.learn(_leads(order, votes, deviations))
            elif kind == "failure":
                self._over = True

    @property
    def _ready(self) -> bool:
        return self._means is not None

    def _purses_now(self) -> NDArray[np.int64]:
        return self._inner._purses_now()  # noqa: SLF001 - its other half

    def _spend_all(self) -> NDArray[np.int64]:
        return self._inner._spend_all()  # noqa: SLF001 - its other half

    @property
    def _lens(self) -> Any:
        pool = self._inner._pool  # noqa: SLF001 - its other half
        if pool is None:
            raise unreadable()
        return pool.lens

    def _set_reference(self, queries: NDArray[np.float64]) -> None:
        self._inner._set_reference(queries)  # noqa: SLF001 - its other half
        self._reference = queries
        self._set_out()

    def _set_out(self) -> None:
        """Release the means unless stored, and set the sure lead."""
        pool = self._inner._pool  # noqa: SLF001 - its other half
        if pool is None or self._reference is None:
            raise unreadable()
        if self._means is None:
            share: Fraction = self._setting.means_rho
            labels = pool.labels[: pool.size]
            classes = len(self._domain.labels or ())
            means = ClassMeans.release(pool.lens, pool.seen_rows, labels, classes, share)
            self._keep("means", {"scale": np.array(means.scale), "cells": means.cells})
            self._means = means
        _, _, gaps = self._lead(self._means, self._reference)
        self._cut = float(np.quantile(gaps, self._setting.hard))

    def _lead(
        self, means: ClassMeans, queries: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.float64]]:
        """Return scores (m, L), leaders (m, 2) and gaps (m,)."""
        scores = means.scores(self._see(queries), prior=self._setting.prior == "released")
        return scores, *means.leaders(scores)

    def _see(self, queries: NDArray[np.float64]) -> QueryRows:
        pool = self._inner._pool  # noqa: SLF001 - its other half
        if pool is None:
            raise unreadable()
        return QueryRows.of(pool.lens.see_queries(queries, pool.dtype))

    def _batch(self, queries: NDArray[np.float64], allowed: Any) -> Predictions:
        del allowed
        if self._means is None:
            raise unreadable()
        scores, order, gaps = self._lead(self._means, queries)
        hard = np.flatnonzero(gaps < self._cut)
        winners, votes = order[:, 0].copy(), scores.copy()
        counts, deviations = (np.full(len(queries), np.nan) for _ in range(2))
        if hard.size:
            may = np.zeros((hard.size, scores.shape[1]), dtype=np.bool_)
            np.put_along_axis(may, order[hard], values=True, axis=1)
            found = self._inner._batch(queries[hard], may)  # noqa: SLF001 - its other half
            leads = _leads(order[hard], found.votes, found.deviations)
            self._doubt.learn(leads)
            winners[hard] = np.where(self._doubt.overturned(leads), order[hard, 1], order[hard, 0])
            votes[hard], counts[hard] = found.votes, found.counts
            deviations[hard] = found.deviations
        easy = np.delete(np.arange(len(queries)), hard)
        self._keep(
            "easy",
            {
                "rows": queries[easy],
                "labels": winners[easy],
                "labels_of_the_rest": winners[hard],
                "doubt": self._doubt.state,
            },
        )
        labels = self._domain.labels or ()
        return Predictions(tuple(labels[w] for w in winners), counts, votes, deviations)


def _leads(
    order: NDArray[np.intp], votes: NDArray[np.float64], deviations: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the first class's lead in noise deviations, (k,)."""
    top = np.take_along_axis(votes, order, axis=1)
    leads: NDArray[np.float64] = (top[:, 0] - top[:, 1]) / (np.sqrt(2.0) * deviations)
    return leads


# --------------------------------------------------------------------------------------------------


@register
class HybridKnn(Mechanism):
    r"""Predict labels from noisy class means.

    Neighbours decide only the least certain queries.

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
        >>> from opendp_sim.domains.rows import GridRows
        >>> dp.enable_features("contrib")
        >>> grid = GridRows(width=2, labels=("left", "up"), unit=0.01, lower=(-100,), upper=(100,))
        >>> make_hybrid_knn(grid, Symmetric(), rho=0.5, queries=100, size=2000).map(2)
        2.0
    """

    key: ClassVar[str] = "hybrid_knn"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 2")
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
        VoteKernel, one_of(*VOTE_KERNELS),
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
        """Return whether and why a hybrid suits, from public numbers."""
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
