"""Choose the best mechanism for counts by a public rule (``top_k.md``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.counts import Votes, votes_space
from opendp_sim.measurements.selection._impl.gap_utility import check_k, check_ranks
from opendp_sim.measurements.selection._impl.peeling import rounds_for
from opendp_sim.measurements.selection._impl.ranked import RANKED, no_ranks
from opendp_sim.measurements.selection._impl.selection import DELTA, DISTANCE, SCALE, Accounting
from opendp_sim.measurements.selection.gated_peel import GatedPeel
from opendp_sim.measurements.selection.gaussian_top_k import NORMS, GaussianTopK, items_of
from opendp_sim.measurements.selection.limited_domain import LimitedDomain
from opendp_sim.measurements.selection.noise_threshold import NoiseThreshold
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.stable_top_k import StableTopK

_FEW = 0.41
"""A Gaussian histogram beats peeling while a user touches fewer than this share of the rounds."""

_OPEN = 1.5
"""Over an open catalogue noise on every count lists more up to so many items a user for each of k."""

_RANKS = 20
"""Ranks an item over an open catalogue: the threshold rises with their logarithm alone."""

_LAPLACE = 2
"""Up to so many items a user, Laplace noise lists an item from fewer votes, in a single release."""

_TESTED = 50
"""Rounds from which on `gated_peel`'s test finds gaps that draws alone would miss."""


