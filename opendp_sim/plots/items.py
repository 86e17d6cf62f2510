"""The items that a private selection released: bars where counts were released, ranks where not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from opendp_sim.core.errors import DataError
from opendp_sim.core.regular import regular
from opendp_sim.plots.canvas import COLORS, Display, label

__all__ = ["TopDisplay"]

_MOST = 40


class TopDisplay(Display):
    """Selected items in their order.

    Attributes:
        items: their names.
        counts: a released count for each, or None: heights are never invented.
    """

    def __init__(self, items: Sequence[str | int], counts: Sequence[float] | None = None) -> None:
        self.items = [str(item) for item in items][:_MOST]
        self.counts = None if counts is None else [float(count) for count in counts][:_MOST]
        if not self.items or (self.counts is not None and len(self.counts) != len(self.items)):
            raise DataError(
                "OS602", "items", expected="items, and a count for each or none at all",
                got="another number", hint="pass counts only where they were released.",
            )  # fmt: skip

    @classmethod
    def from_output(cls, path: str | Path) -> Self:
        """Read a saved selection (.json): a list of items, or items with counts.

        Raises:
            DataError (OS601, OS602): no such file, or no selection.
        """
        try:
            found = json.loads(regular(path).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise DataError(
                "OS601", str(path), expected="a selection that `apply` saved", got="no such file",
                hint="name an output that ends in .json.",
            ) from None  # fmt: skip
        if isinstance(found, Mapping):
            return cls(list(found), list(found.values()))
        return cls(found if isinstance(found, list) else [])

    def _draw(self, ax: Any) -> None:
        places = list(range(len(self.items)))
        ax.set_yticks(places, [f"{i + 1}. {label(item)}" for i, item in enumerate(self.items)])
        ax.invert_yaxis()
        if self.counts is not None:
            ax.barh(places, self.counts, color=COLORS[0])
            ax.set_xlabel("released count")
            return
        ax.set(xticks=[], xlim=(0, 1), ylim=(len(places) - 0.4, -0.6))
        ax.plot([0.03] * len(places), places, linestyle="none", marker="o", color=COLORS[0])
        ax.set_xlabel("ranks only: no counts were released")
