"""Counting votes, broken in one way each: a user who counts twice, order, blocks, other users."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from opendp_sim.core.bridge import build
from opendp_sim.core.claims import Stable
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import take
from opendp_sim.transformations.sketches.counts.vote_counts import VoteCounts
from tests.audit.twins.entries import Control, Twin
from tests.audit.twins.faults import named

WORDS = ("a", "b", "c", "d")
RECORDS = Records((Column("who", "int64", role="privacy_id"), Column("word", "str")))
USER = IdDistance("who")
COUNTS = VoteCounts(item="word", items=WORDS)
BOUNDED = VoteCounts(item="word", items=WORDS, max_items=2)
Tally = Callable[[list[tuple[int, str]]], Any]


def _claim(mechanism: VoteCounts) -> Stable:
    claim = mechanism.bind(RECORDS, USER)
    assert isinstance(claim, Stable)
    return claim


def _with(mechanism: VoteCounts, tally: Tally, norm: str) -> Any:
    """The real transformation, claim and all, with another way to count."""

    def fold(blocks: Any) -> Any:
        rows = [
            (int(who), str(word))
            for block in blocks()
            for who, word in zip(block["who"], block["word"], strict=True)
        ]
        return np.asarray(tally(rows), dtype=np.int64)

    return build(replace(_claim(mechanism), fold=fold), mechanism.key, RECORDS, USER, norm)


def _counted(votes: Any) -> list[int]:
    words = [word for _, word in votes]
    return [words.count(word) for word in WORDS]


def _adjacent(rows: list[tuple[int, str]]) -> list[int]:
    """Repeats are dropped only where they follow each other."""
    return _counted([row for at, row in enumerate(rows) if at == 0 or rows[at - 1] != row])


def _shared(rows: list[tuple[int, str]]) -> list[int]:
    """A vote counts where somebody else has it too."""
    found = _counted(set(rows))
    return [0 if votes < 2 else 10 * votes for votes in found]


def _passes_by_place(rows: list[tuple[int, str]]) -> list[int]:
    """Two passes, each over the rows of one parity, so that a user is counted in both."""
    return (np.array(_counted(set(rows[::2]))) + _counted(set(rows[1::2]))).tolist()


def _own_median(rows: list[tuple[int, str]]) -> list[int]:
    """Items below the mean count are dropped."""
    found = np.array(_counted(set(rows)))
    return np.where(found >= found.mean(), found, 0).tolist()


def _one_more(rows: list[tuple[int, str]]) -> list[int]:
    """Three items of a user are kept where two are claimed."""
    users = {who for who, _ in rows}
    kept = [(who, word) for who in users for word in sorted({w for u, w in rows if u == who})[:3]]
    return _counted(kept)


def _table(*rows: tuple[int, str]) -> dict[str, Any]:
    return {
        "who": np.array([who for who, _ in rows], dtype=np.int64),
        "word": np.array([word for _, word in rows], dtype=object),
    }


class _AsHeld(Records):
    """Records behind no door: functions see the very objects of whoever holds the data."""

    def normal(self, data: Any) -> Any:
        return data

    def check(self, data: Any) -> None:
        """Admit everything, as a text column once did."""


def _first_object(blocks: Any) -> Any:
    """What ``vote_counts`` did before: an item's hash is of the first object met, by its repr."""
    words: dict[Any, int] = {}
    votes = {
        (int(who), words.setdefault(word, len(words)))
        for block in blocks()
        for who, word in zip(block["who"].tolist(), block["word"].tolist(), strict=True)
    }
    met = list(words)

    def rank(who: int, at: int) -> bytes:
        return hashlib.blake2b(f"{who!r} {met[at]!r}".encode(), digest_size=8).digest()

    kept = [
        met[at]
        for user in sorted({who for who, _ in votes})
        for at in sorted((a for who, a in votes if who == user), key=lambda a: rank(user, a))[:1]
    ]
    return np.array([sum(word == item for word in kept) for item in WORDS], dtype=np.int64)


