"""Rank selected items where a mechanism pays for their order.

Which do, and why: Lemma 1 of ``peel.md``, Lemmas 2 and 3 of ``limited_domain.md``, Lemma 1 of
``gaussian_top_k.md``. A set that passed a test has no ranks that anybody paid for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from opendp_sim.core.errors import ParameterError
from opendp_sim.core.system.lazy_import import special

_LATE = 0.05
"""In this share of runs at most, the item that is ahead loses: 95% of runs are stated."""

RANKED: dict[str, Any] = {
    "symbol": "-",
    "unit": "none",
    "default": False,
    "hint": "true for `rank` and `item`, from `gaussian_top_k` and `noise_threshold` (also where `top_k` "
    "picks them) the noisy `count` too, which other draws do not pay for; false for a list in the "
    "public order.",
}


def ranked_items(
    items: Sequence[str | int], counts: Sequence[int] | None = None
) -> dict[str, list[Any]]:
    """Return items in rank order as columns ``rank``, ``item`` and ``count``."""
    table: dict[str, list[Any]] = {"rank": list(range(1, len(items) + 1)), "item": list(items)}
    return table if counts is None else table | {"count": list(counts)}


def leads_of_draws(scale: float, k: int, candidates: int, *, ranked: bool) -> dict[str, float]:
    """Return the leads that settle draws by ``exp(votes / scale)`` (``peel.md``, Lemma 5)."""
    others = candidates - k
    told = {"lead_for_95_percent": scale * math.log(others / _LATE - 1.0), "places": float(k)}
    return told | (order_of_draws(scale) if ranked else {})


def order_of_draws(scale: float) -> dict[str, float]:
    """Return the lead that decides two items' order (Lemma 5)."""
    return {"order_for_95_percent": scale * math.log(1.0 / _LATE - 1.0)}


def leads_of_noise(scale: float, k: int, candidates: int, *, ranked: bool) -> dict[str, float]:
    """Return the leads that settle Gaussian counts (Lemma 2)."""
    apart = math.sqrt(2.0) * scale
    told = {
        "lead_for_95_percent": 1.0 - apart * float(special.ndtri(_LATE / (candidates - k))),
        "places": float(k),
    }
    order = {
        "order_for_95_percent": 1.0 - apart * float(special.ndtri(_LATE)),
        "deviation_of_counts": scale,
    }
    return told | (order if ranked else {})


def no_ranks(key: str, expected: str, hint: str) -> ParameterError:
    """Refuse ranks that a mechanism does not pay for (OS102)."""
    return ParameterError(
        "OS102", f"{key}.ranked", expected=expected, got="true", hint=hint
    )  # fmt: skip
