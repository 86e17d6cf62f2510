"""Test the top-k set once, or peel (``gated_peel.md``)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, Any, ClassVar

from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.counts import Votes, need_candidates, votes_space
from opendp_sim.measurements.selection._impl.gap_utility import check_k
from opendp_sim.measurements.selection._impl.gate_tail import GateTail, gate_tail
from opendp_sim.measurements.selection._impl.gaussian_tail import least_threshold
from opendp_sim.measurements.selection._impl.peeling import (
    NEEDS_CATALOGUE,
    check_rounds,
    peeled,
    range_of,
    rounds_for,
)
from opendp_sim.measurements.selection._impl.peeling_profile import peeling_profile
from opendp_sim.measurements.selection._impl.selection import (
    OPENDP,
    SCALE,
    Accounting,
    Choices,
    Distance,
    SetDelta,
    gaussian_loss,
    need_cover,
    passes_beyond,
    peel_rho,
    threshold_of,
    up,
)
from opendp_sim.measurements.selection._impl.stability import (
    gate_fits,
    gated_delta,
    set_at,
    stable_places,
)

_OF_DELTA = 0.1
"""Part of a curve's delta at which the test's threshold stands. What it takes, peeling lacks, while a
tenth of the delta raises the threshold only as the root of a logarithm."""


@register
class GatedPeel(Mechanism):
    r"""Release the top-k set if stable, otherwise peel.

    The gap has to pass one noisy test.

    Space
        Input: vote counts over a public catalogue or universe, under L∞ distance (monotone: the
        distance is a number of users). Output: a list of k items in the public order; which of the
        two ways it came is private.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = d_{in}^2 / (2 t^2) + r (d_{in} / s)^2 / 8, \quad
                  \delta(d_{in}) = \Pr[N_t \ge T - d_{in}]

        approximate zero-concentrated, d_in users; s is the scale of peeling in r draws,
        :math:`t = 2 s \sqrt{(1 - w) / (w r)}` that of the test, which so costs the share w of rho; T
        as in ``stable_set``. With ``accounting: curve`` the noise of the test is the difference of a
        geometric and half a discrete Gaussian of scale t, whose right tail is as steep as the whole
        release allows, and the loss is the larger of the two cases (same set, different sets) as
        one (epsilon, delta) curve, T calibrated at a tenth of ``delta``. Refused where d_in
        reaches T. Exact draws, rounds outward.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): k is not below the number
        of candidates; a curve of more rounds or pass levels than it can hold. SpaceError (OS201,
        OS202): not vote counts. (OS204): an unknown catalogue. BudgetError (OS404): the map at a
        distance that the threshold does not cover.

    Source
        [own] Lemmas 1 to 3 in ``gated_peel.md``.

    Example
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> space = (dp.vector_domain(dp.atom_domain(T="i64"), 5),
        ...          dp.linf_distance(T="i64", monotonic=True))
        >>> top = space >> then_gated_peel(k=2, scale=5.0, delta=1e-6)
        >>> top([900, 3, 800, 2, 1]), top.map(1)[0]
        ([0, 2], 0.0111111)
    """

    key = "gated_peel"
    in_short = "Give the most voted items if they lead clearly, else draw items one after another."
    formerly: ClassVar[tuple[str, ...]] = ("test_peel",)
    source = Proof(key="own", where="Lemma 1")
    room = "measurements"
    __test__ = False  # pytest: not a test class

    k: Annotated[
        int,
        param(
            "Size of the set.", symbol="k", unit="items", ge=1, le=10**6,
            hint="the noise for one budget grows as the square root of k unless there is a gap.",
        ),
    ]  # fmt: skip
    scale: Annotated[float, param("Scale s of the Gumbel noise of peeling.", **SCALE)]
    delta: SetDelta
    share: Annotated[
        float,
        param(
            "Share of rho that the test costs.", symbol="w", unit="none", default=0.1, gt=0, lt=1,
            hint="0.1; 0.2 when you expect a clear drop after rank k.",
        ),
    ] = 0.1  # fmt: skip
    distance: Distance = 1
    accounting: Accounting = "zcdp"

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma 1 of ``gated_peel.md``."""
        votes = votes_space(self.key, domain, metric)
        candidates = need_candidates(self.key, votes, NEEDS_CATALOGUE)
        check_k(self.key, self.k, candidates)
        rounds = rounds_for(votes, self.k)
        check_rounds(self.key, rounds, self.accounting)
        noise = 2 * self.scale * math.sqrt((1 - self.share) / (self.share * rounds))
        if self.accounting == "curve":
            return self._curve(votes, rounds, noise)
        threshold = threshold_of(self.key, noise, self.delta, self.distance)

        def approximate(d_in: Any) -> tuple[float, float]:
            users = votes.users(d_in)
            rho = up(gaussian_loss(noise, users), peel_rho(rounds, self.scale, users))
            return rho, passes_beyond(self.key, noise, threshold, users)

        return Private(
            measure="approx_zero_concentrated_divergence",
            privacy_map=approximate,
            function=lambda data: draw_tested(
                OPENDP, votes, data, self.k, self.scale, noise, threshold
            ),
            expected=self._expected(
                rounds, threshold, threshold + float(special.ndtri(0.95)) * noise
            ),
        )

    def _curve(self, votes: Votes, rounds: int, noise: float) -> Private:
        gate, threshold = gate_for(self.key, rounds, self.scale, noise, self.delta, self.distance)

        def curve(d_in: Any) -> Any:
            users = votes.users(d_in)
            need_cover(self.key, threshold, users)
            rest = peeling_profile(rounds, range_of(self.scale, users))

            @lru_cache(maxsize=4096)
            def delta(epsilon: float) -> float:
                return gated_delta(max(epsilon, 0.0), gate, threshold, users, rest)

            return delta

        return Private(
            measure="smoothed_max_divergence",
            privacy_map=curve,
            function=lambda data: draw_tested(
                OPENDP, votes, data, self.k, self.scale, noise, threshold, gate.right
            ),
            expected=self._expected(rounds, threshold, float(threshold - gate.level(0.95))),
        )

    def _expected(self, rounds: int, threshold: int, gap: float) -> dict[str, float]:
        return {
            "threshold": float(threshold),
            "gap_for_95_percent": gap,
            "rounds": float(rounds),
            "deviation_if_peeled": self.scale * math.pi / math.sqrt(6),
        }


