"""Hold draws of a pair as outputs, skeletons and cells.

Drawn once, scored in three ways. A search, so it proves nothing: it ranks pairs and learns scores, and
bets are made on other draws.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.claims.curves import Curve
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import numbers
from opendp_sim.audit.outputs.encoding import Raised, outcome
from opendp_sim.audit.statistics.sampling import Rounds, both_sides
from opendp_sim.audit.statistics.score_bets import skeleton, text_of
from opendp_sim.audit.statistics.scores import (
    RAISED,
    Cells,
    Leaning,
    cells_of,
    learned,
    rows_of,
    scored_cells,
    surplus,
    surplus_of_shift,
)

_POINTS = 8
_BONES = 4
"""One skeleton for so many outputs: they say the same after few."""
_REPEATING = 0.8
_PLACES = 16
_BORDERS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995)


@dataclass(frozen=True)
class Bins:
    """Bin numbers that hardly repeat, at quantiles of both sides."""

    borders: tuple[NDArray[np.float64], ...]

    @classmethod
    def of(cls, rows: Sequence[list[float] | None]) -> Bins | None:
        """Return the bins of rows of one length, or None."""
        sizes = {len(row) if row is not None else 0 for row in rows}
        if len(sizes) != 1 or not 0 < max(sizes) <= _PLACES:
            return None
        table = np.nan_to_num(np.array(rows, dtype=float), nan=-1e300)
        return cls(tuple(np.unique(np.quantile(c, _BORDERS, method="nearest")) for c in table.T))

    def cells(self, value: Any) -> Cells:
        """Return the bins of an output's numbers as texts."""
        row = numbers(value)
        if row is None or len(row) != len(self.borders):
            return (repr(value)[:200],)
        bins = (str(bisect_left(b, v)) for b, v in zip(self.borders, row, strict=True))
        return (*bins, *("." if v % 1 else "" for v in row))


@dataclass
class Side:
    """Outputs of one dataset."""

    texts: list[str] = field(default_factory=list)
    bones: list[str] = field(default_factory=list)
    cells: list[Cells] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, out: Any) -> None:
        """Add a release; an exception is one."""
        self.values.append(out)
        self.texts.append(text_of(out))
        self.cells.append(RAISED if isinstance(out, Raised) else cells_of(out))
        if len(self.texts) % _BONES == 0:
            self.bones.append(text_of(skeleton(out)))


