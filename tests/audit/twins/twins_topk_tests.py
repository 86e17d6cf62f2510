"""Mechanisms that test the stability of a set, each broken in one way."""

from __future__ import annotations

from typing import Any

import numpy as np

from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection._impl.gap_utility import GapUtility
from opendp_sim.measurements.selection._impl.gaussian_tail import threshold_for
from opendp_sim.measurements.selection._impl.peeling import peeled
from opendp_sim.measurements.selection.choose_k import draw_k
from opendp_sim.measurements.selection.gated_peel import GatedPeel, draw_tested, gate_for
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.stable_top_k import StableTopK, draw_stable
from opendp_sim.measurements.selection.top_stable import TopStable, draw_top_stable
from tests.audit.twins.selection import VOTES, best, by_count, claimed, gap, number, row, twins

# --- stable_top_k ------------------------------------------------------------------------------------

_S = 1.2
_STABLE = StableTopK(k_max=3, scale=_S, delta=0.05)
_CURVE = _STABLE.model_copy(update={"accounting": "curve"})
_PLAN, _CURVED = _STABLE.plan(), _CURVE.plan()
_UTILITY = GapUtility(3, None, None, 0.0)


def _tested(coins: Any, h: Any, k: int, scale: float = _S, plan: Any = _PLAN) -> Any:
    return best(h, k) if coins.reaches(scale, plan.threshold - gap(h, k)) else None


def _one_draw_reused(coins: Any, h: Any) -> Any:
    noisy = coins.noisy(VOTES.rank(h, 4).gaps, _S)
    k = 1 + int(np.argmax(noisy))
    return best(h, k) if noisy[k - 1] >= _PLAN.threshold else None


def _largest_gap(_: Any, h: Any) -> int:
    return 1 + int(np.argmax(VOTES.rank(h, 4).gaps))


# --- gated_peel ---------------------------------------------------------------------------------------

_TESTED = GatedPeel(k=2, scale=2.0, delta=0.05, share=0.5)
_SINGLE = _TESTED.model_copy(update={"accounting": "curve"})
_NOISE = 2 * 2.0 * (0.5 / (0.5 * 2)) ** 0.5
_BAR = number(_TESTED, "threshold")
_GATE, _LOW = gate_for("twin", 2, 2.0, _NOISE, 0.05, 1)


def _test(coins: Any, h: Any, k: int = 2, noise: float = _NOISE, bar: int = _BAR) -> bool:
    return bool(coins.reaches(noise, bar - gap(h, k)))


def _peel(coins: Any, h: Any, scale: float = 2.0) -> Any:
    return peeled(coins, VOTES, h, 2, scale)


def _first_kept(coins: Any, h: Any) -> Any:
    if _test(coins, h):
        return best(h, 2)
    first = by_count(h, 1)[0]
    rest = np.delete(np.arange(len(h)), first)
    return sorted([first, int(rest[coins.top(h[rest], 1, 2.0)[0]])])


# Over many equal candidates peeling names none of them, so that the test alone decides.
_MANY = 300
_SPACE = IntVector(_MANY)
_WIDE = GatedPeel(k=1, scale=2.0, delta=0.05, share=0.9)
_HIGH = int(claimed(_WIDE, _SPACE).expected["threshold"])
_ZERO = np.zeros(_MANY, dtype=np.int64)
_ONE, _PAIR = (np.isin(np.arange(_MANY), at).astype(np.int64) for at in ([1], [0, 1]))


def _wide(coins: Any, h: Any, bar: int, rank: int = 1, tests: int = 1) -> Any:
    noise = 2 * 2.0 * (0.1 / 0.9) ** 0.5
    order = np.argsort(-h, kind="stable")
    between = int(h[order[rank - 1]] - h[order[rank]])
    if any(coins.reaches(noise, bar - between) for _ in range(tests)):
        return [int(order[0])]
    return [int(i) for i in coins.top(h, 1, 2.0)]


_STEEP = GatedPeel(k=1, scale=1.5, delta=0.05, share=0.2, accounting="curve")
_LEFT = 2 * 1.5 * (0.8 / 0.2) ** 0.5
_STEP, _AT = gate_for("twin", 1, 1.5, _LEFT, 0.05, 1)


def _gated(coins: Any, h: Any, passes: Any) -> Any:
    """One of many, by a gate that ``passes`` at a gap."""
    order = np.argsort(-h, kind="stable")
    if passes(coins, int(h[order[0]] - h[order[1]])):
        return [int(order[0])]
    return [int(i) for i in coins.top(h, 1, 1.5)]


# --- top_stable --------------------------------------------------------------------------------------

_TOP = TopStable(k=1, k_max=2, epsilon=4.0, delta=0.05)
_C = _TOP.threshold()


def _search(coins: Any, h: Any, bar: int = _C) -> Any:
    """Sizes that pass, largest first, one after another."""
    bar += coins.laplace(_TOP.scales[1])
    for size in (2, 1):
        if coins.laplace_reaches(_TOP.scales[0], bar - gap(h, size)):
            yield size


def _noiseless(coins: Any, h: Any) -> Any:
    bar = _C + coins.laplace(_TOP.scales[1])
    return next((best(h, size) for size in (2, 1) if gap(h, size) >= bar), None)