@register
class TopK(Mechanism):
    r"""Release the most voted items by a chosen mechanism.

    The space and the parameters decide.

    Space
        Input: vote counts under L∞ distance (monotone: the distance is a number of users), or under
        L2 distance where the rule picks `gaussian_top_k`. Output: a list of items in the public order
        (None where `stable_top_k` finds no stable set); with ``ranked`` columns ``rank`` and ``item``,
        and ``count``, noisy, where the rule picks `gaussian_top_k` or `noise_threshold`: draws of
        other mechanisms pay for an order and for no count.

    Stability
        Not a transformation.

    Privacy
        .. math:: (\rho, \delta)(d_{in}) = \text{that of the mechanism chosen}

        The rule looks at public things only: without ``k``, `stable_top_k`; with ``k`` on an unknown
        catalogue, `noise_threshold` where the distance says that a user touches at most 1.5 k
        items (or, in a single release, two at most and not above k), else `limited_domain`; with
        ``k`` on a listed catalogue where a user touches fewer than 0.41 min(k, m - k) items, and the
        distance says so (L2), `gaussian_top_k`; else `peel`, or from 50 draws on without ``ranked``
        `gated_peel`.
        The claim says which, and why.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): neither k nor k_max, k_max
        not above k, or either not below the number of candidates. SpaceError (OS201, OS202): not vote
        counts, or L2 distance where the rule picks another mechanism.

    Source
        [own] Lemma 1 in ``top_k.md``.

    Example
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> space = (dp.vector_domain(dp.atom_domain(T="i64"), 5),
        ...          dp.linf_distance(T="i64", monotonic=True))
        >>> top = space >> then_top_k(k=2, scale=5.0, delta=1e-6)
        >>> top([900, 3, 800, 2, 1]), top.map(1)
        ([0, 2], 0.01)
    """

    key = "top_k"
    source = Proof(key="own", where="Lemma 1")
    room = "measurements"

    scale: Annotated[float, param("Scale s of the chosen mechanism.", **SCALE)]
    delta: Annotated[float, param("The chosen mechanism's own delta, where it has one.", **DELTA)]
    k: Annotated[
        int | None,
        param(
            "Size of the set; none to let the counts decide.", symbol="k", unit="items",
            default=None, ge=1, le=10**6, hint="give k, or k_max alone for a set cut where it is clear.",
        ),
    ] = None  # fmt: skip
    k_max: Annotated[
        int | None,
        param(
            "The largest rank that is looked at, where the mechanism has one.", symbol="K",
            unit="items", default=None, ge=1, le=10**6,
            hint="over an open catalogue it is 20 k unless you say otherwise.",
        ),
    ] = None  # fmt: skip
    distance: Annotated[
        int, param("Number of users for whom a threshold is calibrated.", **DISTANCE)
    ] = 1
    accounting: Accounting = "zcdp"
    ranked: Annotated[bool, param("Whether items come in ranks that are paid for.", **RANKED)] = (
        False
    )

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """Choose by Lemma 1 of ``top_k.md`` and bind what was chosen."""
        votes = votes_space(self.key, domain, metric, NORMS)
        by_l2 = getattr(metric, "norm", None) == "l2"
        if by_l2:  # the rule may look at the bound: the map of what it picks here does not
            votes = replace(votes, per_user=items_of(domain))
        chosen, reason = self.chosen(votes)
        if by_l2 and not isinstance(chosen, GaussianTopK):
            raise SpaceError(
                "OS202", f"{self.key}.input_metric", expected="L∞ distance between counts", got="l2",
                hint=f"give the sketch norm='linf', as the rule picks {chosen.key} here; or name "
                "`gaussian_top_k`.",
            )  # fmt: skip
        claim = chosen.bind(domain, metric)
        if not isinstance(claim, Private):
            raise TypeError(chosen.key)
        return replace(claim, reason=f"{chosen.key}: {reason}{_reach(claim.expected)}")

    def chosen(self, votes: Votes) -> tuple[Mechanism, str]:
        """Return the mechanism for this space and the reason in one line."""
        stated: dict[str, Any] = {
            "scale": self.scale,
            "delta": self.delta,
            "distance": self.distance,
        }
        if self.k is None:
            if self.k_max is None:
                raise ParameterError(
                    "OS102", f"{self.key}.k", expected="k or k_max", got="neither",
                    hint="k: 10 for ten items; k_max: 20 for a set of up to twenty, cut at a gap.",
                )  # fmt: skip
            if self.ranked:
                raise no_ranks(
                    self.key, "false without k", "a set that a test confirms has no ranks."
                )
            own = StableTopK(k_max=self.k_max, accounting=self.accounting, **stated)
            return own, "no size was asked for, so the gaps decide it and one test confirms it"
        if votes.candidates is None:
            return self._open(votes, self.k, stated)
        check_k(self.key, self.k, votes.candidates)
        if self.k_max is not None:  # not needed here, but one that no mechanism takes is a mistake
            check_ranks(self.key, self.k_max, votes.candidates, self.k)
        rounds = rounds_for(votes, self.k, ranked=self.ranked)
        if votes.listed and votes.per_user and votes.per_user < _FEW * rounds:
            reason = (
                f"a user touches {votes.per_user} items at most, fewer than 0.41 x {rounds} rounds"
            )
            return GaussianTopK(k=self.k, scale=self.scale, ranked=self.ranked), reason
        if not self.ranked and rounds >= _TESTED:
            tested = GatedPeel(k=self.k, accounting=self.accounting, **stated)
            return tested, f"a public catalogue and a fixed size: one test, then {rounds} rounds"
        peel = Peel(k=self.k, scale=self.scale, accounting=self.accounting, ranked=self.ranked)
        what = "ranks" if self.ranked else "a set"
        return peel, f"{what} over a public catalogue: {rounds} draws"

    def _open(self, votes: Votes, k: int, stated: dict[str, Any]) -> tuple[Mechanism, str]:
        """Choose a mechanism over an open catalogue."""
        stated = {**stated, "k": k, "accounting": self.accounting, "ranked": self.ranked}
        items = votes.per_user
        if items is not None and self.k_max is None:  # ranks are what the other one looks at
            few = f"the catalogue is not public and no user touches more than {items:,} of its items, "
            if self.accounting == "curve" and items <= min(_LAPLACE, k):
                laplace = NoiseThreshold(noise="laplace", **stated)
                return laplace, f"{few}so every count gets Laplace noise"
            if items <= _OPEN * k:
                return NoiseThreshold(**stated), f"{few}at most 1.5 x {k}"
        limited = LimitedDomain(k_max=self.k_max or min(_RANKS * k, 10**6), **stated)
        return limited, "the catalogue is not public, so only items above a threshold may appear"


def _reach(expected: Mapping[str, float]) -> str:
    """Return the votes that an open catalogue's items need."""
    alone = expected.get("votes_to_be_listed")
    if alone is not None:
        return f": in 95% of runs an item of {math.ceil(alone):,} votes passes, whatever k is"
    votes = expected.get("votes_for_95_percent")
    if votes is None:
        return ""
    return (
        f": in 95% of runs one with {votes:,.0f} votes more than rank {expected['ranks'] + 1:,.0f}, "
        "and hardly ever one with half of these; fewer items (k) ask for fewer votes, as the root of k, "
        "and `max_items` in `vote_counts` of 1.5 k at most for far fewer"
    )


make_top_k, then_top_k = constructors(TopK)
