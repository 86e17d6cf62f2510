"""Peel listed candidates, or a universe with few stored ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.rounding import float_up
from opendp_sim.core.errors import ParameterError
from opendp_sim.domains.counts import Votes
from opendp_sim.measurements.selection._impl.peeling_profile import MOST_ROUNDS
from opendp_sim.measurements.selection._impl.ranked import ranked_items
from opendp_sim.measurements.selection._impl.selection import Choices

NEEDS_CATALOGUE = (
    "give `vote_counts` a public `items` list or `universe`; with neither, use `limited_domain` or "
    "`stable_top_k`, which are private on an unknown catalogue."
)


def range_of(scale: float, users: int) -> float:
    """Return the bounded range of one draw, rounded up."""
    return float_up(users / scale * (1 + 2.0**-52))


def check_rounds(key: str, rounds: int, accounting: str) -> None:
    """Refuse a curve of too many rounds to compose."""
    if accounting == "curve" and rounds > MOST_ROUNDS:
        raise ParameterError(
            "OS102", f"{key}.accounting", expected=f"zcdp beyond {MOST_ROUNDS:,} rounds", got="curve",
            hint="accounting: zcdp; a curve is composed round by round.",
        )  # fmt: skip


def rounds_for(votes: Votes, k: int, *, ranked: bool = False) -> int:
    """Return the draws that choose k of the candidates.

    Winners, or losers when they are fewer. Losers tell nothing of the winners' order, so ``ranked``
    draws winners.
    """
    if not ranked and votes.listed and votes.candidates is not None:
        return min(k, votes.candidates - k)
    return k


def peeled(coins: Choices, votes: Votes, data: Any, k: int, scale: float) -> list[str | int]:
    """Return k items in the public order."""
    counts = votes.counts(data)
    if not votes.listed:
        return open_names(coins, votes, data, counts, k, scale)
    return votes.names(data, listed_places(coins, counts, k, scale))


def peeled_in_order(
    coins: Choices, votes: Votes, data: Any, k: int, scale: float
) -> dict[str, list[Any]]:
    """Return k items in the order in which they are drawn."""
    drawn = coins.in_order(votes.counts(data), k, scale)
    return ranked_items(votes.names(data, np.asarray(drawn), ranked=True))


def listed_places(
    coins: Choices, counts: NDArray[np.int64], k: int, scale: float
) -> NDArray[np.int64]:
    """Return the places of k drawn candidates that all have a cell."""
    losers = len(counts) - k
    if losers < k:
        kept = np.ones(len(counts), dtype=bool)
        kept[np.asarray(coins.top(counts, losers, scale, lowest=True), dtype=np.int64)] = False
        return np.flatnonzero(kept)
    return np.asarray(coins.top(counts, k, scale), dtype=np.int64)


def open_names(
    coins: Choices, votes: Votes, data: Any, counts: NDArray[np.int64], k: int, scale: float
) -> list[str | int]:
    """Draw k sorted numbers of the universe 0 .. N - 1.

    A candidate without a vote is named like any other: telling the two apart would say who voted.
    """
    items = np.asarray(data["item"], dtype=np.int64)
    drawn = coins.top_open(counts, int(votes.candidates or 0), k, scale)
    return sorted(int(items[p]) if seen else _absent(items, p) for seen, p in drawn)


def _absent(items: NDArray[np.int64], rank: int) -> int:
    """Return the ``rank``-th number absent from sorted ``items``."""
    # items[i] - i numbers are absent below items[i]; count the items that come before the answer.
    before = int(np.searchsorted(items - np.arange(len(items)), rank, side="right"))
    return rank + before
