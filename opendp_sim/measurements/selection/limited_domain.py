"""Release an unknown catalogue's top items above noisy thresholds (``limited_domain.md``)."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from opendp_sim.core.arithmetic.rounding import least_int
from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import BudgetError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.counts import Votes, votes_space
from opendp_sim.measurements.selection._impl.gap_utility import K_MAX, check_ranks
from opendp_sim.measurements.selection._impl.peeling import check_rounds, range_of
from opendp_sim.measurements.selection._impl.peeling_profile import peeling_profile
from opendp_sim.measurements.selection._impl.ranked import RANKED, order_of_draws, ranked_items
from opendp_sim.measurements.selection._impl.selection import (
    OPENDP,
    SCALE,
    Accounting,
    Choices,
    Distance,
    ItemDelta,
    peel_rho,
)

_SLACK = 1 + 1e-9
_TINY = 1e-300
"""Added where a positive chance may round to 0."""


@register
class LimitedDomain(Mechanism):
    r"""Release up to k items above a noisy threshold.

    The threshold lies above rank k_max + 1.

    Space
        Input: vote counts under L∞ distance (monotone: the distance is a number of users), over any
        catalogue, known or not. Output: a list of at most k items in the public order.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = k (d_{in} / s)^2 / 8, \quad
                  \delta(d_{in}) = 1 - (1 + q e^{-(\theta - d_{in}) / s})^{-k}

        approximate zero-concentrated, d_in users; q = min(k_max, d_in touched), where
        the distance states the items that a user touched (else k_max), and theta, the
        height of the threshold above rank k_max + 1, is the least whole number with
        :math:`\delta(c) \le \delta_t` at the calibrated distance c. With ``accounting: curve`` the
        exact curve of k rounds plus :math:`q / (1 + e^{(\theta - d_{in}) / s}) + q / (1 + e^{\theta
        / s})`, theta calibrated at half of ``delta``. Refused where d_in reaches theta. Exact draws,
        rounds outward.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): k_max is not above k, or
        not below the number of candidates; a curve of more than 4,096 rounds. SpaceError (OS201,
        OS202): not vote counts. BudgetError (OS404): the map at a distance that the threshold does
        not cover.

    Source
        [own] Lemma 2 in ``limited_domain.md``; the mechanism is that of Durfee and Rogers.

    Example
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> space = (dp.vector_domain(dp.atom_domain(T="i64"), 6),
        ...          dp.linf_distance(T="i64", monotonic=True))
        >>> top = space >> then_limited_domain(k=2, k_max=4, scale=5.0, delta=1e-6)
        >>> top([900, 3, 800, 2, 1, 0]), top.map(1)[0]
        ([0, 2], 0.01)
    """

    key = "limited_domain"
    in_short = "Give the items whose votes, after noise, are well above a noisy threshold."
    source = Proof(key="own", where="Lemma 2")
    room = "measurements"

    k: Annotated[
        int,
        param(
            "The most items that are released.", symbol="k", unit="items", ge=1, le=10**6,
            hint="the noise for one budget grows as the square root of k.",
        ),
    ]  # fmt: skip
    k_max: Annotated[int, param("Ranks that are looked at.", **K_MAX)]
    scale: Annotated[float, param("Scale s of the Gumbel noise.", **SCALE)]
    delta: ItemDelta
    distance: Distance = 1
    accounting: Accounting = "zcdp"
    ranked: Annotated[
        bool, param("Whether items come in the order in which they were drawn.", **RANKED)
    ] = False

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma 2 of ``limited_domain.md``."""
        votes = votes_space(self.key, domain, metric)
        check_ranks(self.key, self.k_max, votes.candidates, self.k)
        check_rounds(self.key, self.k, self.accounting)
        single = self.accounting == "curve"
        height = self._height(votes, single=single)

        def approximate(d_in: Any) -> tuple[float, float]:
            users = votes.users(d_in)
            self._covered(users, height)
            return peel_rho(self.k, self.scale, users), self._escape(votes, users, height)

        def curve(d_in: Any) -> Any:
            users = votes.users(d_in)
            self._covered(users, height)
            peel = peeling_profile(self.k, range_of(self.scale, users))
            extra = self._appear(votes, users, height)
            return lambda x: min(1.0, peel.delta(x) + extra)

        return Private(
            measure="smoothed_max_divergence" if single else "approx_zero_concentrated_divergence",
            privacy_map=curve if single else approximate,
            function=lambda data: draw_limited(
                OPENDP, votes, data, self.k, self.k_max, self.scale, height, ranked=self.ranked
            ),
            expected={
                "votes_for_95_percent": self.votes_listed(height),
                "height": float(height),
                "deviation": self.scale * math.pi / math.sqrt(6),
                "ranks": float(self.k_max),
            }
            | (order_of_draws(self.scale) if self.ranked else {}),
        )

    def _swaps(self, votes: Votes, users: int) -> int:
        """Return how many leading items may differ between sides."""
        return min(self.k_max, users * (votes.per_user or self.k_max))

    def _escape(self, votes: Votes, users: int, height: int) -> float:
        """Bound a release's part without a match (Lemma 2)."""
        if users == 0:
            return 0.0
        odds = self._swaps(votes, users) * math.exp((users - height) / self.scale)
        return min(1.0, -math.expm1(-self.k * math.log1p(odds)) * _SLACK + _TINY)

    def _appear(self, votes: Votes, users: int, height: int) -> float:
        """Bound a one-sided item's chance above the threshold (Lemma 3)."""
        if users == 0:
            return 0.0
        both = sum(1 / (1 + math.exp(min((height - d) / self.scale, 700))) for d in (users, 0))
        return min(1.0, self._swaps(votes, users) * both * _SLACK)

    def _height(self, votes: Votes, *, single: bool) -> int:
        bound, most = (self._appear, self.delta / 2) if single else (self._escape, self.delta)
        return self.distance + least_int(
            lambda level: bound(votes, self.distance, self.distance + level) <= most
        )

    def votes_listed(self, height: int) -> float:
        """Return votes above rank ``k_max + 1`` that win 95 % of runs.

        The difference of the two draws' noise is logistic; where k others are ahead it is not listed.
        """
        return height + self.scale * math.log(19)

    def _covered(self, users: int, height: int) -> None:
        if users >= height:
            raise BudgetError(
                "OS404", f"{self.key}.map", expected=f"an input distance below {height} users",
                got=users, hint="set `distance` to the number of users you mean to hide.",
            )  # fmt: skip


def draw_limited(
    coins: Choices,
    votes: Votes,
    data: Any,
    k: int,
    k_max: int,
    scale: float,
    height: int,
    *,
    ranked: bool = False,
) -> Any:
    """Return at most k items, publicly ordered or ranked."""
    ranking = votes.rank(data, k_max + 1)
    places = ranking.places[:k_max]
    places = places[places >= 0]
    scores = np.append(ranking.counts[: len(places)], ranking.counts[k_max] + height)
    drawn = coins.in_order(scores, min(k, len(scores)), scale)
    stop = len(places)
    above = drawn[: drawn.index(stop)] if stop in drawn else drawn
    found = votes.names(data, places[np.asarray(above, dtype=np.int64)], ranked=ranked)
    return ranked_items(found) if ranked else found


make_limited_domain, then_limited_domain = constructors(LimitedDomain)
