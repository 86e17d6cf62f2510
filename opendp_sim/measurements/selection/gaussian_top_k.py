"""Release the k largest noisy counts, for few items a user (``gaussian_top_k.md``)."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any

import numpy as np

from opendp_sim.core.arithmetic.rounding import float_up, sqrt_up
from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.counts import KnownCounts, Votes, need_candidates, votes_space
from opendp_sim.measurements.selection._impl.gap_utility import check_k
from opendp_sim.measurements.selection._impl.peeling import NEEDS_CATALOGUE
from opendp_sim.measurements.selection._impl.ranked import RANKED, leads_of_noise, ranked_items
from opendp_sim.measurements.selection._impl.selection import OPENDP, SCALE, Choices, gaussian_loss

NORMS = ("linf", "l2")
"""Only the L2 distance can say that a user touches few items, and OpenDP has it."""


@register
class GaussianTopK(Mechanism):
    r"""Release the k largest counts after Gaussian noise.

    Of a listed catalogue.

    Space
        Input: vote counts over a listed public catalogue, under L2 distance, or under L∞ distance
        (monotone: the distance is a number of users). Output: a list of k items in the public order.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = d_{in}^2 / (2 s^2) \quad \text{or} \quad
                  \rho(d_{in}) = m\, d_{in}^2 / (2 s^2)

        under zero-concentrated divergence; first at an L2 distance, which `vote_counts` makes sqrt(c)
        per user when a user is counted for c items at most (``norm="l2"``; the language takes it);
        then at d_in users of L∞ distance, who may touch all m items. OpenDP's own map. Exact noise,
        rounds outward, tight for the noisy counts.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): k is not below the number
        of candidates. SpaceError (OS201, OS202): not vote counts. (OS204): no listed catalogue.

    Source
        [own] Lemma 1 in ``gaussian_top_k.md``.

    Example
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> space = (dp.vector_domain(dp.atom_domain(T="i64"), 4),
        ...          dp.linf_distance(T="i64", monotonic=True))
        >>> top = space >> then_gaussian_top_k(k=2, scale=5.0)
        >>> top([900, 3, 800, 2]), top.map(1)
        ([0, 2], 0.08)
    """

    key = "gaussian_top_k"
    in_short = "Add noise to the votes of every listed item, and give the items with the most."
    source = Proof(key="own", where="Lemma 1")
    room = "measurements"

    k: Annotated[
        int,
        param(
            "Size of the set.", symbol="k", unit="items", ge=1, le=10**6,
            hint="the noise does not depend on k; the fewer items a user touches, the smaller it is.",
        ),
    ]  # fmt: skip
    scale: Annotated[float, param("Scale s of the noise on each count.", **SCALE)]
    ranked: Annotated[
        bool, param("Whether items come by falling noisy count, each with its count.", **RANKED)
    ] = False

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma 1 of ``gaussian_top_k.md``."""
        votes = votes_space(self.key, domain, metric, NORMS)
        candidates = need_candidates(self.key, votes, NEEDS_CATALOGUE)
        if not votes.listed:
            raise SpaceError(
                "OS204", f"{self.key}.input_domain", expected="a listed catalogue",
                got="a universe of integers", hint="use `gated_peel`, which needs no list.",
            )  # fmt: skip
        check_k(self.key, self.k, candidates)
        touched = min(votes.per_user or candidates, candidates)
        norm = sqrt_up(Fraction(touched))

        def rho(d_in: Any) -> float:
            if getattr(metric, "norm", None) == "l2":
                return gaussian_loss(self.scale, 1, float_up(Fraction(d_in)))
            return gaussian_loss(self.scale, votes.users(d_in), norm)

        return Private(
            measure="zero_concentrated_divergence",
            privacy_map=rho,
            function=lambda data: draw_noisy_top(
                OPENDP, votes, data, self.k, self.scale, ranked=self.ranked
            ),
            expected={"items_per_user": float(items_of(domain) or touched), "deviation": self.scale}
            | leads_of_noise(self.scale, self.k, candidates, ranked=self.ranked),
        )


def items_of(domain: Domain) -> int | None:
    """Return a sketch's bound on a user's items, for advice."""
    return domain.blocks[0].l1 if isinstance(domain, KnownCounts) else None


def draw_noisy_top(
    coins: Choices, votes: Votes, data: Any, k: int, scale: float, *, ranked: bool = False
) -> Any:
    """Return k items in the public order, or ranked by noisy counts."""
    noisy = coins.noisy(votes.counts(data), scale)
    places = np.argsort(-noisy, kind="stable")[:k]
    found = votes.names(data, places, ranked=ranked)
    return ranked_items(found, noisy[places].tolist()) if ranked else found


make_gaussian_top_k, then_gaussian_top_k = constructors(GaussianTopK)
