"""Calibrate noise and neighbourhood from public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from opendp_sim.core.sample_size import too_few

_SMALL = 15_000
_OF_A_CLASS = 1.3
_ENOUGH, _OF_A_CLASS_AT_LEAST = 120, 0.1
"""Neighbours that many or that much of a class are looked for at least: a threshold for fewer is luck."""
_COUNT_SHARE = 0.05
_VOTE_SHARE = 0.5
_ACTIVE = 2.0
"""Queries that the rule budgets a record for, at least: to be near to one must not take the purse."""
_FINE, _COARSE = 1 / 3, 1.0
"""Neighbourhoods, in classes, up to which neighbours (a hybrid) beat one-off releases, as measured."""


@dataclass(frozen=True)
class Rule:
    """Set targets for a budget, queries and a guessed size.

    All three are public.

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
        """Return K*, the neighbours a query should find.

        Few on large sets, where each is better. Little more than a class has: beyond, most neighbours
        must be of other classes.
        """
        if self.wanted is not None:
            return float(self.wanted)
        most = _OF_A_CLASS * self.size / self.classes
        least = min(_ENOUGH, _OF_A_CLASS_AT_LEAST * self.size / self.classes)
        return self.share_of(min(max(self._quiet, least), most)) * self.size

    @property
    def _quiet(self) -> float:
        """As many neighbours as noise asks for, whatever a class has."""
        factor = min(4.0, 4.0 * _SMALL / self.size)
        return factor * math.sqrt(self.queries / self.rho)

    @property
    def coarseness(self) -> float:
        """The neighbourhood that noise asks for, in classes of mean size.

        Towards 1 and beyond, neighbours can tell no more than the mean of a class does.
        """
        return (self.wanted or self._quiet) * self.classes / self.size

    def share_of(self, neighbours: float) -> float:
        """Return neighbours as a share of the records, at most 0.4."""
        return min(neighbours / self.size, 0.4)

    @property
    def share(self) -> float:
        """Return p, the share of the records that a query selects."""
        return min(1.0, self.neighbours / self.size)

    @property
    def activity(self) -> float:
        """Return the queries near a mean record, at least a few."""
        return max(self.share * self.queries, _ACTIVE)

    @property
    def count_scale(self) -> float:
        """Return s1, for counts at 5 % of a mean record's purse."""
        return math.sqrt(self.activity / (2 * _COUNT_SHARE * self.rho))

    def vote_scale(self, weight: float) -> float:
        """Return s2, at which votes of mean activity take half the budget.

        Their root mean square weight is ``weight``.
        """
        found = self.share * self.size
        return weight * math.sqrt(self.activity / (2 * _VOTE_SHARE * found * self.rho))

    @property
    def minimum_count(self) -> int:
        """Return Kmin, below which noisy counts are raised."""
        return round(max(30.0, min(self.count_scale, self.neighbours / 2)))

    @property
    def crowded(self) -> bool:
        """Whether a one-off release usually beats neighbours."""
        return self.coarseness > _FINE

    @property
    def overcrowded(self) -> bool:
        """Whether a one-off release usually beats a hybrid, too."""
        return self.coarseness > _COARSE

    def reason(self, facts: Mapping[str, float]) -> str:
        """Return whether and why a session suits, from public numbers."""
        served = (
            f"set by its rule for {self.queries:,} queries of about {self.size:,} records; "
            f"{lasts(facts)}"
        )
        if not self.crowded:
            return f"{served}; sessions do well with neighbourhoods this much smaller than a class"
        other = "" if self.overcrowded or too_few(self.size, self.rho) else ", or `hybrid_knn`"
        return f"{served}; {self.instead}{other}"

    @property
    def instead(self) -> str:
        """Say what to release instead of a session, if anything."""
        few = too_few(self.size, self.rho)
        if few:
            return f"noise asks for neighbourhoods of {self.coarseness:.2g} classes; {few}"
        return (
            f"noise asks for neighbourhoods of {self.coarseness:.2g} classes, and a one-off release "
            "usually serves better: `linear_model`, or class means (`moments_sketch`)"
        )

    def facts(self, count: float, vote: float | None, minimum: int) -> dict[str, float]:
        """Return the plan's facts, all from public numbers.

        ``count`` and ``vote`` (per root of the count, in kernel values) are noise scales; None when the
        rule sets ``vote`` from a typical neighbour's weight. ``minimum``: the least count that vote
        noise is scaled to.
        """
        neighbours = self.neighbours
        # Where somebody else set the scale, the heaviest neighbour counts as typical: of the total of
        # the votes, which are lighter, the noise is then a larger share than a plan can know.
        stated, vote = vote is not None, self.vote_scale(1.0) if vote is None else vote
        noise = vote * math.sqrt(max(neighbours, minimum))
        counted, voted = 0.5 / count / count, 0.5 / max(vote, 1e-99) ** 2
        near, few = counted + voted / max(neighbours, minimum), counted + voted / minimum
        return {
            "neighbours": neighbours,
            "count_noise": count,
            "minimum_count": float(minimum),
            # Deviation of a vote, or over the total of the votes, at K* neighbours.
            **(
                {"noise_of_votes": noise} if stated else {"relative_vote_noise": noise / neighbours}
            ),
            "queries_a_typical_record_serves": self.rho / (near * self.share),
            "queries_a_record_near_to_all_serves": self.rho / few,
            # The same for the class means of unit vectors, released once with the whole budget.
            "relative_noise_of_class_means": self.classes / (self.size * math.sqrt(2 * self.rho)),
        }


def lasts(facts: Mapping[str, float]) -> str:
    """Say how many queries a record serves, and what that assumes."""
    spread = facts["queries_a_typical_record_serves"]
    near = facts["queries_a_record_near_to_all_serves"]
    return (
        f"a record serves {_about(spread)} queries if each finds {facts['neighbours']:,.0f} and all are "
        f"found alike, but {_about(near)} if it is near to all of them and few others are (the nearest: "
        "half of that); ask about different things"
    )


def _about(number: float) -> str:
    return f"about {number:,.0f}" if number >= 1.0 else "less than one of the"
