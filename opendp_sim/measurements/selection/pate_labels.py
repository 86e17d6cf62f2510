"""Release queries' label sets from votes of teachers, PATE (``pate_labels.md``)."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.rounding import float_up, sqrt_up
from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.mechanism import Mechanism, Option, Proof, one_of, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import real_rows
from opendp_sim.domains.counts import USERS, Votes, votes_space
from opendp_sim.domains.rows import as_rows
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection._impl.gap_utility import GapUtility, check_ranks
from opendp_sim.measurements.selection._impl.selection import (
    DELTA,
    DISTANCE,
    OPENDP,
    SCALE,
    Choices,
    choice_rho,
    gaussian_loss,
    passes_beyond,
    threshold_of,
    up,
)
from opendp_sim.measurements.selection.stable_top_k import StablePlan, draw_stable

_HALF = 0.5
_FINE = 2**10
"""Integer steps of one vote where votes are scaled down."""


class StableVotes(Option):
    """Release queries' label sets above the clearest gap, if stable."""

    key = "stable"

    k_max: Annotated[
        int,
        param(
            "The largest label set.", symbol="K", unit="labels", ge=1, le=10**4,
            hint="what one item may plausibly carry; below the number of labels.",
        ),
    ]  # fmt: skip


class GaussianVotes(Option):
    """Release queries' labels whose noisy votes reach a quorum (plain PATE)."""

    key = "gaussian"

    quorum: Annotated[
        int,
        param(
            "Votes that a label needs.", symbol="v", unit="teachers", ge=1, le=10**9,
            hint="half of the number of teachers, which is public.",
        ),
    ]  # fmt: skip
    tau: Annotated[
        int | None,
        param(
            "Votes of one teacher per query, scaled down to this many in all; none for no scaling.",
            symbol="τ", unit="votes", default=None, ge=1, le=10**4,
            hint="about the number of labels of an item; noise falls as its square root.",
        ),
    ] = None  # fmt: skip


