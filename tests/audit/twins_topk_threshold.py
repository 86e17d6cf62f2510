"""Items above a noisy threshold, broken in the ways that are easily written, and sound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from opendp_sim.audit import Control
from opendp_sim.domains.counts import USERS
from opendp_sim.measurements.selection.noise_threshold import NoiseThreshold, draw_passing
from tests.audit.selection import ITEMS, SPACE, VOTES, best, claimed, entry, falling, number, twins

_OWN = NoiseThreshold(scale=1.5, delta=0.05)
_BAR = number(_OWN, "threshold")
_LAPLACE = _OWN.model_copy(update={"noise": "laplace", "accounting": "curve"})
_LOW = number(_LAPLACE, "threshold")
_TWO = _OWN.model_copy(update={"distance": 2})
_ONE_ITEM = int(
    claimed(_OWN, SPACE, replace(USERS, touched=1)).expected["threshold"]
)  # as if nobody touched more


def _passing(
    coins: Any, h: Any, bar: int = _BAR, scale: float = 1.5, k: int | None = None, **more: Any
) -> Any:
    return draw_passing(coins, VOTES, h, k, more.pop("noise", "gaussian"), scale, bar, **more)


def _best_that_occurs(coins: Any, h: Any) -> Any:
    """The most voted by noisy count, whatever the threshold: who occurs at all is told."""
    items = np.flatnonzero(h > 0)
    return [int(items[coins.noisy_best(h[items], 1.5)])] if len(items) else []


def _exact_counts(coins: Any, h: Any) -> Any:
    return [(item, int(h[item])) for item in _passing(coins, h)]


def _one_noise(coins: Any, h: Any) -> Any:
    """The items of the largest count, if it passes one test."""
    most = int(h.max())
    passes = most > 0 and coins.reaches(1.5, _BAR - most)
    return np.flatnonzero(h == most).tolist() if passes else []


def _threshold_of_the_counts(coins: Any, h: Any) -> Any:
    """The threshold falls with the number of votes."""
    return _passing(coins, h, bar=max(1, _BAR - min(int(h.sum()), 3)))


def _largest_by_exact_counts(coins: Any, h: Any) -> Any:
    """One item of those that pass, chosen by its count and not by its noisy count."""
    return falling(h, _passing(coins, h))[:1]


def _drawn_again(coins: Any, h: Any) -> Any:
    """A second draw where nothing passes: two chances for an item of one side."""
    return _passing(coins, h) or _passing(coins, h)


def _clipped_noise(coins: Any, h: Any) -> Any:
    """Noise of at most two votes, as a user asked whose counts were to stay close."""
    return [
        int(i)
        for i in np.flatnonzero(h > 0)
        if h[i] >= _BAR + 2 or (h[i] >= _BAR - 2 and coins.reaches(1.5, _BAR - int(h[i])))
    ]


def _noise_of_a_count(coins: Any, h: Any) -> Any:
    """Equal counts are drawn once, as distinct ones are cheaper."""
    counts, which = np.unique(h, return_inverse=True)
    noisy = coins.noisy_above("gaussian", counts, 1.5, _BAR, tells=False)
    return np.flatnonzero((h > 0) & (noisy[which] >= _BAR)).tolist()


def _how_many_occur(coins: Any, h: Any) -> Any:
    return len(np.flatnonzero(h > 0)), _passing(coins, h)


def _threshold_of_how_many_occur(coins: Any, h: Any) -> Any:
    """The threshold hides the items that occur, so it is lower where there are fewer of them."""
    occur = max(1, len(np.flatnonzero(h > 0)))
    return _passing(coins, h, bar=_BAR - ITEMS + min(occur, ITEMS))


def _noise_in_proportion(coins: Any, h: Any) -> Any:
    """Noise of a tenth of the count, so that every count is as exact as the others."""
    found = []
    for i in np.flatnonzero(h > 0):
        scale = max(0.1 * float(h[i]), 0.1)
        if coins.reaches(scale, _BAR - int(h[i])):
            found.append(int(i))
    return found


def _of_one_item(part: str) -> Any:
    """A map that forgets that a user has four items: in rho, or in delta."""
    whole, one = claimed(_OWN), claimed(_OWN, SPACE, replace(USERS, touched=1))
    own = 1 - (1 - whole.privacy_map(1)[1]) ** (1 / ITEMS)

    def broken(d_in: Any) -> Any:
        rho, delta = whole.privacy_map(d_in)
        return (one.privacy_map(d_in)[0], delta) if part == "rho" else (rho, own)

    return broken


TWINS = [
    *twins(
        _OWN,
        (
            "above_is_at_least",
            "the threshold of `more than T`, released at T: as OpenDP's delta leaves it out",
            lambda c, h: _passing(c, h, _BAR - 1),
            (1, 1, 1, 1),
            (0, 0, 0, 0),
        ),
        (
            "threshold_of_one_item",
            "the threshold of a user with one item, where a user has four",
            lambda c, h: _passing(c, h, _ONE_ITEM),
            (1, 1, 1, 1),
            (0, 0, 0, 0),
        ),
        (
            "no_threshold",
            "the largest noisy count among the items that occur",
            _best_that_occurs,
            (0, 0, 0, 1),
            (0, 0, 0, 0),
        ),
        (
            "half_the_noise",
            "noise of half the scale",
            lambda c, h: _passing(c, h, scale=0.75),
            (_BAR,) * 4,
            (_BAR - 1,) * 4,
        ),
        (
            "exact_counts_told",
            "the exact counts of the items that pass",
            _exact_counts,
            (9, 9, 9, 9),
            (8, 9, 9, 9),
        ),
        (
            "order_of_the_counts",
            "lists what passes by exact counts",
            lambda c, h: falling(h, _passing(c, h)),
            (9, 9, 9, 9),
            (8, 9, 9, 9),
        ),
        (
            "one_noise_for_all",
            "the items of the largest count, tested once",
            _one_noise,
            (9, 9, 9, 9),
            (8, 9, 9, 9),
        ),
        (
            "threshold_of_the_counts",
            "a threshold that falls with the number of votes",
            _threshold_of_the_counts,
            (1, 1, 1, 1),
            (0, 0, 0, 0),
        ),
        (
            "filled_up",
            "an empty answer is filled with the best item",
            lambda c, h: _passing(c, h) or best(h, 1),
            (0, 0, 0, 1),
            (0, 0, 1, 1),
        ),
        (
            "largest_by_exact_counts",
            "one of the items that pass, by exact counts",
            _largest_by_exact_counts,
            (_BAR + 5, _BAR + 6, 0, 0),
            (_BAR + 6, _BAR + 6, 0, 0),
        ),
        (
            "drawn_again_if_empty",
            "a second draw where nothing passes",
            _drawn_again,
            (1, 1, 1, 1),
            (0, 0, 0, 0),
        ),
        (
            "noise_of_two_votes_at_most",
            "noise that is cut at two votes",
            _clipped_noise,
            (_BAR + 2, 0, 0, 0),
            (_BAR + 1, 0, 0, 0),
        ),
        (
            "one_noise_for_equal_counts",
            "noise is drawn once for each count",
            _noise_of_a_count,
            (_BAR, _BAR, _BAR, _BAR),
            (_BAR, _BAR - 1, _BAR, _BAR - 1),
        ),
        (
            "how_many_occur_is_told",
            "the number of items that occur beside those that pass",
            _how_many_occur,
            (1, 0, 0, 0),
            (0, 0, 0, 0),
        ),
        (
            "threshold_of_how_many_occur",
            "a threshold for as many items as occur",
            _threshold_of_how_many_occur,
            (1, 0, 0, 0),
            (0, 0, 0, 0),
        ),
        (
            "noise_in_proportion",
            "noise of a tenth of each count",
            _noise_in_proportion,
            (1, 1, _BAR, _BAR),
            (0, 0, _BAR - 1, _BAR - 1),
        ),
        (
            "rho_of_one_item",
            "a loss for one item, where a user has four",
            _passing,
            (_BAR,) * 4,
            (_BAR - 1,) * 4,
            {"privacy_map": _of_one_item("rho")},
        ),
        (
            "delta_of_one_item",
            "a delta for one item, where a user has four",
            _passing,
            (1, 1, 1, 1),
            (0, 0, 0, 0),
            {"privacy_map": _of_one_item("delta")},
        ),
    ),
    *twins(
        _TWO,
        (
            "threshold_of_one_user",
            "calibrated at one user, claimed for two",
            _passing,
            (2, 2, 2, 2),
            (0, 0, 0, 0),
        ),
        d_in=2,
    ),
    *twins(
        _LAPLACE,
        (
            "laplace_at_the_scale_of_one_item",
            "the scale of a user with one item, where a user has four",
            lambda c, h: _passing(c, h, _LOW, _LAPLACE.scale / 4, noise="laplace"),
            (_LOW,) * 4,
            (_LOW - 1,) * 4,
        ),
    ),
]
CONTROLS = [
    entry(Control, "sound", _OWN, _passing),
    entry(Control, "sound_curve", _LAPLACE, lambda c, h: _passing(c, h, _LOW, noise="laplace")),
    entry(
        Control,
        "sound_two_users",
        _TWO,
        lambda c, h: _passing(c, h, number(_TWO, "threshold")),
        d_in=2,
    ),
]