@dataclass
class Glance:
    """Draws of both sides of a pair."""

    left: Side = field(default_factory=Side)
    right: Side = field(default_factory=Side)

    def __len__(self) -> int:
        return len(self.left.texts)

    def more(
        self, run: Callable[[Any], Any], pair: Pair, count: int, rounds: Rounds | None = None
    ) -> Glance:
        """Draw so many more of either side."""
        left, right = both_sides(lambda data: [outcome(run, data)], pair, max(count, 0), rounds)
        for side, outputs in ((self.left, left), (self.right, right)):
            for out in outputs:
                side.add(out)
        return self

    def worth(self, curve: Curve) -> float:
        """Return the best event's excess over the claim, in standard errors."""
        return max(self.by_outputs(curve), self.by_cells(curve), self.by_shift(curve))

    @property
    def fresh(self) -> bool:
        """Whether outputs hardly repeat."""
        return len(set(self.left.texts)) > _REPEATING * len(self)

    def by_outputs(self, curve: Curve) -> float:
        """Return what whole outputs tell, as they are and as skeletons."""
        best = 0.0
        for a, b in ((self.left.texts, self.right.texts), (self.left.bones, self.right.bones)):
            if a and b:
                best = max(best, excess(curve, a, b), excess(curve, b, a))
        return best

    def by_cells(self, curve: Curve) -> float:
        """Return what the places of outputs tell together."""
        a, b = self._cells(self.bins())
        if all(len(cells) == 1 for cells in (*a[:3], *b[:3])) and not self.fresh:
            return 0.0
        return max(surplus(curve, a, b), surplus(curve, b, a))

    def by_shift(self, curve: Curve) -> float:
        """Return the excess by shifted numbers of all cells, both ways."""
        sides = self._rows()
        if sides is None:
            return 0.0
        return max(surplus_of_shift(curve, *sides), surplus_of_shift(curve, *sides[::-1]))

    def _rows(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        left = rows_of(self.left.values)
        right = None if left is None else rows_of(self.right.values)
        if left is None or right is None or left.shape != right.shape:
            return None
        return left, right

    def leaning(self) -> Leaning | None:
        """Return the score of numbers that have moved."""
        sides = self._rows()
        return None if sides is None else Leaning.of(*sides)

    def bins(self) -> Bins | None:
        """Return the bins of numbers that hardly repeat, or None."""
        rows = [numbers(v) for v in (*self.left.values, *self.right.values)] if self.fresh else []
        return Bins.of(rows) if rows else None

    def _cells(self, bins: Bins | None) -> tuple[list[Cells], list[Cells]]:
        if bins is None:
            return self.left.cells, self.right.cells
        left, right = ([bins.cells(v) for v in side.values] for side in (self.left, self.right))
        return left, right

    def score(self, run: Callable[[Any], Any]) -> Callable[[Any], list[float]]:
        """Return the run with outputs replaced by cells' learned log-ratios."""
        bins = self.bins()
        weights = learned(*self._cells(bins))
        cells = cells_of if bins is None else bins.cells
        return scored_cells(
            run, weights, lambda out: RAISED if isinstance(out, Raised) else cells(out)
        )

    def table(self, *, bones: bool = False, share: float = 0.25) -> dict[str, float] | None:
        """Return log-ratios of whole outputs; ``None`` when they hardly repeat."""
        a, b = (Counter(s.bones if bones else s.texts) for s in (self.left, self.right))
        both = a.keys() | b.keys()
        if len(both) > share * max(a.total(), 1):
            return None
        return {k: math.log((a[k] + 1) / (b[k] + 1)) for k in both}


def excess(curve: Curve, left: Sequence[str], right: Sequence[str]) -> float:
    """Return by how many standard errors the best event exceeds the claim.

    Events are chosen on one half of the draws and judged on the other, both ways round: the outputs that
    one half speaks for, and all but those that it speaks against, which has what was never seen in it.
    """
    parts = [(left[i::2], right[i::2]) for i in (0, 1)]
    halves = [(Counter(a), Counter(b)) for a, b in parts]
    count = len(left) // 2
    if not count or len(halves[0][0]) > _REPEATING * count:
        return 0.1  # outputs hardly repeat: nothing is known yet
    best, step = 0.0, max(1, len(curve.grid) // _POINTS)
    for epsilon, delta in zip(curve.grid[::step], curve.deltas[::step], strict=True):
        factor = math.exp(min(float(epsilon), 50.0))
        over, variance = [0.0, 0.0], [0.0, 0.0]
        for (a, b), judges in ((halves[0], parts[1]), (halves[1], parts[0])):
            inside = {o for o in a if a[o] > factor * b[o]}
            against = {o for o in a | b if a[o] <= factor * b[o]}
            first = [(x in inside, y in inside) for x, y in zip(*judges, strict=False)]
            second = [(x not in against, y not in against) for x, y in zip(*judges, strict=False)]
            for k, seen in enumerate((first, second)):
                p, q = (sum(column) / len(seen) for column in zip(*seen, strict=True))
                both = sum(x and y for x, y in seen) / len(seen)
                over[k] += p - factor * q - float(delta)
                square = p + factor * factor * q - 2 * factor * both
                variance[k] += (square + 4 / count) / count
        best = max(best, *(x / math.sqrt(v) for x, v in zip(over, variance, strict=True)))
    return best
