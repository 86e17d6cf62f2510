"""Choose how many items to release, then release stable ones (``stable_top_k.md``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.rounding import float_up
from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.counts import Votes, need_candidates, votes_space
from opendp_sim.measurements.selection._impl.gap_utility import (
    K_MAX,
    SLOPE,
    TARGET,
    GapUtility,
    check_ranks,
    clipped,
)
from opendp_sim.measurements.selection._impl.peeling import NEEDS_CATALOGUE
from opendp_sim.measurements.selection._impl.selection import (
    OPENDP,
    SCALE,
    Accounting,
    Choices,
    Distance,
    SetDelta,
    choice_rho,
    gaussian_loss,
    passes_beyond,
    threshold_of,
    up,
)
from opendp_sim.measurements.selection._impl.stability import chosen_profile, stable_places


@register
class StableTopK(Mechanism):
    r"""Draw a rank, then release its top set if stable.

    The rank is drawn by its gap.

    Space
        Input: vote counts under L∞ distance (monotone: the distance is a number of users), over any
        catalogue, known or not. Output: a list of items in the public order, or None. Its length is
        the drawn rank (1 to k_max), or k with ``fill: peel``.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = f\, d_{in}^2 / s^2, \quad \delta(d_{in}) = \Pr[N \ge T - d_{in}]

        approximate zero-concentrated, d_in users: half of rho for the rank, half for the test; f is
        1, and 2 with ``fill: peel``, which spends as much again on peeling. N is the discrete
        Gaussian of parameter s, T as in ``stable_set``; one test, whatever k_max. With
        ``accounting: curve`` (not with ``fill: peel``) one (epsilon, delta) curve: one draw of bounded
        range, then the larger of the test's two cases, T calibrated at half of
        ``delta``. Refused where d_in reaches T. Exact draws,
        rounds outward.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): k_max is not above k, or
        not below the number of candidates; ``fill: peel`` without k, or with ``accounting: curve``.
        SpaceError (OS201, OS202): not vote counts. (OS204): ``fill: peel`` on an unknown catalogue.
        BudgetError (OS404): the map at a distance that the threshold does not cover.

    Source
        [own] Lemma 1 in ``stable_top_k.md``; Algorithms 2 and 3 of Zhu and Wang.

    Example
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> space = (dp.vector_domain(dp.atom_domain(T="i64"), 6),
        ...          dp.linf_distance(T="i64", monotonic=True))
        >>> top = space >> then_stable_top_k(k_max=4, scale=4.0, delta=1e-6)
        >>> top([900, 3, 800, 2, 1, 0]), top.map(1)[0]
        ([0, 2], 0.0625)
    """

    key = "stable_top_k"
    in_short = "Draw how many items to keep; give them if they lead by enough, else nothing."
    source = Proof(key="own", where="Lemma 1")
    room = "measurements"

    k_max: Annotated[int, param("The largest set that can be released.", **K_MAX)]
    scale: Annotated[float, param("Scale s of the noise on the gap and on the choice.", **SCALE)]
    delta: SetDelta
    k: Annotated[int | None, param("The size that is wanted, or none.", **TARGET)] = None
    utility: Annotated[
        Literal["clipped", "gap"],
        param(
            "What a cut is worth: its gap, clipped at one that passes the test, or the plain gap.",
            symbol="u", unit="none", default="clipped",
            hint="clipped, unless you want the published algorithm; it matters only with k.",
        ),
    ] = "clipped"  # fmt: skip
    slope: Annotated[
        float,
        param("Cost of a rank away from k; in votes, or in clipped gaps per k ranks.", **SLOPE),
    ] = 1.0
    fill: Annotated[
        Literal["none", "peel"],
        param(
            "Whether to end with exactly k items: missing ones drawn, surplus ones drawn from.",
            symbol="-", unit="none", default="none",
            hint="peel is the published algorithm for a fixed k; `gated_peel` costs half of it.",
        ),
    ] = "none"  # fmt: skip
    distance: Distance = 1
    accounting: Accounting = "zcdp"

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma 1 of ``stable_top_k.md``."""
        votes = votes_space(self.key, domain, metric)
        check_ranks(self.key, self.k_max, votes.candidates, self.k)
        self._check_fill(votes)
        plan = self.plan()
        single = self.accounting == "curve"
        return Private(
            measure="smoothed_max_divergence" if single else "approx_zero_concentrated_divergence",
            privacy_map=self._curve(votes, plan) if single else self._approximate(votes, plan),
            function=lambda data: draw_stable(OPENDP, votes, data, plan),
            expected={
                "threshold": float(plan.threshold),
                "gap_for_95_percent": plan.threshold + float(special.ndtri(0.95)) * self.scale,
                "ranks": float(self.k_max),
            },
        )

    def plan(self) -> StablePlan:
        """Return the public numbers of the two stages."""
        delta = self.delta / 2 if self.accounting == "curve" else self.delta
        threshold = threshold_of(self.key, self.scale, delta, self.distance)
        if self.utility == "clipped" and self.k is not None:
            utility = clipped(self.k_max, self.k, self.slope, threshold, self.scale)
        else:
            utility = GapUtility(self.k_max, None, self.k, self.slope)
        fill = self.k if self.fill == "peel" else None
        return StablePlan(utility, self.scale, threshold, fill)

    def _check_fill(self, votes: Votes) -> None:
        if self.fill == "none":
            return
        need_candidates(self.key, votes, NEEDS_CATALOGUE)
        if not votes.listed:
            raise SpaceError(
                "OS204", f"{self.key}.input_domain", expected="a listed catalogue",
                got="a universe of integers", hint="use `gated_peel`, which needs no list.",
            )  # fmt: skip
        if self.k is None or self.accounting == "curve":
            raise ParameterError(
                "OS102", f"{self.key}.fill", expected="a wanted size k, and accounting: zcdp",
                got=self.fill, hint="set `k`; for a curve of a fixed k use `gated_peel`.",
            )  # fmt: skip

    def _approximate(self, votes: Votes, plan: StablePlan) -> Callable[[Any], tuple[float, float]]:
        def approximate(d_in: Any) -> tuple[float, float]:
            users = votes.users(d_in)
            rho = up(choice_rho(self.scale, users), gaussian_loss(self.scale, users))
            if plan.fill is not None:
                # What any number of draws costs at its own scale; the factor holds their roundings.
                rho = up(rho, (users / self.scale) ** 2 * (1 + 2.0**-40))
            return rho, passes_beyond(self.key, self.scale, plan.threshold, users)

        return approximate

    def _curve(self, votes: Votes, plan: StablePlan) -> Callable[[Any], Any]:
        @lru_cache(maxsize=64)
        def profile(users: int) -> Callable[[float], float]:
            passes_beyond(self.key, self.scale, plan.threshold, users)
            if users == 0:
                return lambda _: 0.0
            range_ = float_up(2 * users / self.scale * (1 + 2.0**-52))
            return chosen_profile(self.scale, plan.threshold, users, range_).delta

        return lambda d_in: profile(votes.users(d_in))