@register
class PateLabels(Mechanism):
    r"""Answer a fixed number of multi-label queries from teachers' votes.

    Space
        Input: one row a teacher, of ``queries * labels`` numbers, query by query; a number above one
        half is a vote. Symmetric distance: teachers added or removed. Output: a list with, for each
        query, a list of label numbers in rising order, or None where ``stable`` gives no answer.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = T d_{in}^2 / s^2, \quad \delta(d_{in}) = T \Pr[N \ge C - d_{in}]
                  \quad \text{or} \quad \rho(d_{in}) = T n\, d_{in}^2 / (2 s^2)

        d_in teachers, T queries. First ``stable`` (approximate zero-concentrated), C the least
        threshold with :math:`\delta(c) \le \delta_t` at the calibrated distance c; then ``gaussian``
        (zero-concentrated), n the smaller of tau and the number of labels. A person's record, in one
        teacher alone, changes that teacher's row: d_in = 2, and ``distance: 2`` to calibrate for
        it. Exact noise, rounds outward, tight per query.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): k_max is not below the
        number of labels. SpaceError (OS201, OS202): not real rows, another metric. (OS204): a width
        that is no multiple of the number of labels. BudgetError (OS404): the map at a distance that
        the threshold does not cover.

    Source
        [own] Lemma 1 in ``pate_labels.md``; Algorithm 2 and section 6 of Zhu and Wang.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=8, nan=False, T=float), dp.symmetric_distance()
        >>> pate = space >> then_pate_labels(labels=4, rule={"stable": {"k_max": 3}},
        ...                                  scale=4.0, delta=1e-6)
        >>> votes = np.tile([1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0], (200, 1))
        >>> pate(votes), pate.map(1)[0]
        ([[0, 2], [2]], 0.125)
    """

    key = "pate_labels"
    in_short = "Answer a fixed number of questions by the votes of teachers."
    source = Proof(key="own", where="Lemma 1")
    room = "measurements"

    labels: Annotated[
        int,
        param(
            "Number of labels; a teacher's row holds this many numbers for each query.", symbol="L",
            unit="labels", ge=2, le=10**5, hint="the row's width over it is the number of queries.",
        ),
    ]  # fmt: skip
    rule: Annotated[
        StableVotes | GaussianVotes, one_of(StableVotes, GaussianVotes),
        param(
            "How one query is answered.", symbol="r", unit="none",
            hint="rule: {stable: {k_max: 5}}; {gaussian: {quorum: 50, tau: 3}} are the baselines.",
        ),
    ]  # fmt: skip
    scale: Annotated[float, param("Scale s of the noise of one query.", **SCALE)]
    delta: Annotated[
        float, param("Chance that any unstable set gets out, over all queries.", **DELTA)
    ]
    distance: Annotated[
        int, param("Number of teachers for whom the threshold is calibrated.", **DISTANCE)
    ] = 1

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma 1 of ``pate_labels.md``."""
        rows = real_rows(self.key, domain, metric)
        if rows.width % self.labels:
            raise SpaceError(
                "OS204", f"{self.key}.labels", expected=f"a divisor of the row's width {rows.width}",
                got=self.labels, hint="a row holds queries * labels numbers, query by query.",
            )  # fmt: skip
        queries = rows.width // self.labels
        if isinstance(self.rule, StableVotes):
            return self._stable(queries, self.rule)
        return self._gaussian(queries, self.rule)

    def _stable(self, queries: int, rule: StableVotes) -> Private:
        check_ranks(self.key, rule.k_max, self.labels, None)
        threshold = threshold_of(self.key, self.scale, self.delta / queries, self.distance)
        plan = StablePlan(GapUtility(rule.k_max, None, None, 0.0), self.scale, threshold)
        votes = votes_space(self.key, IntVector(self.labels), USERS)

        def privacy_map(d_in: Any) -> tuple[float, float]:
            one = up(choice_rho(self.scale, d_in), gaussian_loss(self.scale, d_in))
            delta = passes_beyond(self.key, self.scale, threshold, int(d_in))
            return times(one, queries), min(1.0, times(delta, queries))

        return Private(
            measure="approx_zero_concentrated_divergence",
            privacy_map=privacy_map,
            function=lambda data: answer_stable(OPENDP, votes, whole_votes(data), plan),
            expected={
                "queries": float(queries),
                "threshold": float(threshold),
                "rho_per_query": privacy_map(1)[0] / queries,
                "delta_per_query": self.delta / queries,
            },
        )

    def _gaussian(self, queries: int, rule: GaussianVotes) -> Private:
        most = self.labels if rule.tau is None else min(rule.tau, self.labels)
        norm = sqrt_up(most)
        return Private(
            measure="zero_concentrated_divergence",
            privacy_map=lambda d_in: times(gaussian_loss(self.scale, d_in, norm), queries),
            function=lambda data: answer_quorum(
                OPENDP,
                shared_votes(data, self.labels, rule.tau),
                self.labels,
                rule.quorum,
                self.scale,
            ),
            expected={
                "queries": float(queries),
                "deviation": self.scale,
                "rho_per_query": gaussian_loss(self.scale, 1, norm),
                "votes_per_teacher": float(most),
            },
        )


def times(loss: float, queries: int) -> float:
    """Return the loss of all queries, rounded up."""
    return float_up(loss * queries * (1 + 2.0**-50))


def whole_votes(data: Any) -> NDArray[np.int64]:
    """Return the teachers with a vote, shape (queries * labels,)."""
    return (as_rows(data).values > _HALF).sum(axis=0, dtype=np.int64)


def shared_votes(data: Any, labels: int, tau: int | None) -> NDArray[np.int64]:
    """Return votes in steps of 1/1024, each teacher's scaled to ``tau``."""
    if tau is None:
        return whole_votes(data) * _FINE
    votes = as_rows(data).values > _HALF
    each = votes.reshape(len(votes), votes.shape[1] // labels, labels)  # no teacher is a table too
    cast = np.maximum(each.sum(axis=2, dtype=np.int64), 1)
    share = np.where(cast > tau, (_FINE * tau) // cast, _FINE)
    total: NDArray[np.int64] = (each * share[:, :, None]).sum(axis=0, dtype=np.int64)
    return total.ravel()


def answer_stable(
    coins: Choices, votes: Votes, counts: NDArray[np.int64], plan: StablePlan
) -> list[list[str | int] | None]:
    """Return a label set or None for each query."""
    return [draw_stable(coins, votes, each, plan) for each in counts.reshape(-1, votes.candidates)]  # type: ignore[arg-type]


def answer_quorum(
    coins: Choices, steps: NDArray[np.int64], labels: int, quorum: int, scale: float
) -> list[list[int]]:
    """Return, for each query, the labels whose noisy count reaches the quorum."""
    noisy = coins.noisy(steps, scale * _FINE).reshape(-1, labels)
    return [np.flatnonzero(each >= quorum * _FINE).tolist() for each in noisy]


make_pate_labels, then_pate_labels = constructors(PateLabels)
