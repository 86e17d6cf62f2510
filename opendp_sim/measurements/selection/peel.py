"""Draw the k most voted candidates exponentially, one by one (``peel.md``)."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.counts import need_candidates, votes_space
from opendp_sim.measurements.selection._impl.gap_utility import check_k
from opendp_sim.measurements.selection._impl.peeling import (
    NEEDS_CATALOGUE,
    check_rounds,
    peeled,
    peeled_in_order,
    range_of,
    rounds_for,
)
from opendp_sim.measurements.selection._impl.peeling_profile import peeling_profile
from opendp_sim.measurements.selection._impl.ranked import RANKED, leads_of_draws, no_ranks
from opendp_sim.measurements.selection._impl.selection import OPENDP, SCALE, Accounting, peel_rho


@register
class Peel(Mechanism):
    r"""Draw k different candidates, one a round.

    With probability proportional to :math:`e^{h/s}`.

    Space
        Input: vote counts over a public catalogue or universe, under L∞ distance (monotone: the
        distance is a number of users). Output: a list of k items in the public order. When fewer
        candidates lose than win, the losers are drawn instead.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = r (d_{in} / s)^2 / 8, \quad r = \min(k, m - k)

        under zero-concentrated divergence, d_in users, m candidates; OpenDP's own map of
        ``make_noisy_top_k``. With ``accounting: curve`` the exact adaptive composition of r draws of
        bounded range d_in / s as one (epsilon, delta) curve. Exact draws, rounds outward, tight.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): k is not below the number
        of candidates; a curve of more than 4,096 rounds. SpaceError (OS201, OS202): not vote counts.
        (OS204): an unknown catalogue.

    Source
        [own] Lemma 1 in ``peel.md``; one-shot Gumbel noise of Durfee and Rogers.

    Example
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> space = (dp.vector_domain(dp.atom_domain(T="i64"), 5),
        ...          dp.linf_distance(T="i64", monotonic=True))
        >>> peel = space >> then_peel(k=2, scale=5.0)
        >>> peel([900, 3, 800, 2, 1]), peel.map(1)
        ([0, 2], 0.01)
    """

    key = "peel"
    in_short = "Draw items one after another, those with more votes with a larger chance."
    source = Proof(key="own", where="Lemma 1")
    room = "measurements"

    k: Annotated[
        int,
        param(
            "Size of the set.", symbol="k", unit="items", ge=1, le=10**6,
            hint="the noise for one budget grows as the square root of k.",
        ),
    ]  # fmt: skip
    scale: Annotated[float, param("Scale s of the Gumbel noise.", **SCALE)]
    accounting: Accounting = "zcdp"
    ranked: Annotated[
        bool, param("Whether items come in the order in which they were drawn.", **RANKED)
    ] = False

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma 1 of ``peel.md``."""
        votes = votes_space(self.key, domain, metric)
        candidates = need_candidates(self.key, votes, NEEDS_CATALOGUE)
        check_k(self.key, self.k, candidates)
        if self.ranked and not votes.listed:
            raise no_ranks(self.key, "false over a universe", "list the `items`.")
        rounds = rounds_for(votes, self.k, ranked=self.ranked)
        check_rounds(self.key, rounds, self.accounting)

        def curve(d_in: Any) -> Any:
            profile = peeling_profile(rounds, range_of(self.scale, votes.users(d_in)))
            return profile.delta

        single = self.accounting == "curve"
        draw = peeled_in_order if self.ranked else peeled
        return Private(
            measure="smoothed_max_divergence" if single else "zero_concentrated_divergence",
            privacy_map=curve
            if single
            else lambda d_in: peel_rho(rounds, self.scale, votes.users(d_in)),
            function=lambda data: draw(OPENDP, votes, data, self.k, self.scale),
            expected={"rounds": float(rounds), "deviation": self.scale * np.pi / 6**0.5}
            | leads_of_draws(self.scale, self.k, candidates, ranked=self.ranked),
        )


make_peel, then_peel = constructors(Peel)