def gate_for(
    key: str, rounds: int, scale: float, noise: float, delta: float, distance: int
) -> tuple[GateTail, int]:
    """Return a curve's test noise and threshold.

    From public numbers alone. The right tail falls by e a user as often as the peeling alone loses
    nats at ``delta``: the whole release loses more, so a pass hides in it.
    """
    _check_fits(key, noise, 0)
    gate = gate_tail(distance / _epsilon(rounds, scale, delta, distance), noise)
    threshold = least_threshold(gate, delta * _OF_DELTA, distance)
    _check_fits(key, noise, threshold)
    return gate, threshold


def _epsilon(rounds: int, scale: float, delta: float, distance: int) -> float:
    """Return about the least epsilon of peeling at ``delta``."""
    range_ = range_of(scale, distance)
    profile = peeling_profile(rounds, range_)
    low, high = range_ * math.sqrt(rounds) / 8, range_ * rounds
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if profile.delta(middle) <= delta else (middle, high)
    return high


def _check_fits(key: str, noise: float, threshold: int) -> None:
    """Refuse a curve over more pass levels than can be gone through."""
    if not gate_fits(noise, threshold):
        raise ParameterError(
            "OS102", f"{key}.accounting", expected="zcdp where noise and threshold are this large",
            got="curve", hint="accounting: zcdp; a curve goes over every vote between 12 deviations "
            "below and the threshold, 2**20 at most, and deviations of 2**15.5 at most.",
        )  # fmt: skip


def draw_tested(
    coins: Choices,
    votes: Votes,
    data: Any,
    k: int,
    scale: float,
    noise: float,
    threshold: int,
    right: float | None = None,
) -> list[str | int]:
    """Return k items in the public order; ``right`` as in ``stable_places``."""
    places = stable_places(coins, votes.rank(data, k + 1), k, noise, threshold, right)
    found = set_at(lambda at: votes.names(data, at), places)
    return peeled(coins, votes, data, k, scale) if found is None else found


make_gated_peel, then_gated_peel = constructors(GatedPeel)
