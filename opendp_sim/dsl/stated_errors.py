"""What a release states of its own accuracy, in sentences: votes, selections, steps of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opendp_sim.dsl.wrong import RECORDS, VOTES, Wrong, size

__all__ = ["STATED", "accuracy_of", "of_release", "rank_word"]

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
    "records_of_a_rare_class": "not stated: data decide; classes under {} may be missed",
    "lead_for_95_percent": "an item {} votes above the {next_place} is listed in 95 of 100 runs",
    "votes_for_95_percent": "an item {} votes above the {next_rank} is listed in 95 of 100 runs",
    "drop_for_95_percent": "a drop larger by {} votes wins 95 in 100",
    "gap_for_95_percent": "a set ahead by {} votes passes 95 in 100",
    "threshold": "not stated: votes decide; most leads under {} are held back",
    "relative_vote_noise": "2 of 3 vote counts within {:.0%} of the votes, if {neighbours:.0f} vote",
    "noise_of_votes": "2 of 3 vote counts within {} votes ({neighbours:.0f} neighbours)",
    "noise_of_a_gradient_in_records": "2 of 3 parts of a step within {} records",
}
"""The same in a terminal's one line."""


def accuracy_of(expected: Mapping[str, Any]) -> dict[str, float]:
    """Return what a release states of its own accuracy, by name."""
    names = {name for name, _, _ in STATED} | {"order_for_95_percent", "deviation_of_counts"}
    return {name: float(value) for name, value in expected.items() if name in names}


def of_release(expected: Mapping[str, Any]) -> Wrong | None:
    """Return the most telling of what a release states of itself, or None where it states nothing."""
    for name, text, noun in STATED:
        if name in expected:
            value = float(expected[name])
            facts: dict[str, Any] = {key: float(expected[key]) for key in _FACTS if key in expected}
            for of in ("rank", "place"):
                facts[f"next_{of}"] = rank_word(int(facts.get(f"{of}s", 0.0)) + 1)
            number = value if name == "relative_vote_noise" else size(value)
            told = text.format(number, **facts)
            short = _SHORT.get(name, "").format(number, **facts)
            more = _MORE.get(name, "") + _ranked(expected)
            return Wrong(told, value if noun else 0.0, noun, more, short=short)
    return None


def _ranked(expected: Mapping[str, Any]) -> str:
    """Say what a ranking tells besides items: their order, and noisy counts where they are paid for."""
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
    """Return a rank as a word: 1st, 2nd, 3rd, 4th."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank:,}{'th' if rank % 100 in (11, 12, 13) else ending}"
