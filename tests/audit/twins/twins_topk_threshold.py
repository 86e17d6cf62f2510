"""Items above a noisy threshold, broken in the ways that are easily written, and sound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from opendp_sim.domains.counts import USERS
from opendp_sim.measurements.selection.noise_threshold import NoiseThreshold, draw_passing
from tests.audit.twins.entries import Control
from tests.audit.twins.selection import ITEMS, SPACE, VOTES, claimed, entry, number, row, twins

_OWN = NoiseThreshold(scale=1.5, delta=0.05)
_BAR = number(_OWN, "threshold")
_LAPLACE = _OWN.model_copy(update={"noise": "laplace", "accounting": "curve"})
_LOW = number(_LAPLACE, "threshold")
_TWO = _OWN.model_copy(update={"distance": 2})


def _passing(
    coins: Any, h: Any, bar: int = _BAR, scale: float = 1.5, k: int | None = None, **more: Any
) -> Any:
    return draw_passing(coins, VOTES, h, k, more.pop("noise", "gaussian"), scale, bar, **more)


def _best_that_occurs(coins: Any, h: Any) -> Any:
    """The most voted by noisy count, whatever the threshold: who occurs at all is told."""
    items = np.flatnonzero(h > 0)
    return [int(items[coins.noisy_best(h[items], 1.5)])] if len(items) else []


def _one_noise(coins: Any, h: Any) -> Any:
    """The items of the largest count, if it passes one test."""
    most = int(h.max())
    passes = most > 0 and coins.reaches(1.5, _BAR - most)
    return np.flatnonzero(h == most).tolist() if passes else []


def _threshold_of_the_counts(coins: Any, h: Any) -> Any:
    """The threshold falls with the number of votes."""
    return _passing(coins, h, bar=max(1, _BAR - min(int(h.sum()), 3)))


def _drawn_again(coins: Any, h: Any) -> Any:
    """A second draw where nothing passes: two chances for an item of one side."""
    return _passing(coins, h) or _passing(coins, h)


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
        row(
            "above_is_at_least: the threshold of `more than T`, released at T: as OpenDP's delta leaves it out",
            lambda c, h: _passing(c, h, _BAR - 1),
            "1111 0000",
        ),
        row(
            "no_threshold: the largest noisy count among the items that occur",
            _best_that_occurs,
            "0001 0000",
        ),
        row(
            "half_the_noise: noise of half the scale",
            lambda c, h: _passing(c, h, scale=0.75),
            (_BAR,) * 4,
            (_BAR - 1,) * 4,
        ),
        row(
            "one_noise_for_all: the items of the largest count, tested once",
            _one_noise,
            "9999 8999",
        ),
        row(
            "threshold_of_the_counts: a threshold that falls with the number of votes",
            _threshold_of_the_counts,
            "1111 0000",
        ),
        row("drawn_again_if_empty: a second draw where nothing passes", _drawn_again, "1111 0000"),
        row(
            "rho_of_one_item: a loss for one item, where a user has four",
            _passing,
            (_BAR,) * 4,
            (_BAR - 1,) * 4,
            privacy_map=_of_one_item("rho"),
        ),
        row(
            "delta_of_one_item: a delta for one item, where a user has four",
            _passing,
            "1111 0000",
            privacy_map=_of_one_item("delta"),
        ),
    ),
    *twins(
        _TWO,
        row(
            "threshold_of_one_user: calibrated at one user, claimed for two", _passing, "2222 0000"
        ),
        d_in=2,
    ),
    *twins(
        _LAPLACE,
        row(
            "laplace_at_the_scale_of_one_item: the scale of a user with one item, where a user has four",
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