def _first_object_decides() -> Any:
    domain = _AsHeld(RECORDS.columns)
    mechanism = VoteCounts(item="word", items=WORDS, max_items=1)
    claim = replace(_claim(mechanism), fold=_first_object)
    return build(claim, mechanism.key, domain, USER, "l1")


def _open_pairs() -> list[tuple[Any, Any]]:
    """One user with items of their own, and with items of others."""
    alone = _table((1, "a"), (1, "b"))
    many = _table((1, "a"), (1, "b"), (2, "a"), (3, "b"))
    return [(alone, take(alone, [])), (many, take(many, [2, 3]))]


def _open_counts(stated: int) -> Any:
    """Counts of the items that occur, two items a user; the metric states its own number."""
    claim = _claim(VoteCounts(item="word", max_items=2))
    metric = replace(claim.output_metric, touched=stated)
    return build(replace(claim, output_metric=metric), "vote_counts", RECORDS, USER, "linf")


def _held_pairs() -> list[tuple[Any, Any]]:
    """One more user, who comes first and holds an item as another type of text."""
    out = []
    for word in ("a", "b"):
        rows = [(-1, word), *((who, each) for who in range(40) for each in ("a", "b"))]
        data = _table(*rows)
        data["word"][0] = np.str_(word)
        out.append((data, take(data, slice(1, None))))
    return out


def _pairs() -> list[tuple[Any, Any]]:
    """One user more or less, with repeated votes, in between the others."""
    rng, out = np.random.default_rng(5), []
    for _ in range(40):
        size = int(rng.integers(2, 14))
        data = _table(*((int(rng.integers(0, 4)), str(rng.choice(WORDS))) for _ in range(size)))
        out.append((data, take(data, np.flatnonzero(data["who"] != data["who"][0]))))
    return out


def _twin(label: str, tally: Tally, mechanism: VoteCounts = COUNTS, norm: str = "linf") -> Twin:
    return Twin(
        **named(f"vote_counts/{label}"),
        make=lambda: _with(mechanism, tally, norm),
        options={"pairs": _pairs()},
    )


TWINS = [
    _twin("rows_not_users: a user's repeated vote counts again", _counted),
    _twin("neighbouring_repeats: repeats are dropped where they follow each other", _adjacent),
    _twin("passes_by_place: passes split the rows, not the users", _passes_by_place),
    _twin("only_shared_votes: an item of one user is hidden, others are scaled", _shared),
    _twin("below_the_mean: items below the mean count are set to zero", _own_median),
    _twin(
        "one_item_more: three items of a user are kept where two are claimed",
        _one_more,
        BOUNDED,
        "l1",
    ),
    Twin(
        name="vote_counts/fewer_items_stated",
        why="a user keeps two items where a step of the output metric moves one",
        make=lambda: _open_counts(1),
        options={"pairs": _open_pairs()},
    ),
    Twin(
        name="vote_counts/first_object_decides",
        why="equal items of other types have other hashes: the first one met decides for everybody",
        make=_first_object_decides,
        options={"pairs": _held_pairs()},
    ),
]
CONTROLS = [
    Control(
        name="vote_counts/any_object_decides_nothing",
        make=lambda: build(
            _claim(VoteCounts(item="word", items=WORDS, max_items=1)),
            "vote_counts",
            RECORDS,
            USER,
            "l1",
        ),
        options={"pairs": [tuple(map(RECORDS.normal, pair)) for pair in _held_pairs()]},  # as kept
    ),
    Control(
        name="vote_counts/items_that_occur",
        make=lambda: _open_counts(2),
        options={"pairs": _open_pairs()},
    ),
    Control(
        name="vote_counts/sound",
        make=lambda: build(_claim(COUNTS), "vote_counts", RECORDS, USER, "linf"),
        options={"pairs": _pairs()},
    ),
    Control(
        name="vote_counts/sound_imitation",
        make=lambda: _with(COUNTS, lambda rows: _counted(set(rows)), "linf"),
        options={"pairs": _pairs()},
    ),
]
