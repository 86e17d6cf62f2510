"""Choose how many items to release, exponentially over gaps (``choose_k.md``)."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.counts import Votes, votes_space
from opendp_sim.measurements.selection._impl.gap_utility import (
    K_MAX,
    SLOPE,
    TARGET,
    GapUtility,
    check_ranks,
)
from opendp_sim.measurements.selection._impl.selection import OPENDP, SCALE, Choices, choice_rho


@register
class ChooseK(Mechanism):
    r"""Draw a rank j by the gap below it.

    With probability proportional to :math:`e^{u_j / s}`, u_j the gap below rank j.

    Space
        Input: vote counts under L∞ distance (monotone: the distance is a number of users). Output:
        a whole number from 1 to k_max. ``u_j = h_(j) - h_(j+1) - floor(slope * |j - k|)`` with h
        sorted, padded with zeros; the penalty is there only with a target ``k``.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = d_{in}^2 / (2 s^2)

        under zero-concentrated divergence, d_in users: each gap moves by at most d_in, either way;
        OpenDP's own map of ``make_noisy_max`` over L∞ distance d_in. Exact noise, rounds outward,
        tight. An L∞ distance that is not monotone counts as twice as many users.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): k_max is not below the
        number of candidates, or k above k_max. SpaceError (OS201, OS202): not vote counts.

    Source
        [own] Lemma 1 in ``choose_k.md``; Algorithm 1 of Zhu and Wang.

    Example
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> space = (dp.vector_domain(dp.atom_domain(T="i64"), 4),
        ...          dp.linf_distance(T="i64", monotonic=True))
        >>> choose = space >> then_choose_k(k_max=3, scale=2.0)
        >>> choose([900, 800, 3, 2]), choose.map(1)
        (2, 0.125)
    """

    key = "choose_k"
    in_short = "Choose how many items to keep: most likely where the votes drop most."
    source = Proof(key="own", where="Lemma 1")
    room = "measurements"

    k_max: Annotated[int, param("The largest rank that can be drawn.", **K_MAX)]
    scale: Annotated[float, param("Scale s of the exponential mechanism.", **SCALE)]
    k: Annotated[int | None, param("The size that is wanted, or none.", **TARGET)] = None
    slope: Annotated[float, param("Votes that one rank away from k costs.", **SLOPE)] = 1.0

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma 1 of ``choose_k.md``."""
        votes = votes_space(self.key, domain, metric)
        check_ranks(self.key, self.k_max, votes.candidates, self.k)
        utility = GapUtility(self.k_max, None, self.k, self.slope)
        return Private(
            measure="zero_concentrated_divergence",
            privacy_map=lambda d_in: choice_rho(self.scale, votes.users(d_in)),
            function=lambda data: draw_k(OPENDP, votes, data, utility, self.scale),
            expected={
                "ranks": float(self.k_max),
                "scale": self.scale,
                # Of two ranks alone the odds are exp(difference / scale).
                "drop_for_95_percent": self.scale * math.log(19),
            },
        )


def draw_k(coins: Choices, votes: Votes, data: Any, utility: GapUtility, scale: float) -> int:
    """Return the drawn rank, from 1."""
    gaps = votes.rank(data, utility.k_max + 1).gaps
    return 1 + coins.best(np.asarray(utility(gaps), dtype=np.int64), scale)


make_choose_k, then_choose_k = constructors(ChooseK)