@dataclass(frozen=True)
class StablePlan:
    """Hold a stable release's utility, scales, threshold and size, all public."""

    utility: GapUtility
    scale: float
    threshold: int
    fill: int | None = None

    def peel_scale(self, rounds: int) -> float:
        """Return the Gumbel scale of ``rounds`` draws at the tests' cost."""
        return float(self.scale * np.sqrt(rounds / 8.0))


def draw_stable(
    coins: Choices, votes: Votes, data: Any, plan: StablePlan
) -> list[str | int] | None:
    """Return the released items in the public order, or None."""
    ranking = votes.rank(data, plan.utility.k_max + 1)
    k = 1 + coins.best(plan.utility(ranking.gaps), plan.scale)
    places = stable_places(coins, ranking, k, plan.scale, plan.threshold)
    if plan.fill is not None:
        return _filled(coins, votes, data, places, plan)
    return None if places is None else votes.names(data, places)


def _filled(
    coins: Choices, votes: Votes, data: Any, places: NDArray[np.int64] | None, plan: StablePlan
) -> list[str | int]:
    """Return exactly k items."""
    k = int(plan.fill or 0)
    found = [] if places is None else [int(place) for place in places]
    if len(found) == k:
        return votes.names(data, np.array(found))
    rounds = k - len(found) if len(found) < k else k
    scale = plan.peel_scale(rounds)
    counts = votes.counts(data)
    pool = np.array(found) if len(found) > k else np.setdiff1d(np.arange(len(counts)), found)
    drawn = pool[np.asarray(coins.top(counts[pool], rounds, scale), dtype=np.int64)]
    return votes.names(data, drawn if len(found) > k else np.concatenate([drawn, found]))


make_stable_top_k, then_stable_top_k = constructors(StableTopK)
