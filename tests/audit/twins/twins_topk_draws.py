"""Mechanisms that draw items or ranks, each broken in one way."""

from __future__ import annotations

from typing import Any

import numpy as np

from opendp_sim.measurements.selection._impl.gap_utility import GapUtility
from opendp_sim.measurements.selection._impl.peeling import peeled
from opendp_sim.measurements.selection.choose_k import ChooseK, draw_k
from opendp_sim.measurements.selection.gaussian_top_k import GaussianTopK
from opendp_sim.measurements.selection.limited_domain import LimitedDomain, draw_limited
from opendp_sim.measurements.selection.noisy_max_gaussian import NoisyMaxGaussian
from opendp_sim.measurements.selection.peel import Peel
from tests.audit.twins.selection import VOTES, best, by_count, claimed, number, row, twins


def _gaps(h: Any, ranks: int = 3) -> Any:
    return VOTES.rank(h, ranks + 1).gaps


def _changed(mechanism: Any, **fields: Any) -> Any:
    return mechanism.model_copy(update=fields)


# --- peel --------------------------------------------------------------------------------------------

_PEEL = Peel(k=2, scale=2.0)
_SINGLE = _changed(_PEEL, accounting="curve")


def _clear_lead(coins: Any, h: Any) -> Any:
    return best(h, 2) if _gaps(h)[1] >= 2 else peeled(coins, VOTES, h, 2, 2.0)


# --- limited_domain ----------------------------------------------------------------------------------

_LIMITED = LimitedDomain(k=1, k_max=2, scale=1.5, delta=0.05)
_HEIGHT = number(_LIMITED, "height")
_FOR_ONE = number(_LIMITED.model_copy(update={"delta": 0.1}), "height")  # k_max taken for one


def _limited(coins: Any, h: Any, height: int = _HEIGHT, k: int = 1, scale: float = 1.5) -> Any:
    return draw_limited(coins, VOTES, h, k, 2, scale, height)


def _exact_stop(coins: Any, h: Any) -> Any:
    drawn = by_count(h, 2)[coins.top(VOTES.rank(h, 2).counts, 1, 1.5)[0]]
    return [drawn] if h[drawn] >= VOTES.rank(h, 3).counts[2] + 2 else []


# --- choose_k, noisy_max_gaussian --------------------------------------------------------------------

_CHOOSE = ChooseK(k_max=3, scale=2.0)
_NOISY = NoisyMaxGaussian(k_max=3, scale=0.8)


def _occurring(h: Any) -> int:
    return max(1, min(3, int((h > 0).sum())))


def _rank(coins: Any, utility: Any) -> int:
    return 1 + int(coins.best(np.asarray(utility, dtype=np.int64), 2.0))


def _value_told(coins: Any, h: Any) -> Any:
    k = _rank(coins, _gaps(h))
    return k, int(_gaps(h)[k - 1])


def _noise_of_the_counts(coins: Any, h: Any) -> int:
    return 1 + int(coins.noisy_best(_gaps(h), 0.2 + 0.2 * min(max(int(h.min()), 0), 4)))


def _tie_of_the_items(coins: Any, h: Any) -> Any:
    """Names the item below which the cut falls."""
    return by_count(h, 3)[coins.noisy_best(_gaps(h), 0.8)]


def _one_noise(coins: Any, h: Any) -> int:
    return 1 + int(np.argmax(_gaps(h) + coins.noisy(np.zeros(1, dtype=np.int64), 0.8)[0]))


# --- gaussian_top_k ----------------------------------------------------------------------------------

_HISTOGRAM = GaussianTopK(k=1, scale=1.5)


def _noisy_top(coins: Any, h: Any, items: Any, scale: float = 1.5) -> int:
    """The most voted of some items by noisy counts."""
    return int(items[coins.noisy_best(np.asarray(h)[items], scale)])


