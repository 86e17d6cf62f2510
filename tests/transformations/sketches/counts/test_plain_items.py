"""Votes are counted by value: which object held an item first, and in what order, decides nothing."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

import opendp_sim.prelude as sim
from opendp_sim.core.errors import ParameterError
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.domains.records import Column, Records
from opendp_sim.transformations.sketches.counts.vote_counts import VoteCounts

RECORDS = Records((Column("who", "int64", role="privacy_id"), Column("word", "str")))
NUMBERS = Records((Column("who", "str", role="privacy_id"), Column("word", "int64")))
USER = IdDistance("who")


class Word(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "another"

    __hash__ = str.__hash__


class Letter(enum.StrEnum):
    A = "a"


def held(cells: list[Any]) -> np.ndarray:
    out = np.empty(len(cells), dtype=object)
    for at, cell in enumerate(cells):
        out[at] = cell
    return out


def votes(first: list[tuple[Any, Any]], users: int = 200) -> dict[str, Any]:
    """Every user votes for a and b; somebody is before them."""
    rows = [*first, *((who, word) for who in range(users) for word in ("a", "b"))]
    return {"who": np.array([who for who, _ in rows]), "word": held([word for _, word in rows])}


def counts(data: dict[str, Any], **settings: Any) -> list[int]:
    made = sim.make_vote_counts(RECORDS, USER, item="word", items=["a", "b"], norm="l1", **settings)
    return [int(cell) for cell in made(data)]


@pytest.mark.parametrize("word", [np.str_("a"), Word("a"), Letter.A, " a", np.array(["a"])[0]])
@pytest.mark.parametrize("settings", [{"max_items": 1}, {"max_items": 1, "passes": 3}, {}])
def test_one_vote_moves_one_count(word: Any, settings: dict[str, Any]) -> None:
    """The map says 1 with ``max_items: 1``; the first object of an item moved 163 of 2,000 votes."""
    without, beside = counts(votes([]), **settings), counts(votes([(-1, word)]), **settings)
    assert np.subtract(beside, without).tolist() == [1, 0]


@pytest.mark.parametrize(
    "word", [np.str_("a"), Word("a"), Letter.A], ids=lambda v: type(v).__name__
)
def test_a_released_item_is_nobodys_own_object(word: Any) -> None:
    found = sim.make_vote_counts(RECORDS, USER, item="word")(votes([(-1, word)]))
    assert [type(item) for item in found["item"].tolist()] == [str, str]
    found = sim.make_vote_counts(NUMBERS, IdDistance("who"), item="word")(
        {"who": held(["p", "q"]), "word": np.array([True, False])}
    )
    assert found["item"].tolist() == [0, 1]


def test_persons_of_either_text_type_are_one_person() -> None:
    data = {"who": held(["p", np.str_("p"), Word("p"), "q"]), "word": np.array([1, 1, 2, 1])}
    found = sim.make_vote_counts(NUMBERS, USER, item="word", max_items=1)(data)
    assert found["votes"].sum() == 2
    bounded = sim.make_bound_contributions(NUMBERS, USER, max_rows=1)(data)
    assert sorted(bounded["who"].tolist()) == ["p", "q"]


def test_what_a_user_keeps_does_not_depend_on_the_order_of_rows() -> None:
    data = votes([(-1, Word("a")), (-1, np.str_("b"))])
    turned = {name: column[::-1] for name, column in data.items()}
    assert counts(data, max_items=1) == counts(turned, max_items=1)


@pytest.mark.parametrize("items", [[" a", "b"], ["a", ""], ["a", "a "]])
def test_a_catalogue_holds_canonical_items(items: list[str]) -> None:
    with pytest.raises(ParameterError, match="OS102"):
        VoteCounts(item="word", items=items).bind(RECORDS, USER)


@pytest.mark.parametrize("cell", [None, True, b"a", np.nan, ["a"]], ids=repr)
@pytest.mark.parametrize("settings", [{"max_items": 1}, {}])
def test_what_is_no_text_is_refused_wherever_it_stands(
    cell: object, settings: dict[str, Any]
) -> None:
    """It is no member: refused in any order, by any row; never counted as its namesake."""
    made = sim.make_vote_counts(RECORDS, USER, item="word", **settings)
    for words in ([cell, "a"], ["a", cell]):
        with pytest.raises(Exception, match="OS603"):
            made({"who": np.array([1, 2]), "word": held(words)})
