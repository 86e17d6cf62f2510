"""Release the top-k set if its gap survives noise (``stable_set.md``)."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.counts import Votes, votes_space
from opendp_sim.measurements.selection._impl.gap_utility import check_k
from opendp_sim.measurements.selection._impl.selection import (
    OPENDP,
    SCALE,
    Accounting,
    Choices,
    Distance,
    SetDelta,
    gaussian_loss,
    passes_beyond,
    threshold_of,
)
from opendp_sim.measurements.selection._impl.stability import set_at, stable_places, stable_profile


@register
class StableSet(Mechanism):
    r"""Release the top-k set if its noisy gap suffices.

    The gap below it plus Gaussian noise has to reach a threshold; else None.

    Space
        Input: vote counts under L∞ distance (monotone: the distance is a number of users). Output:
        a list of k items in the public order, never in the order of their counts, or None.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = d_{in}^2 / (2 s^2), \quad \delta(d_{in}) = \Pr[N \ge T - d_{in}]

        approximate zero-concentrated, d_in users, N the discrete Gaussian of parameter s and T the
        least threshold with :math:`\delta(c) \le \delta_t` at the calibrated distance c. With
        ``accounting: curve`` the larger of the two cases as one (epsilon, delta) curve. Refused where
        d_in reaches T. Exact noise, exact tail rounded outward, tight.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): k is not below the number
        of candidates. SpaceError (OS201, OS202): not vote counts. BudgetError (OS404): the map at a
        distance that the threshold does not cover.

    Source
        [own] Lemma 2 in ``stable_set.md``; Algorithm 4 of Zhu and Wang, with a lower threshold.

    Example
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> space = (dp.vector_domain(dp.atom_domain(T="i64"), 4),
        ...          dp.linf_distance(T="i64", monotonic=True))
        >>> stable = space >> then_stable_set(k=2, scale=4.0, delta=1e-6)
        >>> stable([900, 3, 800, 2]), stable([5, 5, 5, 5]), stable.map(1)[0]
        ([0, 2], None, 0.03125)
    """

    key = "stable_set"
    in_short = "Give the most voted items if they lead by enough after noise, else nothing."
    source = Proof(key="own", where="Lemma 2")
    room = "measurements"

    k: Annotated[
        int,
        param(
            "Size of the set.", symbol="k", unit="items", ge=1, le=10**6,
            hint="a place where you expect a clear drop in the counts.",
        ),
    ]  # fmt: skip
    scale: Annotated[float, param("Scale s of the noise on the gap.", **SCALE)]
    delta: SetDelta
    distance: Distance = 1
    accounting: Accounting = "zcdp"

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma 2 of ``stable_set.md``."""
        votes = votes_space(self.key, domain, metric)
        check_k(self.key, self.k, votes.candidates)
        threshold = threshold_of(self.key, self.scale, self.delta, self.distance)

        def approximate(d_in: Any) -> tuple[float, float]:
            users = votes.users(d_in)
            delta = passes_beyond(self.key, self.scale, threshold, users)
            return gaussian_loss(self.scale, users), delta

        def curve(d_in: Any) -> Any:
            users = votes.users(d_in)
            passes_beyond(self.key, self.scale, threshold, users)
            if users == 0:
                return lambda _: 0.0
            return lambda x: float(
                stable_profile(np.array(max(x, 0.0)), self.scale, threshold, users)
            )

        single = self.accounting == "curve"
        return Private(
            measure="smoothed_max_divergence" if single else "approx_zero_concentrated_divergence",
            privacy_map=curve if single else approximate,
            function=lambda data: draw_set(OPENDP, votes, data, self.k, self.scale, threshold),
            expected={
                "threshold": float(threshold),
                "gap_for_95_percent": threshold + float(special.ndtri(0.95)) * self.scale,
            },
        )


def draw_set(
    coins: Choices, votes: Votes, data: Any, k: int, scale: float, threshold: int
) -> list[str | int] | None:
    """Return the set or None."""
    ranking = votes.rank(data, k + 1)
    places = stable_places(coins, ranking, k, scale, threshold)
    return set_at(lambda found: votes.names(data, found), places)


make_stable_set, then_stable_set = constructors(StableSet)
