"""Draw a ledger's spending beside its limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.plots.canvas import COLORS, Display, label


class BudgetDisplay(Display):
    """What a dataset has spent, entry by entry.

    Attributes:
        entries: the number of each entry that changed the total, from 0.
        names: what each was.
        spent: the share of the limit that was spent after it.
        refused: numbers of entries that were refusals.
        limit: the limit in words.
    """

    def __init__(
        self,
        entries: Sequence[int],
        names: Sequence[str],
        spent: Sequence[float],
        refused: Sequence[int],
        limit: str,
    ) -> None:
        self.entries, self.names, self.spent = list(entries), list(names), list(spent)
        self.refused, self.limit = list(refused), limit

    @classmethod
    def from_ledger(cls, ledger: Ledger | str | Path) -> Self:
        """Read a ledger, by OpenDP's composition after every entry.

        Raises:
            BudgetError (OS403): no readable ledger.
        """
        if isinstance(ledger, Ledger):
            return cls._of(ledger)
        with Ledger.open(ledger) as opened:
            return cls._of(opened)

    @classmethod
    def _of(cls, ledger: Ledger) -> Self:
        entries, names, spent = [0], ["opened"], [0.0]
        for entry in ledger.entries:
            share = max(ledger.total(upto=entry.seq).share, 0.0)
            if share != spent[-1]:
                entries.append(entry.seq)
                names.append(str(entry.body.get("name") or entry.kind))
                spent.append(share)
        refused = [entry.seq for entry in ledger.entries if entry.kind in ("refusal", "void")]
        return cls(entries, names, spent, refused, ledger.total().limit_text)

    def _draw(self, ax: Any) -> None:
        last = max([*self.entries, *self.refused, 1]) + 0.5
        ax.step(
            [*self.entries, last],
            [*(100 * s for s in self.spent), 100 * self.spent[-1]],
            where="post",
            color=COLORS[0],
            label="spent",
        )
        ax.axhline(100, color=COLORS[1], linestyle="--", label=f"limit: {label(self.limit)}")
        for entry, name, share in list(zip(self.entries, self.names, self.spent, strict=True))[
            1:13
        ]:
            ax.annotate(
                label(name[:24]),
                (entry, 100 * share),
                textcoords="offset points",
                xytext=(3, 4),
                fontsize=8,
            )
        if self.refused:
            ax.plot(
                self.refused,
                [0] * len(self.refused),
                linestyle="none",
                marker="x",
                color="black",
                label="refused",
                clip_on=False,
            )
        ax.set(
            xlim=(0, last),
            ylim=(0, max(115.0, 110 * self.spent[-1])),
            xlabel="entry of the ledger",
            ylabel="spent, % of the limit",
        )
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.legend(frameon=False, fontsize=8, loc="lower right")