def _first(coins: Any, h: Any, bar: int = _C) -> Any:
    size = next(_search(coins, h, bar), None)
    if size is None:
        return None
    found = best(h, size)
    return found if size == 1 else [found[coins.top(np.zeros(2, dtype=np.int64), 1, 1.0)[0]]]


def _cut_by_counts(coins: Any, h: Any) -> Any:
    size = next(_search(coins, h), None)
    return None if size is None else by_count(h, 1)


def _gap_told(coins: Any, h: Any) -> Any:
    size = next(_search(coins, h), None)
    return None if size is None else (size, gap(h, size))


TWINS = [
    *twins(
        _STABLE,
        row(
            "largest_gap_for_nothing: the rank with the largest gap is taken without noise",
            lambda c, h: _tested(c, h, _largest_gap(c, h)),
            "0013 0023",
        ),
        row(
            "one_draw_reused: the noise that found the largest gap also tests it",
            _one_draw_reused,
            "0112 0011",
        ),
    ),
    *twins(
        _CURVE,
        row(
            "half_noise_in_the_test: the noise on the gap has half its scale, the threshold is as before",
            lambda c, h: _tested(c, h, draw_k(c, VOTES, h, _UTILITY, _S), _S / 2, _CURVED),
            "0003 0013",
        ),
        row(
            "choice_at_half_the_scale: the rank is drawn as if gaps were monotone",
            lambda c, h: _tested(c, h, draw_k(c, VOTES, h, _UTILITY, _S / 2), _S, _CURVED),
            "0013 0023",
        ),
    ),
    *twins(
        _STABLE.model_copy(update={"distance": 2}),
        row(
            "threshold_of_one_user: calibrated at one user, claimed for two",
            lambda c, h: draw_stable(c, VOTES, h, _PLAN),
            "0002 0000",
        ),
        d_in=2,
    ),
    *twins(
        _TESTED,
        row(
            "first_item_kept: where the test fails the first item stays and one is drawn",
            _first_kept,
            "0111 0000",
        ),
    ),
    *twins(
        _SINGLE,
        row(
            "half_noise_in_the_test: the noise on the gap has half its scale on both sides, the threshold a third of its height",
            lambda c, h: draw_tested(c, VOTES, h, 2, 2.0, _NOISE / 2, _LOW // 3, _GATE.right / 2),
            "0033 0022",
        ),
        row(
            "peels_at_half_the_scale: peeling at half the scale that is charged",
            lambda c, h: draw_tested(c, VOTES, h, 2, 1.0, _NOISE, _LOW, _GATE.right),
            "0000 0001",
        ),
        row(
            "test_not_charged: no noise of the test and no delta in the claim",
            lambda c, h: best(h, 2) if gap(h, 2) >= 2 else _peel(c, h),
            "0110 0220",
            privacy_map=claimed(Peel(k=2, scale=2.0, accounting="curve")).privacy_map,
        ),
    ),
    *twins(
        _WIDE,
        row(
            "threshold_one_low: the threshold is rounded down once too often",
            lambda c, h: _wide(c, h, _HIGH - 1),
            _ONE,
            _ZERO,
        ),
        space=_SPACE,
    ),
    *twins(
        _STEEP,
        row(
            "sides_exchanged: the wide side of the noise is where unstable sets pass",
            lambda c, h: _gated(
                c, h, lambda c, g: not c.gate_reaches(_STEP.right, _LEFT, 1 - _AT + g)
            ),
            _ONE,
            _ZERO,
        ),
        row(
            "gaussian_threshold: the threshold is that of a Gaussian of the geometric's scale",
            lambda c, h: _gated(
                c,
                h,
                lambda c, g: c.gate_reaches(
                    _STEP.right, _LEFT, threshold_for(_STEP.right, 0.005, 1) - g
                ),
            ),
            _ONE,
            _ZERO,
        ),
        space=_SPACE,
    ),
    *twins(
        _TOP,
        row(
            "threshold_one_low: the threshold is rounded down once too often",
            lambda c, h: _first(c, h, bar=_C - 1),
            "0011 0000",
        ),
        row(
            "delta_of_one_rank: the threshold forgets that several ranks may pass",
            lambda c, h: _first(c, h, bar=_TOP.model_copy(update={"delta": 0.1}).threshold()),
            "0011 0000",
        ),
        row(
            "gaps_without_noise: only the threshold of the search is noisy",
            _noiseless,
            (0, 0, _C, 2 * _C),
            (0, 0, _C - 1, 2 * _C),
        ),
        row(
            "cut_by_counts: a set that is too large is cut to its most voted item",
            _cut_by_counts,
            "0033 0023",
        ),
        row("gap_told: tells the exact gap of the size that passed", _gap_told, "0033 0023"),
    ),
    *twins(
        _TOP.model_copy(update={"distance": 2}),
        row(
            "threshold_of_one_user: calibrated at one user, claimed for two",
            lambda c, h: draw_top_stable(c, VOTES, h, 1, 2, _TOP.scales, _C),
            "0002 0111",
        ),
        d_in=2,
    ),
]