TWINS = [
    *twins(
        _PEEL,
        row(
            "clear_lead_is_certain: no noise where the exact gap is clear", _clear_lead, "1010 2020"
        ),
        row(
            "scale_of_the_counts: the scale falls with the number of votes",
            lambda c, h: peeled(c, VOTES, h, 2, 4.0 / (1 + min(max(int(h.sum()), 0), 20))),
            "2222 2332",
        ),
    ),
    *twins(
        _SINGLE,
        row(
            "half_the_scale: twice the scores at the scale that is charged",
            lambda c, h: peeled(c, VOTES, 2 * h, 2, 2.0),
            "0000 0001",
        ),
    ),
    *twins(
        Peel(k=3, scale=2.0, accounting="curve"),
        row(
            "winners_at_the_price_of_losers: three winners drawn, one loser charged",
            lambda c, h: sorted(map(int, c.top(h, 3, 2.0))),
            "0000 0011",
        ),
    ),
    *twins(
        _SINGLE,
        row(
            "two_users_as_one: the loss of one user stated for two",
            lambda c, h: peeled(c, VOTES, h, 2, 2.0),
            "0000 0002",
            privacy_map=lambda _: claimed(_SINGLE).privacy_map(1),
        ),
        d_in=2,
    ),
    *twins(
        _LIMITED,
        row(
            "stop_one_low: the height is rounded down once too often",
            lambda c, h: _limited(c, h, _HEIGHT - 1),
            "0011 0000",
        ),
        row(
            "one_item_may_appear: the height forgets that k_max items may be new",
            lambda c, h: _limited(c, h, _FOR_ONE),
            "0011 0000",
        ),
        row(
            "exact_stop: the drawn item is held against the exact threshold",
            _exact_stop,
            "0011 0022",
        ),
        row("no_stop: what is drawn is always told", lambda c, h: _limited(c, h, -60), "0000 0011"),
        row(
            "padded_from_counts: an empty answer is filled with the best item",
            lambda c, h: _limited(c, h) or best(h, 1),
            "0000 0011",
        ),
    ),
    *twins(
        _changed(_LIMITED, distance=2),
        row("height_of_one_user: calibrated at one user, claimed for two", _limited, "0022 0000"),
        d_in=2,
    ),
    *twins(
        _CHOOSE,
        row(
            "no_noise: the exact largest gap",
            lambda _, h: 1 + int(np.argmax(_gaps(h))),
            "0000 0011",
        ),
        row(
            "ranks_that_occur: only as many ranks as items have votes",
            lambda c, h: _rank(c, _gaps(h, _occurring(h))),
            "0111 0000",
        ),
        row("gap_told: tells the exact gap of the drawn rank", _value_told, "0011 0112"),
        row(
            "gaps_squared: a rank is worth the square of its gap",
            lambda c, h: _rank(c, _gaps(h) ** 2),
            "0223 0113",
        ),
        row(
            "wanted_size_of_the_data: the wanted size is the number of items above the mean",
            lambda c, h: draw_k(
                c, VOTES, h, GapUtility(3, None, max(1, int((4 * h > h.sum()).sum())), 9.0), 2.0
            ),
            "0113 0223",
        ),
    ),
    *twins(
        _NOISY,
        row(
            "no_noise: the exact largest gap",
            lambda _, h: 1 + int(np.argmax(_gaps(h))),
            "0000 0011",
        ),
        row(
            "ranks_that_occur: only as many ranks as items have votes",
            lambda c, h: 1 + c.noisy_best(_gaps(h, _occurring(h)), 0.8),
            "0111 0000",
        ),
        row(
            "quarter_of_the_scale: a quarter of the noise that is charged",
            lambda c, h: 1 + c.noisy_best(_gaps(h), 0.2),
            "0011 0112",
        ),
        row(
            "scale_of_the_counts: the noise grows with the smallest count",
            _noise_of_the_counts,
            "0011 0112",
        ),
        row("item_told: names the item at the winning rank", _tie_of_the_items, "0001 0000"),
        row("one_draw_reused: every gap gets the same noise", _one_noise, "0000 0011"),
    ),
    *twins(
        _HISTOGRAM,
        row("no_noise: the exact most voted item", lambda _, h: best(h, 1), "0000 0001"),
        row(
            "items_that_occur: only items with votes compete",
            lambda c, h: _noisy_top(c, h, np.flatnonzero(h) if h.any() else np.arange(1)),
            "0000 0001",
        ),
        row(
            "few_items_compete: only the exact best two compete",
            lambda c, h: _noisy_top(c, h, by_count(h, 2)),
            "0000 0011",
        ),
        row(
            "count_told: tells the exact count of the item",
            lambda c, h: int(h[_noisy_top(c, h, np.arange(4))]),
            "0000 1111",
        ),
        row(
            "quarter_of_the_scale: a quarter of the noise that is charged",
            lambda c, h: _noisy_top(c, h, np.arange(4), 0.3),
            "0000 0110",
        ),
        row(
            "padded_from_counts: an item without votes is replaced by the best",
            lambda c, h: next(
                i
                for i in (_noisy_top(c, h, np.arange(4)), best(h, 1)[0])
                if h[i] or not h.any() or i == best(h, 1)[0]
            ),
            "0000 0001",
        ),
    ),
]
