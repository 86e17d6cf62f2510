"""State the size of an error in words, beside numbers of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opendp_sim.core.arithmetic.rounding import up_text

RECORDS = "records"
NEGATIVE = (
    "A count, a sum or a mean may be below 0: noise of both signs is added, and the result is not cut "
    "off at 0. Cut off, small numbers would be too large on average, and nobody would be protected "
    "better."
)
"""Why an answer may be negative, in the words of a page and of a terminal."""
WITHIN = "95%"
"""How often an answer is within the error that a line states, on every first screen."""
WIDE = 2.12
"""Deviations within which that share of an error is: 1.96 of a normal one, 2.12 of a Laplace one."""
BESIDE = (100, 10_000)
"""Numbers of records that an error is told beside: a plan knows none."""


@dataclass(frozen=True)
class Wrong:
    """How wrong an output's answers will be.

    Attributes:
        line: the size of the error, in one line of a terminal.
        more: what follows it: its parts, and what they depend on.
        value: the number alone, for a headline.
        size: of a lead, the number of rows that is safe; else 0.
    """

    line: str
    more: str = ""
    value: str = "not known"
    size: float = 0.0

    @property
    def whole(self) -> str:
        """The line and all that follows it."""
        return f"{self.line}{self.more}"


def size(value: float) -> str:
    """Return a number to three digits, without an exponent if easy."""
    near = float(f"{value:.3g}")
    return f"{near:,.0f}" if 1000 <= abs(near) < 1e12 else f"{near:.3g}"


def few_digits(value: float) -> str:
    """Return a number to two digits, and from 100 on to three."""
    return size(float(f"{value:.2g}")) if abs(value) < 100 else size(value)


def wide(deviation: float) -> str:
    """Return an error that 95 answers of 100 are within."""
    return few_digits(WIDE * deviation)


def at_least(value: float) -> str:
    """Return a number that is not below the value, in few digits."""
    return size(float(up_text(value, 2 if abs(value) < 100 else 3)))


def as_predicted(total: float, noise: float, records: int, unit: str = "") -> Wrong:
    """State the whole error predicted from public points, in its unit."""
    value = f"±{wide(total)}{' rows' if unit == RECORDS else ''}"
    line = f"{WITHIN} within {value}, with {records:,} rows like these points"
    counted = "" if unit in ("", RECORDS) else f", in {unit}"
    return Wrong(line, f"{counted}; noise alone is ±{wide(noise)}", value)


# --------------------------------------------------------------------------------------------------
# What a release states of its own accuracy, in sentences: votes, selections, steps of a fit.

_VOTES = "{up} votes"
_NEAR = "±{wide} votes"
STATED = {
    "votes_to_be_listed": (
        "an item with {up} votes or more is listed in 95% of runs",
        _VOTES,
        ", unless others take all places",
    ),
    "votes_for_95_percent": (
        "items {up} votes above no. {ranks} are listed in 95% of runs",
        _VOTES,
        (
            ", unless other items fill the list before them. Why so far down: which items the data holds "
            "is private, so a name is given only of the first ones, and only if it is ahead of all "
            "behind them by more than noise explains; a missing item counts as one with 0 votes"
        ),
    ),
    "gap_for_95_percent": (
        "sets {up} votes ahead pass the test in 95% of runs",
        _VOTES,
        ": their last item is so far ahead of the next one",
    ),
    "drop_for_95_percent": (
        "of two gaps, one {up} votes larger wins in 95% of runs",
        _VOTES,
        "; a gap is by how many votes an item is ahead of the next one",
    ),
    "lead_for_95_percent": (
        "items {up} votes above no. {places} are listed in 95% of runs",
        _VOTES,
        "",
    ),
    "deviation": ("95% of vote counts, not released, within ±{wide} votes", _NEAR, ""),
    "relative_vote_noise": (
        "95% of vote counts within ±{share}, when about {neighbours:.0f} rows vote",
        "±{share} of votes",
        ": an estimate; with fewer voters the share is larger",
    ),
    "noise_of_votes": (
        "95% of vote counts within ±{wide} votes, of {neighbours:.0f} neighbours",
        _NEAR,
        (
            ": an estimate, for as many neighbours as are aimed at. How much less than one each of them "
            "weighs depends on the data, so no share is stated"
        ),
    ),
    "vote_noise": ("95% of vote counts within ±{wide} of at most {voters:.0f} votes", _NEAR, ""),
    "threshold": (
        "not known in advance; leads under {near} votes mostly unanswered",
        "{near} votes",
        ". How often what is answered is right depends on how votes agree",
    ),
    "records_of_a_rare_class": (
        "not known in advance; classes under {near} rows seldom predicted",
        "not known",
        (
            ". Where classes are far apart smaller ones are found. To see how often it is right, run the "
            "same steps on public rows like the data and count, class by class"
        ),
    ),
    "noise_of_a_residual_sum_in_records": (
        "not known in advance; sums behind the fit: ±{wide} rows' worth",
        "not known",
        (
            ", by noise, in each step; of the largest residual that counts. How far the line is off "
            "depends on the true slopes, which nothing released bounds"
        ),
    ),
    "noise_of_a_gradient_in_records": (
        "95% of parts of a step within ±{wide} rows",
        "±{wide} rows",
        "",
    ),
}
"""What a release states of its own accuracy: line, value and more, the most telling first."""
_FACTS = ("neighbours", "voters")
"""Other facts of a release that such a sentence names."""


def accuracy_of(expected: Mapping[str, Any]) -> dict[str, float]:
    """Return what a release states of its own accuracy, by name."""
    names = {*STATED, "order_for_95_percent", "deviation_of_counts"}
    return {name: float(value) for name, value in expected.items() if name in names}


def of_release(expected: Mapping[str, Any]) -> Wrong | None:
    """Return a release's most useful error fact, or None."""
    for name, (line, number, more) in STATED.items():
        if name in expected:
            value = float(expected[name])
            facts: dict[str, Any] = {key: float(expected[key]) for key in _FACTS if key in expected}
            facts |= {of: f"{int(expected.get(of, 0)) + 1:,}" for of in ("ranks", "places")}
            facts |= {"up": at_least(value), "near": few_digits(value)}
            facts |= {"wide": wide(value), "share": f"{WIDE * value:.0%}"}
            told = f"{more}{_ranked(expected)}"
            return Wrong(line.format(**facts), told, number.format(**facts))
    return None


def _ranked(expected: Mapping[str, Any]) -> str:
    """State a ranking's order and counts."""
    if "order_for_95_percent" not in expected:
        return ""
    order, noise = expected["order_for_95_percent"], expected.get("deviation_of_counts")
    counts = "no counts are released"
    if noise is not None:
        counts = f"{WITHIN} of counts within ±{wide(float(noise))} votes"
    return (
        f"; of two items the one that has {size(float(order))} votes more comes first in "
        f"{WITHIN} of runs; {counts}"
    )


def rank_word(rank: int) -> str:
    """Return a rank as a word."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank:,}{'th' if rank % 100 in (11, 12, 13) else ending}"
