"""Predict from records, purses and transcript behind one interface.

The order of a batch is fixed: public work, exact products, then query after query the sequential
part, then the charges and the transcript into the store, and only then the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.session.identity import damaged
from opendp_sim.core.device import device_in_use
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.knn._impl.features import Lens
from opendp_sim.measurements.knn._impl.pool import Pool
from opendp_sim.measurements.knn._impl.privacy_filter import IndividualFilter
from opendp_sim.measurements.knn._impl.public_votes import (
    Answered,
    QueryRows,
    Reference,
    scores_between,
    weights_of,
)
from opendp_sim.measurements.knn._impl.service import Predictions, Store, unreadable
from opendp_sim.measurements.knn._impl.sign_hashes import (
    Coder,
    HashTables,
    PackedSigns,
    SignCodes,
    SignHashes,
    chosen,
)
from opendp_sim.measurements.knn._impl.stored import (
    kept_ids,
    kept_labelled,
    kept_reference,
    replaying,
)
from opendp_sim.measurements.knn._impl.updates import ChangingRecords
from opendp_sim.measurements.knn._impl.vote import Charges, Near, Outcome, vote
from opendp_sim.measurements.knn._impl.vote_noise import Stock


class Predictor(ChangingRecords):
    """Answers queries from private records. Everything but the answers is secret.

    Args:
        setting: the mechanism record (``IndKnn``).
        domain: the grid of the rows.
        data: the records.
        store: keeps charges durable; nothing for a predictor that lives in memory only.
    """

    def __init__(
        self, setting: Any, domain: GridRows, data: Rows, store: Store | None = None
    ) -> None:
        super().__init__(setting, domain, data, store, IndividualFilter(setting.rho, 0))
        self._rule = setting.rule(len(domain.labels or ()))
        self._angular: bool = setting.kernel.angular
        self._stock, self._device = Stock(), device_in_use()
        if not setting.needs_reference:
            self._look(None)
        if store is not None:
            with replaying():
                self._replay(store)

    @property
    def _classes(self) -> tuple[str | int, ...]:
        return self._domain.labels or ()

    @property
    def _ready(self) -> bool:
        return self._pool is not None

    def _set_reference(self, queries: NDArray[np.float64]) -> None:
        self._look(queries)
        self._keep("reference", {"rows": queries})

    def _look(self, queries: NDArray[np.float64] | None) -> None:
        """Fix lens, ladder, reference and scales, and see every record through them."""
        setting = self._setting
        lens = Lens.plain(self._domain, normalise=setting.normalise)
        if setting.centre and queries is not None:
            lens = lens.centred_on(queries)
        self._dtype = lens.dtype(setting.key)
        self._ladder = setting.kernel.ladder(setting.levels, lens.unit)
        self._fixed = None
        if setting.threshold is not None:
            self._fixed = int(setting.kernel.least(setting.threshold, lens.unit))
        self._reference, weight = None, setting.threshold or 1.0
        if queries is not None:
            seen = QueryRows.of(lens.see_queries(queries, self._dtype))
            self._reference = Reference(seen, self._rule.share, setting.kernel.faintest(lens.unit))
            weight = self._reference.mean_weight(self._ladder, angular=self._angular)
        self._scales = setting.scales(weight, len(self._classes))
        self._answered = Answered(lens)
        self._pool = Pool(lens, self._dtype, self._coder(lens), self._device)
        for rows, owners in self._waiting or ():
            self._join(rows, owners)
        self._waiting = None

    def _coder(self, lens: Lens) -> Coder | None:
        search, width = self._setting.search, self._domain.width
        if isinstance(search, SignCodes):
            return PackedSigns.draw(search, width)
        if not isinstance(search, SignHashes):
            return None
        score = self._fixed or 0
        if self._reference is not None:
            score = int(np.median(self._limits(self._reference.seen.take(slice(0, 256)))))
        size = chosen(search, self._cosine(score, lens), width)
        return None if size is None else HashTables.draw(search.seed, *size, width)

    def _cosine(self, score: int, lens: Lens) -> float:
        """Return the cosine of a score, for normalised rows."""
        steps = score * lens.unit**2
        return steps if self._angular else 1.0 + steps / 2

    def _limits(self, seen: QueryRows) -> NDArray[np.int64]:
        if self._fixed is not None or self._reference is None:
            return np.full(len(seen), self._fixed or 0, dtype=np.int64)
        return self._reference.thresholds(seen, angular=self._angular)

    def _batch(self, queries: NDArray[np.float64], allowed: Any) -> Predictions:
        pool = self._pool
        if pool is None:
            raise unreadable()
        seen = QueryRows.of(pool.lens.see_queries(queries, self._dtype))
        limits = self._limits(seen)
        friends = self._friends(seen, limits)
        near = self._finder(pool, seen, limits)
        charges: Charges = []
        outcomes: list[Outcome] = []
        votes: list[NDArray[np.float64]] = []
        winners: list[int] = []
        for i in range(len(seen)):
            may = None if allowed is None else allowed[i]
            outcome = self._vote(pool, *near(i), may, charges)
            total = outcome.votes + self._public_votes(friends, i, winners)
            total = total if may is None else np.where(may, total, -np.inf)
            outcomes.append(outcome)
            votes.append(total / len(self._ladder))
            winners.append(int(np.argmax(total)))
        answers = self._answers(outcomes, votes, winners)
        self._keep(
            "answers",
            {
                "rows": queries,
                "labels": np.array(winners),
                "counts": answers.counts,
                "votes": answers.votes,
                "deviations": answers.deviations,
            },
            charges,
        )
        if self._setting.reuse:
            self._answered.add(seen, winners)
        return answers

    def _vote(
        self,
        pool: Pool,
        found: NDArray[np.intp],
        scores: NDArray[np.int64],
        may: Any,
        charges: Charges,
    ) -> Outcome:
        """Let the records that were found vote, and charge them."""
        near = self._select(pool, found, scores, may)
        noisy, classes = self._stock.noisy, len(self._classes)
        return vote(near, classes, self._scales, self._purses, noisy, charges)

    def _answers(
        self, outcomes: list[Outcome], votes: list[NDArray[np.float64]], winners: list[int]
    ) -> Predictions:
        return Predictions(
            tuple(self._classes[w] for w in winners),
            np.array([o.count for o in outcomes], dtype=np.int64),
            np.array(votes),
            np.array([o.scale for o in outcomes]) / len(self._ladder),
        )

    def _finder(
        self, pool: Pool, seen: QueryRows, limits: NDArray[np.int64]
    ) -> Callable[[int], tuple[NDArray[np.intp], NDArray[np.int64]]]:
        """Return the function that finds records near queries, with scores."""
        if pool.coder is None:
            found = pool.near(seen.rows, seen.norms, limits, angular=self._angular)
            return lambda _: next(found)
        codes = pool.coder.codes(seen.rows)
        cosines = [self._cosine(int(limit), pool.lens) for limit in limits]
        return lambda i: pool.nearby_hashed(
            seen.rows[i],
            pool.alike(codes[:, i], cosines[i]),
            int(seen.norms[i]),
            int(limits[i]),
            angular=self._angular,
        )

    def _select(
        self, pool: Pool, found: NDArray[np.intp], scores: NDArray[np.int64], may: Any
    ) -> Near:
        labels = pool.labels[found]
        if may is not None:
            keep = may[labels]
            found, scores, labels = found[keep], scores[keep], labels[keep]
        weights = weights_of(self._ladder, scores)
        return Near(pool.owners[found], labels, weights, pool.one_each)

    def _friends(self, seen: QueryRows, limits: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return earlier queries' weights as neighbours."""
        if not self._setting.reuse:
            return None
        scores = scores_between(seen, self._answered.with_batch(seen), angular=self._angular)
        weights = weights_of(self._ladder, scores)
        return np.where(scores >= limits[:, None], weights, 0)

    def _public_votes(
        self, friends: NDArray[np.int64] | None, i: int, winners: list[int]
    ) -> NDArray[np.float64]:
        size = len(self._classes)
        if friends is None:
            return np.zeros(size)
        labels = [*self._answered.labels, *winners]
        weights = friends[i, : len(labels)]
        whole = np.bincount(np.array(labels, dtype=np.int64), weights=weights, minlength=size)
        return whole.astype(np.float64)

    def _replay(self, store: Store) -> None:
        """Replay the store's steps without answering or charging."""
        for kind, payload in store.entries():
            if kind == "reference":
                self._look(kept_reference(self._domain, payload))
            elif kind == "answers":
                if self._setting.reuse and self._pool is not None:
                    queries, labels = kept_labelled(self._domain, payload)
                    rows = self._pool.lens.see_queries(queries, self._dtype)
                    self._answered.add(QueryRows.of(rows), labels.tolist())
            elif kind in ("means", "easy"):
                continue  # of a hybrid, which reads them itself
            elif kind == "failure":
                self._over = True
            elif kind in ("insert", "relabel", "delete") and self._domain.ids:
                kept_ids(self._owners, payload)
                self._apply(kind, payload)
            else:
                raise damaged()
        purses = store.purses()
        if purses is not None:
            self._purses.restore(purses)
