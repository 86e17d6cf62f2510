"""The rule that sets noise and neighbourhood from public numbers alone, and what it predicts."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Rule"]

_SMALL = 15_000
_OF_A_CLASS = 1.3
_COUNT_SHARE = 0.05
_VOTE_SHARE = 0.5
_WORTH = 20
"""Records a planned query from which neighbours beat class means on the sets measured."""


@dataclass(frozen=True)
class Rule:
    """Targets for a budget, an announced number of queries and a public guess of the size.

    Args:
        rho: the budget of a person.
        queries: T, how many queries are planned.
        size: n, a public guess of the number of records.
        classes: number of public labels; 1 when nothing is known about them.
        wanted: the neighbours that a query should find, where someone knows better.
    """

    rho: float
    queries: int
    size: int
    classes: int = 1
    wanted: int | None = None

    @property
    def neighbours(self) -> float:
        """K*: neighbours a query should find; few on large sets, where each is better.

        Little more than a class has: beyond, most neighbours must be of other classes.
        """
        if self.wanted is not None:
            return float(self.wanted)
        factor = min(4.0, 4.0 * _SMALL / self.size)
        most = _OF_A_CLASS * self.size / self.classes
        quiet = factor * math.sqrt(self.queries / self.rho)
        return self.share_of(min(quiet, most)) * self.size

    def share_of(self, neighbours: float) -> float:
        """Return a number of neighbours as a share of the records, at most 0.4."""
        return min(neighbours / self.size, 0.4)

    @property
    def share(self) -> float:
        """p: the share of the records that a query selects."""
        return min(1.0, self.neighbours / self.size)

    @property
    def count_scale(self) -> float:
        """s1: counts take 5 % of the purse of a record of mean activity."""
        return math.sqrt(self.share * self.queries / (2 * _COUNT_SHARE * self.rho))

    def vote_scale(self, weight: float) -> float:
        """s2: votes take half of the purse at mean activity and root mean square weight ``weight``."""
        return weight * math.sqrt(self.queries / (2 * _VOTE_SHARE * self.size * self.rho))

    @property
    def minimum_count(self) -> int:
        """Kmin: what a noisy count is raised to, so that the vote noise never collapses."""
        return round(max(30.0, min(self.count_scale, self.neighbours / 2)))

    @property
    def crowded(self) -> bool:
        """Whether there are too few records a query for neighbours to beat a one-off release."""
        return self.size < _WORTH * self.queries

    @property
    def reason(self) -> str:
        """Say, from public numbers, whether a session is the right release at all."""
        served = f"set by its rule for {self.queries:,} queries of about {self.size:,} records"
        if not self.crowded:
            return f"{served}; sessions do well at this ratio"
        return (
            f"{served}; at fewer than {_WORTH} records a query a one-off release usually serves better: "
            "class means (a kernel sketch with `classify`) or a linear model, or `hybrid_knn`"
        )

    def facts(self, count_scale: float, minimum: int) -> dict[str, float]:
        """Return what the plan shows: all from public numbers."""
        spent = _VOTE_SHARE / self.queries + self.share / (2 * count_scale**2 * self.rho)
        return {
            "neighbours": self.neighbours,
            "count_noise": count_scale,
            "minimum_count": float(minimum),
            # Deviation of a vote over the total of the votes, at K* neighbours.
            "relative_vote_noise": math.sqrt(
                self.queries / (2 * _VOTE_SHARE * self.size * self.rho * self.neighbours)
            ),
            "queries_a_typical_record_serves": 1.0 / spent,
            # The same for the class means of unit vectors, released once with the whole budget.
            "relative_noise_of_class_means": self.classes / (self.size * math.sqrt(2 * self.rho)),
        }
