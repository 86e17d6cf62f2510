"""Predict by noisy votes over random subsamples, the published baseline (``private_knn.md``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.session.identity import damaged
from opendp_sim.core.arithmetic.rounding import float_up
from opendp_sim.core.claims import Interactive
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import BudgetError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.randomness import private_bytes
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import grid_rows
from opendp_sim.domains.rows import GridRows, Rows, as_rows
from opendp_sim.io.origin import origin_of
from opendp_sim.measurements.knn._impl.features import Lens
from opendp_sim.measurements.knn._impl.pool import Pool
from opendp_sim.measurements.knn._impl.public_votes import QueryRows
from opendp_sim.measurements.knn._impl.service import Predictions, Store, unreadable
from opendp_sim.measurements.knn._impl.stored import kept_labels, kept_reference, replaying
from opendp_sim.measurements.knn._impl.subsampled_votes import (
    dyadic_rate,
    need_reachable,
    scale_for,
)
from opendp_sim.measurements.knn._impl.updates import FixedRecords
from opendp_sim.measurements.knn._impl.vote_noise import Stock, discrete

# --------------------------------------------------------------------------------------------------
# The running baseline: a private Poisson sample, its k nearest records, noisy votes.

_NO_PURSES = np.zeros(0, dtype=np.int64)


def coins(count: int, rate: int) -> NDArray[np.bool_]:
    """Return independent coins that are true with probability ``rate / 2**32``, exactly."""
    words = private_bytes(4 * count).view(np.uint32).astype(np.int64)
    return words < rate


def nearest_places(
    scores: NDArray[np.int64], labels: NDArray[np.int64], count: int
) -> NDArray[np.intp]:
    """Return the places of the ``count`` highest scores.

    Of equal scores, of the lowest labels. Records that are equal in both have the same vote, so the
    votes of those found are a function of the multiset of records: their order is no part of it. One
    record more displaces at most one.
    """
    if len(scores) <= count:
        return np.arange(len(scores))
    limit = np.partition(scores, len(scores) - count)[len(scores) - count]
    above = np.flatnonzero(scores > limit)
    tied = np.flatnonzero(scores == limit)
    tied = tied[np.argsort(labels[tied], kind="stable")]
    return np.concatenate([above, tied[: count - len(above)]])


class SampledVotes(FixedRecords):
    """Answer a fixed number of queries from fresh samples.

    Everything but answers is secret.

    Args:
        setting: the mechanism record (``PrivateKnn``).
        domain: the grid of the rows.
        data: the records.
        scale: noise on each vote.
        store: keeps the number of answered queries; nothing for memory only.
    """

    def __init__(
        self, setting: Any, domain: GridRows, data: Rows, scale: float, store: Store | None = None
    ) -> None:
        super().__init__(setting, domain, store)
        self._data, self._scale = data, scale
        self._private = origin_of(data.values)
        self._rate = dyadic_rate(setting.rate)
        self._stock = Stock(discrete)
        self._answered = 0
        self._pool: Pool | None = None
        if not setting.centre:
            self._look(None)
        if store is not None:
            with replaying():
                self._replay(store)

    def _replay(self, store: Store) -> None:
        """Bring memory to where the store is."""
        for kind, payload in store.entries():
            if kind == "reference":
                self._look(kept_reference(self._domain, payload))
            elif kind == "failure":
                self._over = True
            elif kind == "answers":
                kept_labels(self._domain, payload["labels"])
            else:
                raise damaged()
        self._answered = store.answered  # those that were folded away count as well

    @property
    def _ready(self) -> bool:
        return self._pool is not None

    def _purses_now(self) -> NDArray[np.int64]:
        return _NO_PURSES

    def _spend_all(self) -> NDArray[np.int64]:
        self._answered = self._setting.queries
        return _NO_PURSES

    def _admit(self, queries: int) -> None:
        if self._answered + queries > self._setting.queries:
            raise BudgetError(
                "OS406", self._setting.key, expected=f"at most {self._setting.queries} queries in all",
                got=f"{queries} after {self._answered}",
                hint="the claim covers no more; ind_knn answers any number.",
            )  # fmt: skip

    def _set_reference(self, queries: NDArray[np.float64]) -> None:
        self._look(queries)
        self._keep("reference", {"rows": queries})

    def _look(self, queries: NDArray[np.float64] | None) -> None:
        lens = Lens.plain(self._domain, normalise=self._setting.normalise)
        lens = lens if queries is None else lens.centred_on(queries)
        self._pool = Pool(lens, lens.dtype(self._setting.key), None)
        labels = self._data.labels if self._data.labels is not None else _NO_PURSES
        self._pool.add(self._data.values, labels, np.arange(len(self._data)))

    def _batch(self, queries: NDArray[np.float64], allowed: Any) -> Predictions:
        del allowed
        if self._pool is None:
            raise unreadable()
        pool, classes = self._pool, self._domain.labels or ()
        seen = QueryRows.of(pool.lens.see_queries(queries, pool.dtype))
        self._answered += len(queries)
        votes = np.array(
            [self._votes(pool, product, len(classes)) for product in pool.products(seen.rows)]
        )
        answers = Predictions(
            tuple(classes[winner] for winner in votes.argmax(axis=1)),
            np.full(len(votes), np.nan),  # a parameter says how many vote
            votes.astype(np.float64),
            np.full(len(votes), self._scale),
        )
        self._keep("answers", {"rows": queries, "labels": votes.argmax(axis=1), "votes": votes})
        return answers

    def _votes(self, pool: Pool, products: NDArray[Any], classes: int) -> NDArray[np.int64]:
        sample = np.flatnonzero(coins(pool.size, self._rate))
        labels = pool.labels[sample]
        found = nearest_places(pool.closeness(products, sample), labels, self._setting.neighbours)
        return self._stock.noisy(np.bincount(labels[found], minlength=classes), self._scale)


# --------------------------------------------------------------------------------------------------


@register
class PrivateKnn(Mechanism):
    r"""Predict labels of an announced number of queries.

    Each from a fresh random subsample.

    Space
        Input: labelled rows on an integer grid under symmetric distance. Output: an OpenDP
        queryable. It answers rows of the input space, shape (m, d), with ``Predictions``: labels and
        noisy votes (nobody is counted: counts are NaN); at most T queries in all.
        ``{"reference": rows}`` and ``serve: session`` as for ``ind_knn``, without updates.

    Stability
        Not a transformation.

    Privacy
        .. math:: (\varepsilon, \delta) \mapsto
            (d_{in} \varepsilon, \delta (e^{d_{in} \varepsilon} - 1) / (e^{\varepsilon} - 1))

        under approximate max-divergence: the T-fold composition of the Poisson-subsampled
        mechanism is (epsilon, delta) at distance 1 (the noise scale is solved for it with dp-accounting)
        and group privacy does the rest. Everybody pays for every query. Rounds upward; not tight.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not grid
        rows, another metric. (OS203): the grid is too fine. (OS204): no labels. Of its map:
        AuditError (OS503): dp-accounting is missing. BudgetError (OS401): no scale meets the budget.
        Of a query: DataError (OS607), BudgetError (OS406), InternalError (OS902).

    Source
        [own] Lemma 1 in ``private_knn.md``; the mechanism is that of Zhu, Yu, Chandraker and Wang
        (2020), with Poisson sampling and discrete noise.

    Example
        >>> import numpy as np, opendp.prelude as dp
        >>> from opendp_sim.domains.metrics import Symmetric
        >>> from opendp_sim.domains.rows import GridRows
        >>> dp.enable_features("contrib")
        >>> grid = GridRows(width=2, labels=("left", "up"), unit=0.01, lower=(-100,), upper=(100,))
        >>> service = make_private_knn(grid, Symmetric(), epsilon=1.0, delta=1e-6, queries=20)
        >>> service.map(1)
        (1.0, 1e-06)
    """

    key: ClassVar[str] = "private_knn"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "measurements"
    forgets_answers: ClassVar[bool] = True
    """A session may fold answers that lie far back: their number stays."""

    epsilon: Annotated[
        float,
        param(
            "The loss of all queries together, for one record.", symbol="epsilon", unit="none",
            gt=0.0, le=50.0, hint="0.5 to 4 is usual; the language solves it from the budget.",
        ),
    ]  # fmt: skip
    delta: Annotated[
        float,
        param(
            "The failure probability that goes with epsilon.", symbol="delta", unit="probability",
            gt=0.0, lt=1.0, hint="below one over the number of records.",
        ),
    ]  # fmt: skip
    queries: Annotated[
        int,
        param(
            "How many queries are answered, and no more.", symbol="T", unit="queries",
            ge=1, le=10**6, hint="announce what you need: noise grows as its root.",
        ),
    ]  # fmt: skip
    neighbours: Annotated[
        int,
        param(
            "How many of the sample vote.", symbol="k", unit="records", default=150, ge=1,
            le=10**7, hint="about the size of a class times the rate, at most.",
        ),
    ] = 150  # fmt: skip
    rate: Annotated[
        float,
        param(
            "Probability with which a record enters a query's sample, rounded up to 2**-32.",
            symbol="g", unit="probability", default=0.2, gt=0.0, le=1.0,
            hint="0.05 to 0.3: the noise scale is about proportional to it.",
        ),
    ] = 0.2  # fmt: skip
    normalise: Annotated[
        bool,
        param(
            "Scale every row to unit length, on its own.", symbol="u", unit="none", default=True,
            hint="false compares raw distances.",
        ),
    ] = True  # fmt: skip
    centre: Annotated[
        bool,
        param(
            "Subtract the mean of the public reference queries first.", symbol="c", unit="none",
            default=True, hint="needs a reference, or a first batch of 50 queries.",
        ),
    ] = True  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Interactive:
        """State Lemma 1 of ``private_knn.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=True)
        if rows.ids:
            raise SpaceError(
                "OS201", f"{self.key}.input_domain", expected="rows without person ids",
                got="rows with ids", hint="put `bound_contributions` first, or use ind_knn.",
            )  # fmt: skip
        Lens.plain(rows, normalise=self.normalise).dtype(self.key)
        return Interactive(
            measure="approx_max_divergence",
            privacy_map=self._loss,
            start=lambda data: self.resume(rows, data).ask,
            resume=lambda data, store: self.resume(rows, data, store),
            expected=_Later(
                lambda: {"vote_noise": self.scale, "voters": float(self.neighbours)},
                ("vote_noise", "voters"),
            ),
        )

    @property
    def scale(self) -> float:
        """Return each vote's noise scale, solved once a setting."""
        return scale_for(self.epsilon, self.delta, self.queries, self.rate)

    def resume(self, rows: GridRows, data: Any, store: Any = None) -> SampledVotes:
        """Return a service over ``data``, where ``store`` left off."""
        data = rows.normal(data)
        rows.check(data)
        return SampledVotes(self, rows, as_rows(data), self.scale, store)

    def _loss(self, d_in: int) -> tuple[float, float]:
        # Whoever charges asks for the loss first: what cannot be drawn must not be charged.
        need_reachable(self.epsilon, self.delta, self.queries, self.rate)
        if d_in <= 1:
            return (self.epsilon, self.delta) if d_in else (0.0, 0.0)
        epsilon = float_up(Fraction(self.epsilon) * d_in)
        if epsilon > _VACUOUS:
            return epsilon, 1.0
        # Two expm1, a quotient and a product: less than 8 units in the last place.
        growth = math.expm1(epsilon) / math.expm1(self.epsilon) * (1 + 2.0**-49)
        return epsilon, min(1.0, float_up(Fraction(self.delta) * Fraction(growth)))


_VACUOUS = 700.0


class _Later(Mapping[str, float]):
    """Compute slow facts at first use."""

    def __init__(self, facts: Callable[[], dict[str, float]], names: tuple[str, ...]) -> None:
        self._facts, self._names = facts, names

    def __getitem__(self, name: str) -> float:
        return self._facts()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


make_private_knn, then_private_knn = constructors(PrivateKnn)
