"""Private selection, broken in the ways that were published or are easily written, and sound.

The exact distribution of each comes from running it with exact coins (``tests._enumeration``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from opendp_sim.domains.counts import USERS
from opendp_sim.measurements.selection._impl.gap_utility import GapUtility
from opendp_sim.measurements.selection._impl.peeling import peeled
from opendp_sim.measurements.selection.choose_k import ChooseK, draw_k
from opendp_sim.measurements.selection.gated_peel import GatedPeel, draw_tested, gate_for
from opendp_sim.measurements.selection.limited_domain import LimitedDomain, draw_limited
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.stable_set import StableSet, draw_set
from opendp_sim.measurements.selection.stable_top_k import StableTopK, draw_stable
from tests.audit.twins.entries import Control
from tests.audit.twins.selection import ITEMS, SPACE, VOTES, entry, row, twins


def _gap_later(coins: Any, h: Any) -> Any:
    ranking = VOTES.rank(h, 4)
    later = int(ranking.counts[2] - ranking.counts[3])
    return sorted(ranking.places[:2].tolist()) if coins.reaches(0.8, _T - later) else None


def _gap_leaked(coins: Any, h: Any) -> Any:
    found = draw_set(coins, VOTES, h, 2, 0.8, _T)
    return found and (found, int(VOTES.rank(h, 3).gaps[1]))


def _ordered(coins: Any, h: Any) -> Any:
    ranking = VOTES.rank(h, 3)
    passes = coins.reaches(0.8, _T - int(ranking.gaps[1]))
    return ranking.places[:2].tolist() if passes else None


def _ties_by_users(coins: Any, h: Any) -> Any:
    """Ties go to the last item where the total number of votes is odd."""
    flip = int(h.sum()) % 2
    found = draw_set(coins, VOTES, h[::-1] if flip else h, 2, 0.8, _T - 1)
    return found and sorted(ITEMS - 1 - i if flip else i for i in found)


def _occurring(coins: Any, h: Any) -> Any:
    items = np.flatnonzero(h > 0)
    return [int(items[i]) for i in coins.top(h[items], 1, 2.0)] if len(items) else None


def _untested(coins: Any, h: Any) -> Any:
    """The choice of the rank is private, the set at that rank is released as it is."""
    return VOTES.names(h, VOTES.rank(h, 4).places[: draw_k(coins, VOTES, h, _UTILITY, 1.2)])


_SET = StableSet(k=2, scale=0.8, delta=0.05)
_T = int(_SET.bind(SPACE, USERS).expected["threshold"])
_PUBLISHED = int(np.ceil(1 + 0.8 * np.sqrt(2 * np.log(1 / 0.05))))
_TWO = StableSet(k=2, scale=0.8, delta=0.05, distance=2)
_UTILITY = GapUtility(3, None, None, 0.0)
_STABLE = StableTopK(k_max=3, scale=1.2, delta=0.05)
_LIMITED = LimitedDomain(k=1, k_max=2, scale=1.5, delta=0.05)
_HEIGHT = int(_LIMITED.bind(SPACE, USERS).expected["height"])
_TESTED = GatedPeel(k=2, scale=2.0, delta=0.05, share=0.5)
_BAR = int(_TESTED.bind(SPACE, USERS).expected["threshold"])
_GATED = _TESTED.model_copy(update={"accounting": "curve"})
_GATE, _LOW = gate_for("twin", 2, 2.0, 2 * 2.0 * (0.5 / 1.0) ** 0.5, _TESTED.delta, 1)

TWINS = [
    *twins(
        _TWO,
        row(
            "published_threshold_two_users: threshold 1 + s sqrt(2 ln 1/delta), where two users may differ",
            lambda c, h: draw_set(c, VOTES, h, 2, 0.8, _PUBLISHED),
        ),
        d_in=2,
    ),
    *twins(
        _SET,
        row("off_by_one_gap: tests the gap below rank k + 1", _gap_later),
        row("gap_leaked: releases the exact gap beside the set", _gap_leaked),
        row("ordered_list: lists the set in the order of its counts", _ordered, "5500 5600"),
        row(
            "half_the_noise: noise of half the scale at the same threshold",
            lambda c, h: draw_set(c, VOTES, h, 2, 0.4, _T),
            "0014 0024",
        ),
        row(
            "ties_by_other_users: ties are broken by the parity of all votes, threshold one too low",
            _ties_by_users,
        ),
    ),
    *twins(
        Peel(k=1, scale=2.0),
        row("items_that_occur: peels among the items with votes only", _occurring),
        row(
            "forgot_the_rounds: two rounds charged as one", lambda c, h: peeled(c, VOTES, h, 2, 2.0)
        ),
    ),
    *twins(
        ChooseK(k_max=3, scale=2.0),
        row(
            "half_the_scale: gaps treated as monotone",
            lambda c, h: draw_k(c, VOTES, h, _UTILITY, 1.0),
            "5544 6554",
        ),
    ),
    *twins(_STABLE, row("no_test: releases the set at a private rank untested", _untested)),
]
CONTROLS = [
    entry(Control, "sound", _SET, lambda c, h: draw_set(c, VOTES, h, 2, 0.8, _T)),
    entry(Control, "sound", Peel(k=2, scale=2.0), lambda c, h: peeled(c, VOTES, h, 2, 2.0)),
    entry(
        Control,
        "sound",
        ChooseK(k_max=3, scale=2.0),
        lambda c, h: draw_k(c, VOTES, h, _UTILITY, 2.0),
    ),
    entry(Control, "sound", _STABLE, lambda c, h: draw_stable(c, VOTES, h, _STABLE.plan())),
    entry(Control, "sound", _LIMITED, lambda c, h: draw_limited(c, VOTES, h, 1, 2, 1.5, _HEIGHT)),
    entry(
        Control,
        "sound",
        _TESTED,
        lambda c, h: draw_tested(c, VOTES, h, 2, 2.0, 2 * 2.0 * (0.5 / 1.0) ** 0.5, _BAR),
    ),
    entry(
        Control,
        "sound_curve",
        _GATED,
        lambda c, h: draw_tested(c, VOTES, h, 2, 2.0, _GATE.left, _LOW, _GATE.right),
    ),
]
