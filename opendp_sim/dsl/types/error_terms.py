"""State the size of an error in words, beside numbers of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opendp_sim.core.arithmetic.rounding import up_text

RECORDS, VOTES = "records", "votes"
NEGATIVE = (
    "A count, a sum or a mean may be below 0: noise of both signs is added, and the result is not cut "
    "off at 0. Cut off, small numbers would be too large on average, and nobody would be protected "
    "better."
)
"""Why an answer may be negative, in the words of a page and of a terminal."""
BESIDE = (100, 10_000)
"""Numbers of records that an error is told beside: a plan knows none."""


@dataclass(frozen=True)
class Wrong:
    """How wrong an output's answers will be.

    Attributes:
        text: the size of the error, in words.
        size: the same as a number of records or votes; 0 where that is not known.
        noun: which of them.
        more: what the error is of, where a line has room for it.
        of_leads: whether it is how far two sums have to be apart.
        short: the text in one line of a terminal; the text itself where empty.
        value: the number alone, for a headline.
    """

    text: str
    size: float = 0.0
    noun: str = ""
    more: str = ""
    of_leads: bool = False
    short: str = ""
    value: str = "not known"

    @property
    def brief(self) -> str:
        """Return the error in one line."""
        return self.short or self.text

    @property
    def whole(self) -> str:
        """The size beside two numbers that it may be the error of."""
        text = f"{self.text}{self.more}"
        if self.noun != RECORDS or not 0 < self.size < 1e12:
            return text
        first, second = (share_text(self.size / of) for of in BESIDE)
        return (
            f"{text}. Beside 100 {self.noun} that count for an answer this is {first}, beside 10,000 it "
            f"is {second}"
        )


def share_text(share: float) -> str:
    """Return a share as a percentage, or as a multiple."""
    if share >= 1:
        return f"{size(float(f'{share:.2g}'))} times as much"
    return f"{float(f'{100 * share:.2g}'):g}%" if share > 1e-6 else "hardly anything"


def size(value: float) -> str:
    """Return a number to three digits, without an exponent if easy."""
    near = float(f"{value:.3g}")
    return f"{near:,.0f}" if 1000 <= abs(near) < 1e12 else f"{near:.3g}"


def few_digits(value: float) -> str:
    """Return a number to two digits, and from 100 on to three."""
    return size(float(f"{value:.2g}")) if abs(value) < 100 else size(value)


def at_least(value: float) -> str:
    """Return a number that is not below the value, in few digits."""
    return size(float(up_text(value, 2 if abs(value) < 100 else 3)))


def as_predicted(total: float, noise: float, records: int, unit: str = "") -> Wrong:
    """State the predicted whole error, in its unit.

    From public points and a public number of records.
    """
    rows = " rows" if unit == RECORDS else ""
    value = f"±{few_digits(total)}{rows}"
    short = f"2 in 3 within {value}, with {records:,} rows like these points"
    named = f"{size(total)} {unit}".strip()
    told = f"2 of 3 answers within {named} if there are {records:,} records like these points"
    return Wrong(told, more=f", of which noise alone is {size(noise)}", short=short, value=value)


# --------------------------------------------------------------------------------------------------
# What a release states of its own accuracy, in sentences: votes, selections, steps of a fit.

_CLASS = "records of a class"
_LISTED = (
    "an item that has {} votes more than the item with the {next_rank} most votes is listed in 95 of "
    "100 runs"
)
_RARE = (
    "the share of right labels is not stated, as it depends on the data; a class of fewer than about {} "
    "records may hardly ever be predicted, however many labels are right"
)
STATED = (
    ("votes_to_be_listed", "an item is listed in 95 of 100 runs from {} votes on", VOTES),
    ("votes_for_95_percent", _LISTED, VOTES),
    ("gap_for_95_percent", "a set that leads by {} votes passes its test in 95 of 100 runs", VOTES),
    (
        "drop_for_95_percent",
        "of two drops the one larger by {} votes wins in 95 of 100 runs",
        VOTES,
    ),
    ("lead_for_95_percent", _LISTED.replace("next_rank", "next_place"), VOTES),
    ("deviation", "2 of 3 vote counts, which are not released, within {} votes", VOTES),
    (
        "relative_vote_noise",
        "2 of 3 vote counts within {:.0%} of the votes if some {neighbours:.0f} vote",
        "",
    ),
    (
        "noise_of_votes",
        "2 of 3 vote counts within {} votes; the {neighbours:.0f} neighbours have up to one each",
        "",
    ),
    ("vote_noise", "2 of 3 vote counts within {} of at most {voters:.0f} votes", VOTES),
    ("threshold", "a set leading by under {} votes is held back in most runs", VOTES),
    ("records_of_a_rare_class", _RARE, _CLASS),
    (
        "noise_of_a_gradient_in_records",
        "2 of 3 numbers of a step of the fit within {} records",
        RECORDS,
    ),
)
"""What a release states of its own accuracy, the most telling first, and what its number counts."""
_FACTS = ("ranks", "places", "neighbours", "voters")
"""Other facts of a release that such a sentence names."""
_MORE = {
    "threshold": ". How often what is answered is right is not stated, as it depends on how votes agree",
    "records_of_a_rare_class": ". Where classes are far apart smaller ones are found. To see how often "
    "it is right, run the same steps on public records like the data and count, class by class",
    "votes_to_be_listed": ", unless others take all places",
    "votes_for_95_percent": ", unless other items fill the list before it; the item that it is compared "
    "with, and all with fewer votes, are not listed",
    "gap_for_95_percent": ": its last item is so far ahead of the next one",
    "drop_for_95_percent": "; a drop is by how many votes an item is ahead of the next one",
    "noise_of_votes": ": an estimate, for as many neighbours as are aimed at. How much less than one "
    "each of them weighs depends on the data, so no share is stated",
    "relative_vote_noise": ": an estimate; with fewer voters the share is larger",
}
_SHORT = {
    "votes_to_be_listed": (
        "an item with {up} votes or more is listed in 95 of 100 runs",
        "{up} votes",
    ),
    "votes_for_95_percent": (
        "items {up} votes above item no. {ranks} are listed in 95 of 100 runs",
        "{up} votes",
    ),
    "lead_for_95_percent": (
        "items {up} votes above item no. {places} are listed in 95 of 100 runs",
        "{up} votes",
    ),
    "gap_for_95_percent": ("sets {up} votes ahead pass the test in 95 of 100 runs", "{up} votes"),
    "drop_for_95_percent": (
        "of two gaps, one {up} votes larger wins in 95 of 100 runs",
        "{up} votes",
    ),
    "deviation": ("2 in 3 vote counts, not released, within ±{near} votes", "±{near} votes"),
    "relative_vote_noise": (
        "2 in 3 vote counts within ±{share}, when about {neighbours:.0f} rows vote",
        "±{share} of votes",
    ),
    "noise_of_votes": (
        "2 in 3 vote counts within ±{near} votes, of {neighbours:.0f} neighbours",
        "±{near} votes",
    ),
    "vote_noise": (
        "2 in 3 vote counts within ±{near} of at most {voters:.0f} votes",
        "±{near} votes",
    ),
    "threshold": (
        "not known in advance; leads under {near} votes mostly unanswered",
        "{near} votes",
    ),
    "records_of_a_rare_class": (
        "not known in advance; classes under {near} rows seldom predicted",
        "not known",
    ),
    "noise_of_a_gradient_in_records": (
        "2 in 3 parts of a step within ±{near} rows",
        "±{near} rows",
    ),
}
"""The same in a terminal's one line, and its number alone."""


