"""Choose the rank of the largest noisy gap, under Rényi privacy (``noisy_max_gaussian.md``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.rounding import sqrt_up
from opendp_sim.core.claims import Measure, Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.counts import Votes, votes_space
from opendp_sim.measurements.selection._impl.gap_utility import (
    K_MAX,
    SLOPE,
    TARGET,
    GapUtility,
    check_ranks,
)
from opendp_sim.measurements.selection._impl.selection import OPENDP, SCALE, Choices, gaussian_loss

_MEASURES: dict[str, Measure] = {
    "renyi": "renyi_divergence",
    "zcdp": "zero_concentrated_divergence",
    "curve": "smoothed_max_divergence",
}
_ORDERS = 1.0 + np.geomspace(1e-3, 1e6, 1500)
"""Orders at which a Rényi curve is turned into delta; each of them alone gives a bound."""


@register
class NoisyMaxGaussian(Mechanism):
    r"""Release the rank with the largest noisy penalised gap.

    Gaussian noise, public penalty.

    Space
        Input: vote counts under L∞ distance (monotone: the distance is a number of users). Output:
        a whole number from 1 to k_max; of equal noisy gaps the first wins.

    Stability
        Not a transformation.

    Privacy
        .. math:: \epsilon_\alpha(d_{in}) = \min\Big(\frac{2 \alpha d_{in}^2}{s^2} +
                  \frac{\ln K}{\alpha - 1}, \; \frac{K \alpha d_{in}^2}{2 s^2}\Big)

        Rényi divergence of every order alpha above 1, d_in users, K = k_max. A spec has no Rényi
        budget: it states ``accounting: curve`` for one (epsilon, delta) curve, the least over orders
        of :math:`e^{(\alpha - 1)(\epsilon_\alpha - \epsilon)} (1 - 1/\alpha)^{\alpha - 1} / \alpha`,
        or ``accounting: zcdp`` for :math:`\rho(d_{in}) = K d_{in}^2 / (2 s^2)`, which drops the
        first bound because of its logarithm. `choose_k` is better under composition. Exact noise,
        rounds outward, not tight.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): k_max is not below the
        number of candidates, or not above k. SpaceError (OS201, OS202): not vote counts. BudgetError
        (OS405): a spec without ``accounting``.

    Source
        [own] Lemmas 1 to 3 in ``noisy_max_gaussian.md``; Theorem 8 of Zhu and Wang.

    Example
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> space = (dp.vector_domain(dp.atom_domain(T="i64"), 4),
        ...          dp.linf_distance(T="i64", monotonic=True))
        >>> choose = space >> then_noisy_max_gaussian(k_max=3, scale=2.0)
        >>> choose([900, 800, 3, 2]), choose.map(1)(2.0)
        (2, 0.75)
    """

    key = "noisy_max_gaussian"
    in_short = "Choose how many items to keep: where the votes drop most after noise."
    source = Proof(key="own", where="Lemma 1")
    room = "measurements"

    k_max: Annotated[int, param("The largest rank that can win.", **K_MAX)]
    scale: Annotated[float, param("Scale s of the noise on each gap.", **SCALE)]
    k: Annotated[int | None, param("The size that is wanted, or none.", **TARGET)] = None
    slope: Annotated[float, param("Votes that one rank away from k costs.", **SLOPE)] = 1.0
    accounting: Annotated[
        Literal["renyi", "zcdp", "curve"],
        param(
            "How the loss is stated.", symbol="-", unit="none", default="renyi",
            hint="in a spec: curve under `approx`, zcdp under `zcdp` and `approx_zcdp`.",
        ),
    ] = "renyi"  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemmas 1 to 3 of ``noisy_max_gaussian.md``."""
        votes = votes_space(self.key, domain, metric)
        check_ranks(self.key, self.k_max, votes.candidates, self.k)
        utility = GapUtility(self.k_max, None, self.k, self.slope)

        def renyi(d_in: Any) -> Callable[[float], float]:
            users = votes.users(d_in)
            return lambda alpha: rank_curve(alpha, users, self.scale, self.k_max)

        def curve(d_in: Any) -> Callable[[float], float]:
            users = votes.users(d_in)
            return lambda epsilon: rank_delta(epsilon, users, self.scale, self.k_max)

        def zcdp(d_in: Any) -> float:
            return gaussian_loss(self.scale, votes.users(d_in), sqrt_up(self.k_max))

        maps: dict[str, Callable[[Any], Any]] = {"renyi": renyi, "zcdp": zcdp, "curve": curve}
        return Private(
            measure=_MEASURES[self.accounting],
            privacy_map=maps[self.accounting],
            function=lambda data: draw_noisy_rank(OPENDP, votes, data, utility, self.scale),
            expected={
                "ranks": float(self.k_max),
                "scale": self.scale,
                # Of two ranks alone the difference has sqrt(2) times the noise of one.
                "drop_for_95_percent": math.sqrt(2.0) * float(special.ndtri(0.95)) * self.scale,
            },
        )


def rank_curve(alpha: float, users: int, scale: float, ranks: int) -> float:
    """Return the Rényi loss of order ``alpha``, rounded up."""
    if users == 0:
        return 0.0
    square = (users / scale) ** 2
    plain = ranks * alpha * square / 2
    if alpha <= 1:
        return plain * (1 + 2.0**-40)
    return min(plain, 2 * alpha * square + math.log(ranks) / (alpha - 1)) * (1 + 2.0**-40)


@lru_cache(maxsize=64)
def _exponents(users: int, scale: float, ranks: int) -> tuple[NDArray[np.float64], ...]:
    """Return each order's log delta as a line in epsilon."""
    loss = np.array([rank_curve(float(alpha), users, scale, ranks) for alpha in _ORDERS])
    kept = np.isfinite(loss)
    loss, more = loss[kept], (_ORDERS - 1.0)[kept]
    constant = more * loss + more * np.log1p(-1.0 / _ORDERS[kept]) - np.log(_ORDERS[kept])
    return more, constant + (more * (loss + 1.0) + 64.0) * 2.0**-48


def rank_delta(epsilon: float, users: int, scale: float, ranks: int) -> float:
    """Return an upper bound on delta at ``epsilon`` (Lemma 3)."""
    if users == 0:
        return 0.0
    more, constant = _exponents(users, scale, ranks)
    log = constant - more * max(epsilon, 0.0) * (1 - 2.0**-48)
    return min(1.0, math.exp(min(float(log.min(initial=0.0)), 0.0)) * (1 + 2.0**-40) + 1e-300)


def draw_noisy_rank(
    coins: Choices, votes: Votes, data: Any, utility: GapUtility, scale: float
) -> int:
    """Return the winning rank, from 1."""
    gaps = votes.rank(data, utility.k_max + 1).gaps
    return 1 + coins.noisy_best(utility(gaps), scale)


make_noisy_max_gaussian, then_noisy_max_gaussian = constructors(NoisyMaxGaussian)
