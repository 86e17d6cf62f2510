"""Every way to the top k at one (epsilon, delta): scales solved, sets drawn, shares measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import opendp.prelude as dp

from opendp_sim.accounting.measures.second_opinion import zcdp_to_epsilon
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.domains.counts import USERS
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection.gated_peel import GatedPeel
from opendp_sim.measurements.selection.gaussian_top_k import GaussianTopK
from opendp_sim.measurements.selection.limited_domain import LimitedDomain
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.stable_top_k import StableTopK
from opendp_sim.measurements.selection.top_stable import TopStable

dp.enable_features("contrib")
Build = Callable[[float], Mechanism]


def epsilon_of(claim: Any, delta: float, d_in: int = 1, releases: int = 1) -> float:
    """Return epsilon at ``delta`` for ``d_in`` users of all ``releases`` of one claim."""
    loss = claim.privacy_map(d_in)
    if callable(loss):
        if releases > 1:
            return np.inf  # a curve is for one release
        low, high = 0.0, 1.0
        while loss(high) > delta:
            high *= 2
        while high - low > 1e-5 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if loss(middle) <= delta else (middle, high)
        return high
    first, own = loss if isinstance(loss, tuple) else (loss, 0.0)
    first, own = first * releases, own * releases
    if claim.measure == "approx_max_divergence":
        return first if own <= delta else np.inf
    return zcdp_to_epsilon(first, delta - own) if own < delta else np.inf


def solved(
    build: Build, domain: Any, epsilon: float, delta: float, metric: Any = USERS, releases: int = 1
) -> Any:
    """Return the claim with the least scale that keeps (epsilon, delta)."""

    def fits(scale: float) -> bool:
        claim = build(scale).bind(domain, metric)
        return epsilon_of(claim, delta, releases=releases) <= epsilon

    high = 1.0
    while not fits(high):
        high *= 2
    low = high / 2
    while fits(low):
        high, low = low, low / 2
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return build(high).bind(domain, metric)


@dataclass(frozen=True)
class Way:
    name: str
    build: Callable[[int, float, float], Mechanism]
    """(k, scale, delta) to the record."""
    padded: bool = True


def ways(per_user: int | None = None, items: int = 10**6) -> list[Way]:
    """The mechanisms that are compared; ``delta`` is the whole budget's."""
    found = [
        Way(
            "gated_peel, curve",
            lambda k, s, d: GatedPeel(k=k, scale=s, delta=d, accounting="curve"),
        ),
        Way("gated_peel, zcdp", lambda k, s, d: GatedPeel(k=k, scale=s, delta=d / 2)),
        Way("peel, curve", lambda k, s, d: Peel(k=k, scale=s, accounting="curve")),
        Way("peel, zcdp", lambda k, s, d: Peel(k=k, scale=s)),
        Way(
            "stable_top_k published, filled",
            lambda k, s, d: StableTopK(
                k_max=2 * k, k=k, scale=s, delta=d / 2, utility="gap", fill="peel"
            ),
        ),
        Way(
            "stable_top_k published, unpadded",
            lambda k, s, d: StableTopK(k_max=2 * k, k=k, scale=s, delta=d / 2, utility="gap"),
            False,
        ),
        Way(
            "stable_top_k published, adaptive",
            lambda k, s, d: StableTopK(k_max=2 * k, scale=s, delta=d / 2, utility="gap"),
            False,
        ),
        Way(
            "stable_top_k improved, unpadded",
            lambda k, s, d: StableTopK(k_max=2 * k, k=k, scale=s, delta=d, accounting="curve"),
            False,
        ),
        Way(
            "stable_top_k improved, adaptive",
            lambda k, s, d: StableTopK(k_max=2 * k, scale=s, delta=d, accounting="curve"),
            False,
        ),
        Way(
            "limited_domain, curve",
            lambda k, s, d: LimitedDomain(
                k=k, k_max=min(10 * k, 1500, items - 1), scale=s, delta=d, accounting="curve"
            ),
            False,
        ),
        Way(
            "limited_domain, zcdp",
            lambda k, s, d: LimitedDomain(
                k=k, k_max=min(10 * k, 1500, items - 1), scale=s, delta=d / 2
            ),
            False,
        ),
        Way(
            "top_stable", lambda k, s, d: TopStable(k=k, k_max=2 * k, epsilon=1 / s, delta=d), False
        ),
    ]
    if per_user is not None:
        found.append(Way("gaussian histogram", lambda k, s, d: GaussianTopK(k=k, scale=s)))
    return found


@dataclass(frozen=True)
class Score:
    share: float
    """of the true top k that was returned"""
    precision: float
    jaccard: float
    size: float
    error: float
    """standard error of the share"""


def truth(counts: np.ndarray, k: int) -> set[int]:
    return set(np.argsort(-counts, kind="stable")[:k].tolist())


def score(claim: Any, data: Any, k: int, runs: int, counts: np.ndarray | None = None) -> Score:
    """Mean over runs; an empty answer has precision 1 by convention and share 0.

    ``counts`` are those of the items 0, 1, ... where the data has another form.
    """
    real, found = truth(data if counts is None else counts, k), []
    for _ in range(runs):
        got = set(claim.function(data) or ())
        hit = len(got & real)
        found.append((hit / k, hit / len(got) if got else 1.0, hit / len(got | real), len(got)))
    error = np.std([share for share, *_ in found]) / np.sqrt(runs)
    return Score(*map(float, np.mean(found, axis=0)), float(error))


def dense(counts: np.ndarray) -> IntVector:
    return IntVector(len(counts))