def accuracy_of(expected: Mapping[str, Any]) -> dict[str, float]:
    """Return what a release states of its own accuracy, by name."""
    names = {name for name, _, _ in STATED} | {"order_for_95_percent", "deviation_of_counts"}
    return {name: float(value) for name, value in expected.items() if name in names}


def of_release(expected: Mapping[str, Any]) -> Wrong | None:
    """Return a release's most useful error fact, or None."""
    for name, text, noun in STATED:
        if name in expected:
            value = float(expected[name])
            facts: dict[str, Any] = {key: float(expected[key]) for key in _FACTS if key in expected}
            for of in ("rank", "place"):
                facts[f"next_{of}"] = rank_word(int(facts.get(f"{of}s", 0.0)) + 1)
            number = value if name == "relative_vote_noise" else size(value)
            told = text.format(number, **facts)
            facts |= {of: f"{int(facts.get(of, 0.0)) + 1:,}" for of in ("ranks", "places")}
            facts |= {"up": at_least(value), "near": few_digits(value), "share": f"{value:.0%}"}
            short, alone = (words.format(**facts) for words in _SHORT[name])
            more = _MORE.get(name, "") + _ranked(expected)
            return Wrong(told, value if noun else 0.0, noun, more, short=short, value=alone)
    return None


def _ranked(expected: Mapping[str, Any]) -> str:
    """State a ranking's order and counts."""
    if "order_for_95_percent" not in expected:
        return ""
    order, noise = expected["order_for_95_percent"], expected.get("deviation_of_counts")
    counts = "no counts are released"
    if noise is not None:
        counts = f"2 of 3 counts within {size(float(noise))} votes"
    return (
        f"; of two items the one that has {size(float(order))} votes more comes first in 95 of 100 "
        f"runs; {counts}"
    )


def rank_word(rank: int) -> str:
    """Return a rank as a word."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank:,}{'th' if rank % 100 in (11, 12, 13) else ending}"
