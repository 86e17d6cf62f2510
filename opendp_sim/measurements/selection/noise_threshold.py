"""Release items whose noisy count reaches a threshold (``noise_threshold.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np

from opendp_sim.accounting.measures.gaussian import delta_up
from opendp_sim.accounting.measures.normal_tail import upper_tail
from opendp_sim.core.arithmetic.rounding import float_up, least_int
from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.counts import Votes, votes_space
from opendp_sim.measurements.selection._impl.gap_utility import check_k
from opendp_sim.measurements.selection._impl.ranked import RANKED, ranked_items
from opendp_sim.measurements.selection._impl.selection import (
    OPENDP,
    SCALE,
    Accounting,
    Choices,
    Distance,
    ItemDelta,
    need_cover,
)

# --------------------------------------------------------------------------------------------------
# What noise on counts tells beside a threshold: items of one side that pass, and the rest's curve.
#
# Two laws of integer noise, each with a tail for items that occur on one side only and a privacy
# profile for counts that differ by a number of votes. Proofs: ``noise_threshold.md``, one folder up.

_SLACK = 1 + 1e-12
"""Relative room for a few rounded operations; the true error is under 2e-13."""
_TINY = 1e-300
"""Added where a positive chance may round to 0."""
_BITS = 60


@dataclass(frozen=True)
class Apart:
    """Bound the distance of ``users`` users of at most ``items`` items."""

    users: int
    items: int

    @property
    def total(self) -> int:
        """The most votes that come or go."""
        return self.users * self.items


@dataclass(frozen=True)
class _Gaussian:
    scale: float

    def tail(self, j: int) -> float:
        """Bound ``Pr[round(s Z) >= j]``, the normal tail at ``(j - 1/2) / s``."""
        return _normal_tail(self.scale, j)

    def reach(self, chance: float) -> float:
        """A quantile of the normal law."""
        return float(special.ndtri(chance)) * self.scale

    def rho(self, apart: Apart, votes: int) -> float:
        """Half the squared distance over the variance (Lemma 3)."""
        return float_up(self._square(apart, votes) / 2)

    def delta(self, apart: Apart, votes: int, epsilon: float) -> float:
        """Return Gaussian DP's exact curve (Lemma 3)."""
        return delta_up(self._square(apart, votes), epsilon) if votes else 0.0

    def _square(self, apart: Apart, votes: int) -> Fraction:
        return apart.users * votes / Fraction(self.scale) ** 2


@dataclass(frozen=True)
class _Laplace:
    scale: float

    def tail(self, j: int) -> float:
        """``q**j / (1 + q)`` with q = exp(-1 / s)."""
        return math.exp(-j / self.scale) / (1 + math.exp(-1 / self.scale)) * _SLACK + _TINY

    def reach(self, chance: float) -> float:
        """A quantile of the law without its rounding to whole numbers."""
        return -self.scale * math.log(2 * (1 - chance))

    def rho(self, apart: Apart, votes: int) -> float:  # noqa: ARG002 - L1 counts votes alone
        """Half the square of the pure loss."""
        return float_up((votes / Fraction(self.scale)) ** 2 / 2)

    def delta(self, apart: Apart, votes: int, epsilon: float) -> float:  # noqa: ARG002
        """Return randomised response's profile."""
        pure = float_up(votes / Fraction(self.scale))
        if epsilon >= pure:
            return 0.0
        found = -math.expm1(epsilon - pure) / (1 + math.exp(-pure))
        return min(1.0, found * _SLACK + _TINY)


CountNoise = _Gaussian | _Laplace
"""Noise on one count: its tail, a quantile, and the loss of counts that differ by some votes."""


@lru_cache(maxsize=4096)
def _normal_tail(scale: float, j: int) -> float:
    return float_up(upper_tail((Fraction(2 * j - 1, 2) / Fraction(scale)) ** 2, _BITS)[1])


def law_of(noise: Literal["gaussian", "laplace"], scale: float) -> CountNoise:
    """Return the law of the noise on one count."""
    return _Gaussian(scale) if noise == "gaussian" else _Laplace(scale)


def passes(law: CountNoise, threshold: int, apart: Apart, votes: int) -> float:
    """Bound the chance that a one-sided item passes.

    These items have ``votes`` votes. Lemma 2: a vote alone on its item, or the votes of all users
    together, whichever adds more a vote.
    """
    if votes == 0:
        return 0.0
    alone = -math.log1p(-law.tail(threshold - 1))
    together = -math.log1p(-law.tail(threshold - apart.users)) / apart.users
    return min(1.0, -math.expm1(-votes * max(alone, together)) * _SLACK + _TINY)


def least_passing(law: CountNoise, delta: float, apart: Apart) -> int:
    """Return the least threshold that one-sided items pass by ``delta``."""
    return apart.users + least_int(
        lambda above: passes(law, apart.users + above, apart, apart.total) <= delta
    )


def profile(law: CountNoise, threshold: int, apart: Apart, epsilon: float) -> float:
    """Bound the release's profile at ``epsilon`` by the worst split (Lemma 4)."""
    worst, first = law.delta(apart, apart.total, epsilon), 1
    while first <= apart.total:  # of first to last votes on items of one side
        last = min(2 * first - 1, apart.total if first == apart.total else apart.total - 1)
        alone = passes(law, threshold, apart, last)
        both = alone + (1 - alone) * law.delta(apart, apart.total - first, epsilon)
        worst, first = max(worst, both * _SLACK), last + 1
    return min(1.0, worst)


# --------------------------------------------------------------------------------------------------

Noise = Literal["gaussian", "laplace"]


@register
class NoiseThreshold(Mechanism):
    r"""Add noise to occurring items' votes, and apply a threshold.

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
        >>> from opendp_sim.domains.counts import OpenCounts
        >>> from opendp_sim.domains.metrics import VectorNorm
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> one_item = VectorNorm("linf", steps=True, touched=1)
        >>> found = make_noise_threshold(OpenCounts(text=False), one_item, scale=4.0, delta=1e-6)
        >>> counts = {"item": np.array([3, 7, 9]), "votes": np.array([500, 1, 300])}
        >>> found(counts), found.map(1)[0]
        ([3, 9], 0.03125)
    """

    key = "noise_threshold"
    in_short = "Add noise to the votes of every item, and give the items that are well above zero."
    source = Proof(key="own", where="Lemma 3")
    room = "measurements"

    scale: Annotated[float, param("Scale s of the noise on each count.", **SCALE)]
    delta: ItemDelta
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
    distance: Distance = 1
    accounting: Accounting = "zcdp"
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
    """Return the most counts a user touches, or refuse."""
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
    coins: Choices,
    votes: Votes,
    data: Any,
    k: int | None,
    noise: Noise,
    scale: float,
    threshold: int,
    *,
    ranked: bool = False,
) -> Any:
    """Return the items, or k of them, whose noisy counts pass."""
    counts = votes.counts(data)
    occurring = np.flatnonzero(counts > 0)
    tells = ranked or k is not None
    noisy = coins.noisy_above(noise, counts[occurring], scale, threshold, tells=tells)
    passing = np.flatnonzero(noisy >= threshold)
    order = passing[np.argsort(-noisy[passing], kind="stable")][:k]
    found = votes.names(data, occurring[order], ranked=ranked)
    return ranked_items(found, noisy[order].tolist()) if ranked else found


make_noise_threshold, then_noise_threshold = constructors(NoiseThreshold)
