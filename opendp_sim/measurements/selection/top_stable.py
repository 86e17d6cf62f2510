"""Release the largest stable top set, by sparse vectors from k_max (``top_stable.md``)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, Any

import numpy as np

from opendp_sim.core.arithmetic.rounding import float_up, least_int
from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import BudgetError, ParameterError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.counts import Votes, votes_space
from opendp_sim.measurements.selection._impl.gap_utility import K_MAX, check_ranks
from opendp_sim.measurements.selection._impl.selection import OPENDP, Choices, Distance, SetDelta

_SLACK = 1 + 1e-9
_REACH = 45.0
"""Scales of the threshold's noise after which the table is cut."""
_CUT = math.exp(-_REACH)
_WIDEST = 50_000
"""Noise scales, in votes, up to which the table of the tail is built."""


@register
class TopStable(Mechanism):
    r"""Test top sets from k_max down, releasing the first stable.

    Sizes k_max, k_max - 1, ....

    Space
        Input: vote counts under L∞ distance (monotone: the distance is a number of users), over any
        catalogue, known or not. Output: a list of at most k items in the public order, or None. From
        a stable set larger than k, k items are drawn uniformly.

    Stability
        Not a transformation.

    Privacy
        .. math:: \epsilon(d_{in}) = \epsilon\, d_{in}, \quad
                  \delta(d_{in}) = K \Pr[X - Y \ge C - d_{in}]

        approximate max divergence, d_in users; K is k_max, X and Y are discrete Laplace of scales
        :math:`2 / ((1 - p) \epsilon)` and :math:`1 / (p \epsilon)`, and C is the least threshold with
        :math:`\delta(c) \le \delta_t` at the calibrated distance c. Refused where d_in reaches C.
        Exact noise, rounds outward.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): k_max is not above k, or
        not below the number of candidates. SpaceError (OS201, OS202): not vote counts. BudgetError
        (OS404): the map at a distance that the threshold does not cover.

    Source
        [own] Lemma 2 in ``top_stable.md``; the mechanism is that of Carvalho and others.

    Example
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> space = (dp.vector_domain(dp.atom_domain(T="i64"), 6),
        ...          dp.linf_distance(T="i64", monotonic=True))
        >>> top = space >> then_top_stable(k=2, k_max=4, epsilon=1.0, delta=1e-6)
        >>> top([900, 3, 800, 2, 1, 0]), top.map(1)[0]
        ([0, 2], 1.0)
    """

    key = "top_stable"
    in_short = "Try ever fewer items; give the first set that leads by enough after noise."
    source = Proof(key="own", where="Lemma 2")
    room = "measurements"

    k: Annotated[
        int,
        param(
            "The most items that are released.", symbol="k", unit="items", ge=1, le=10**6,
            hint="sets larger than k are cut down to k at random.",
        ),
    ]  # fmt: skip
    k_max: Annotated[int, param("The largest set that is tested.", **K_MAX)]
    epsilon: Annotated[
        float,
        param(
            "Loss of the search for one user.", symbol="ε", unit="nats", ge=2.0**-60, le=100,
            hint="the language solves it from the budget: leave it out.",
        ),
    ]  # fmt: skip
    delta: SetDelta
    share: Annotated[
        float,
        param(
            "Share of epsilon that the noisy threshold costs.", symbol="p", unit="none",
            default=0.37, ge=2.0**-60, lt=1, hint="0.37 is the published default.",
        ),
    ] = 0.37  # fmt: skip
    distance: Distance = 1

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma 2 of ``top_stable.md``."""
        votes = votes_space(self.key, domain, metric)
        check_ranks(self.key, self.k_max, votes.candidates, self.k)
        threshold = self.threshold()

        def privacy_map(d_in: Any) -> tuple[float, float]:
            users = votes.users(d_in)
            if users == 0:
                return 0.0, 0.0
            if users >= threshold:
                raise BudgetError(
                    "OS404", f"{self.key}.map", got=users,
                    expected=f"an input distance below {threshold} users",
                    hint="set `distance` to the number of users you mean to hide.",
                )  # fmt: skip
            delta = min(1.0, self.k_max * difference_tail(*self.scales, threshold - users))
            return float_up(self.epsilon * users * (1 + 2.0**-50)), delta

        return Private(
            measure="approx_max_divergence",
            privacy_map=privacy_map,
            function=lambda data: draw_top_stable(
                OPENDP, votes, data, self.k, self.k_max, self.scales, threshold
            ),
            expected={"threshold": float(threshold), "ranks": float(self.k_max)},
        )

    @property
    def scales(self) -> tuple[float, float]:
        """Scales of the noise on a gap and on the threshold."""
        return 2 / ((1 - self.share) * self.epsilon), 1 / (self.share * self.epsilon)

    def threshold(self) -> int:
        """Return the least C that ``distance`` users' difference reaches rarely enough."""
        self._tabulated()
        return self.distance + least_int(
            lambda level: self.k_max * difference_tail(*self.scales, level) <= self.delta
        )

    def _tabulated(self) -> None:
        """Refuse sizes that Lemma 3's table cannot hold exactly."""
        gap, bar = self.scales
        least = 4 * self.k_max * _CUT
        if self.delta < least:
            raise ParameterError(
                "OS102", f"{self.key}.delta", expected=f"a delta of at least {least:.1e}",
                got=self.delta, hint="the tail is known up to 2 exp(-45) a rank; ask for more delta.",
            )  # fmt: skip
        if bar > _WIDEST or gap > _WIDEST:
            field = "epsilon" if self.share in (0.37, 0.5) else "share"
            raise ParameterError(
                "OS102", f"{self.key}.{field}", expected=f"noise scales of at most {_WIDEST:,} votes",
                got=getattr(self, field),
                hint="raise the budget, or leave share at 0.37; at such noise nothing is ever stable.",
            )  # fmt: skip


@lru_cache(maxsize=4096)
def difference_tail(left: float, right: float, least: int) -> float:
    """Bound ``Pr[X - Y >= least]``, X and Y discrete Laplace of these scales (Lemma 3)."""
    reach = math.ceil(_REACH * right)
    y = np.arange(-reach, reach + 1)
    mass = np.exp(-np.abs(y) / right) * math.tanh(0.5 / right)
    q, at = math.exp(-1 / left), least + y
    up = np.exp(-np.maximum(at, 0) / left) / (1 + q)
    down = 1 - np.exp(-np.maximum(1 - at, 0) / left) / (1 + q)
    inside = float((mass * np.where(at >= 1, up, down)).sum())
    return min(1.0, inside * _SLACK + 2 * _CUT)


def draw_top_stable(
    coins: Choices,
    votes: Votes,
    data: Any,
    k: int,
    k_max: int,
    scales: tuple[float, float],
    threshold: int,
) -> list[str | int] | None:
    """Return at most k items in the public order, or None."""
    ranking = votes.rank(data, k_max + 1)
    bar = threshold + coins.laplace(scales[1])
    for size in range(k_max, 0, -1):
        gap = int(ranking.counts[size - 1] - ranking.counts[size])
        if coins.laplace_reaches(scales[0], bar - gap):
            places = ranking.places[:size]
            if (places < 0).any():
                return None
            if size > k:
                kept = coins.top(np.zeros(size, dtype=np.int64), k, 1.0)
                places = places[np.asarray(kept, dtype=np.int64)]
            return votes.names(data, places)
    return None


make_top_stable, then_top_stable = constructors(TopStable)
