"""Noise threshold: noise on the count of every item that occurs, and those that reach a threshold.

Proof of the privacy map: ``noise_threshold.md``, beside this file.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.spaces.counts import Votes, votes_space
from opendp_sim.top_k.parts.gap_utility import check_k
from opendp_sim.top_k.parts.passing import Apart, law_of, least_passing, passes, profile
from opendp_sim.top_k.parts.ranked import RANKED, ranked_items
from opendp_sim.top_k.parts.selection import (
    ACCOUNTING,
    DELTA,
    DISTANCE,
    OPENDP,
    SCALE,
    Accounting,
    Coins,
    need_cover,
)

__all__ = ["NoiseThreshold", "draw_passing", "make_noise_threshold", "then_noise_threshold"]

Noise = Literal["gaussian", "laplace"]


@register
class NoiseThreshold(Mechanism):
    r"""Add noise to the votes of every item that has any; release items that reach a threshold.

    Space
        Input: vote counts over any catalogue, known or not, under L∞ distance (monotone: the
        distance is a number of users) that states the items a user touches, or over a listed
        catalogue, where a user may touch all m. Output: a list of items in the public order, at most
        k of them where k is given: those of the largest noisy counts.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = L \, d_{in}^2 / (2 s^2), \quad
                  \delta(d_{in}) = 1 - \min\{(1 - Q(T - 1))^{L \, d_{in}}, (1 - Q(T - d_{in}))^L\}

        approximate zero-concentrated, d_in users of at most L items each, Q the tail of a normal
        variable of deviation s rounded to whole numbers, and T the least threshold with
        :math:`\delta \le \delta_t` at the calibrated distance c. With ``noise: laplace`` the noise
        is discrete Laplace of scale s and :math:`\rho = (L \, d_{in} / s)^2 / 2`. With
        ``accounting: curve`` the largest profile over all splits of the votes into those on items of
        one side and those on items of both, as one (epsilon, delta) curve. Refused where d_in
        reaches T. Exact noise, rounds outward, delta tight.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): k is not below the number
        of candidates. SpaceError (OS201, OS202): not vote counts, or no bound on the items of a user.
        BudgetError (OS404): the map at a distance that the threshold does not cover.

    Source
        [own] Lemmas 1 to 4 in ``noise_threshold.md``; the mechanism is OpenDP's noise threshold.

    Example
        >>> import numpy as np
        >>> from opendp_sim.spaces.counts import OpenCounts
        >>> from opendp_sim.spaces.metrics import VectorNorm
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> one_item = VectorNorm("linf", steps=True, touched=1)
        >>> found = make_noise_threshold(OpenCounts(text=False), one_item, scale=4.0, delta=1e-6)
        >>> counts = {"item": np.array([3, 7, 9]), "votes": np.array([500, 1, 300])}
        >>> found(counts), found.map(1)[0]
        ([3, 9], 0.03125)
    """

    key: ClassVar[str] = "noise_threshold"
    in_short: ClassVar[str] = (
        "Add noise to the votes of every item, and give the items that are well above zero."
    )
    source: ClassVar[Source] = Source(key="own", where="Lemma 3")
    room = "measurements"

    scale: Annotated[float, param("Scale s of the noise on each count.", symbol="s", **SCALE)]
    delta: Annotated[
        float, param("Chance that an item of one side alone gets out.", symbol="δ", **DELTA)
    ]
    k: Annotated[
        int | None,
        param(
            "The most items that are released; none for all that pass.", symbol="k", unit="items",
            default=None, ge=1, le=10**6, hint="neither the noise nor the threshold depends on k.",
        ),
    ] = None  # fmt: skip
    noise: Annotated[
        Noise,
        param(
            "The law of the noise.", symbol="-", unit="none", default="gaussian",
            hint="laplace for one release where a user has three items at most; gaussian otherwise.",
        ),
    ] = "gaussian"  # fmt: skip
    distance: Annotated[
        int, param("Number of users for whom the threshold is calibrated.", **DISTANCE)
    ] = 1
    accounting: Annotated[Accounting, param("How the loss is stated.", **ACCOUNTING)] = "zcdp"
    ranked: Annotated[
        bool, param("Whether items come by falling noisy count, each with its count.", **RANKED)
    ] = False

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemmas 3 and 4 of ``noise_threshold.md``."""
        votes = votes_space(self.key, domain, metric)
        if self.k is not None:
            check_k(self.key, self.k, votes.candidates)
        items = _touched(self.key, votes)
        law = law_of(self.noise, self.scale)
        threshold = least_passing(law, self.delta, Apart(self.distance, items))

        def covered(d_in: Any) -> Apart:
            users = votes.users(d_in)
            need_cover(self.key, threshold, users)
            return Apart(users, items)

        def approximate(d_in: Any) -> tuple[float, float]:
            apart = covered(d_in)
            return law.rho(apart, apart.total), passes(law, threshold, apart, apart.total)

        def curve(d_in: Any) -> Any:
            apart = covered(d_in)
            return lru_cache(maxsize=4096)(
                lambda epsilon: profile(law, threshold, apart, max(epsilon, 0.0))
            )

        single = self.accounting == "curve"
        return Private(
            measure="smoothed_max_divergence" if single else "approx_zero_concentrated_divergence",
            privacy_map=curve if single else approximate,
            function=lambda data: draw_passing(
                OPENDP, votes, data, self.k, self.noise, self.scale, threshold, ranked=self.ranked
            ),
            expected={
                "votes_to_be_listed": threshold + law.reach(0.95),
                "threshold": float(threshold),
                "items_per_user": float(items),
            },
        )


def _touched(key: str, votes: Votes) -> int:
    """Return the most counts that one user touches, or refuse a space that does not say it."""
    listed = votes.candidates if votes.listed else None
    known = [bound for bound in (votes.per_user, listed) if bound is not None]
    if not known:
        raise SpaceError(
            "OS202",
            f"{key}.input_metric",
            expected="a bound on the items of one user",
            got="none",
            hint="write `max_items` in `vote_counts`: of more, a public hash keeps some; or use "
            "`limited_domain`, which needs no bound.",
        )
    return min(known)


def draw_passing(
    coins: Coins,
    votes: Votes,
    data: Any,
    k: int | None,
    noise: Noise,
    scale: float,
    threshold: int,
    *,
    ranked: bool = False,
) -> Any:
    """Return the items whose noisy count reaches the threshold: all, or the k largest; ties by order."""
    counts = votes.counts(data)
    occurring = np.flatnonzero(counts > 0)
    tells = ranked or k is not None
    noisy = coins.noisy_above(noise, counts[occurring], scale, threshold, tells=tells)
    passing = np.flatnonzero(noisy >= threshold)
    order = passing[np.argsort(-noisy[passing], kind="stable")][:k]
    found = votes.names(data, occurring[order], ranked=ranked)
    return ranked_items(found, noisy[order].tolist()) if ranked else found


make_noise_threshold, then_noise_threshold = constructors(NoiseThreshold)
