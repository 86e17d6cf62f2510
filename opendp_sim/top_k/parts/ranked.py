"""Selected items in their ranks: where a mechanism pays for the order of its draws, and not elsewhere.

Which do, and why: Lemma 1 of ``peel.md``, Lemmas 2 and 3 of ``limited_domain.md``, Lemma 1 of
``gaussian_top_k.md``. A set that passed a test has no ranks that anybody paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opendp_sim.core.errors import ParameterError

__all__ = ["RANKED", "no_ranks", "ranked_items"]

RANKED: dict[str, Any] = {
    "symbol": "-",
    "unit": "none",
    "default": False,
    "hint": "true for `rank` and `item`, and the noisy `count` where it is paid for; false for a list "
    "in the public order.",
}


def ranked_items(
    items: Sequence[str | int], counts: Sequence[int] | None = None
) -> dict[str, list[Any]]:
    """Return items, the first in rank first, as columns ``rank``, ``item`` and perhaps ``count``."""
    table: dict[str, list[Any]] = {"rank": list(range(1, len(items) + 1)), "item": list(items)}
    return table if counts is None else table | {"count": list(counts)}


def no_ranks(key: str, expected: str, hint: str) -> ParameterError:
    """Return the refusal of ranks that a mechanism does not pay for (OS102)."""
    return ParameterError(
        "OS102", f"{key}.ranked", expected=expected, got="true", hint=hint
    )  # fmt: skip
