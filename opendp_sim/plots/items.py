"""Draw the items of a private selection, with released counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from opendp_sim.accounting.release.table import Table
from opendp_sim.core.errors import DataError
from opendp_sim.core.system.file_kinds import kind_of_file
from opendp_sim.core.system.regular_files import regular
from opendp_sim.plots.canvas import COLORS, Display, label

_MOST = 40


class TopDisplay(Display):
    """Draw selected items, ordered publicly or ranked.

    Attributes:
        items: their names.
        counts: a released count for each, or None: heights are never invented.
        ranked: whether the order is a released one; the public order is not, and is not numbered.
    """

    def __init__(
        self,
        items: Sequence[str | int],
        counts: Sequence[float] | None = None,
        *,
        ranked: bool = False,
    ) -> None:
        self.ranked = ranked or counts is not None
        self.items = [str(item) for item in items][:_MOST]
        self.counts = None if counts is None else [float(count) for count in counts][:_MOST]
        if not self.items or (self.counts is not None and len(self.counts) != len(self.items)):
            raise DataError(
                "OS602", "items", expected="items, and a count for each or none at all",
                got="another number", hint="pass counts only where they were released.",
            )  # fmt: skip

    @classmethod
    def of(cls, found: Any) -> Self:
        """Take a selection's list, ranked columns, items with counts, or table."""
        if isinstance(found, Table):
            counts = found["count"].tolist() if "count" in found.columns else None
            return cls(found["item"].tolist(), counts, ranked="rank" in found.columns)
        if isinstance(found, Mapping) and "item" in found and "rank" in found:
            return cls(found["item"], found.get("count"), ranked=True)
        if isinstance(found, Mapping):
            return cls(list(found), list(found.values()))
        return cls(found if isinstance(found, list) else [])

    @classmethod
    def from_output(cls, path: str | Path) -> Self:
        """Read a saved selection (.json), as ``of`` takes it.

        Raises:
            DataError (OS601, OS602): no such file, or no selection.
        """
        try:
            return cls.of(json.loads(regular(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, DataError):
            found = kind_of_file(path)
            other = found.then and found.name != "json"
            raise DataError(
                "OS601", str(path), expected="a selection of items that `apply` saved",
                got=f"{found.said} without items" if found.name == "json" else found.said,
                hint=f"name an output that ends in .json{f'; {found.then}' if other else ''}.",
            ) from None  # fmt: skip

    def _draw(self, ax: Any) -> None:
        places = list(range(len(self.items)))
        rank = "{}. " if self.ranked else ""
        ax.set_yticks(places, [rank.format(i + 1) + label(x) for i, x in enumerate(self.items)])
        ax.invert_yaxis()
        if self.counts is not None:
            ax.barh(places, self.counts, color=COLORS[0])
            ax.set_xlabel("released count")
            return
        ax.set(xticks=[], xlim=(0, 1), ylim=(len(places) - 0.4, -0.6))
        ax.plot([0.03] * len(places), places, linestyle="none", marker="o", color=COLORS[0])
        ax.set_xlabel(
            "ranks only: no counts were released"
            if self.ranked
            else "a set: neither ranks nor counts were released"
        )
