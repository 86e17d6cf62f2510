"""Counting distinct users per item, against the plain definition."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, strategies as st

from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.errors import DataError, ParameterError, SpaceError
from opendp_sim.domains.counts import USERS, OpenCounts
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.transformations.sketches.counts.vote_counts import VoteCounts
from tests.cases.votes import RECORDS, WORDS, votes

BY_USER = IdDistance("who")
NUMBERS = Records((Column("word", "int64"),))
ROWS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from((*WORDS, "z", "é", ""))), max_size=30)


def plainly(rows):
    voters = defaultdict(set)
    for who, word in rows:
        voters[word].add(who)
    return {word: len(users) for word, users in voters.items()}


@given(ROWS)
def test_counts_are_the_definition(rows):
    claim = VoteCounts(item="word").bind(RECORDS, BY_USER)
    found = whole_function(claim)(votes(rows))
    claim.output.check(found)
    expected = plainly(rows)
    assert found["item"].tolist() == sorted(expected)
    assert found["votes"].tolist() == [expected[word] for word in sorted(expected)]
    known = whole_function(VoteCounts(item="word", items=WORDS).bind(RECORDS, BY_USER))
    assert known(votes(rows)).tolist() == [expected.get(word, 0) for word in WORDS]


@given(ROWS, st.integers(1, 4), st.sampled_from([None, 1, 2]), st.randoms(use_true_random=False))
def test_blocks_order_and_passes_do_not_matter(rows, passes, most, shuffle):
    claim = VoteCounts(item="word", max_items=most, passes=passes).bind(RECORDS, BY_USER)
    whole = whole_function(VoteCounts(item="word", max_items=most).bind(RECORDS, BY_USER))
    expected = whole(votes(rows))
    shuffle.shuffle(rows)
    cut = len(rows) // 3
    found = claim.fold(lambda: [votes(rows[:cut]), votes(rows[cut:]), votes([])])
    assert found["item"].tolist() == expected["item"].tolist()
    assert found["votes"].tolist() == expected["votes"].tolist()


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(2, 4), st.integers(1, 9))
def test_passes_do_not_matter_where_every_row_is_a_user(items, passes, cut):
    """A row votes in one pass, whatever the number of rows: it must not be numbered anew."""
    claim = VoteCounts(item="word", passes=passes).bind(NUMBERS, Symmetric())
    table = np.array(items, dtype=np.int64)
    found = claim.fold(lambda: [{"word": table[:cut]}, {"word": table[cut:]}])
    expected = np.bincount(table, minlength=6)
    assert found["item"].tolist() == np.flatnonzero(expected).tolist()
    assert found["votes"].tolist() == expected[expected > 0].tolist()


@given(ROWS, st.sampled_from([None, 1, 2]))
def test_a_user_moves_every_count_by_at_most_one_and_at_most_so_many(rows, most):
    claim = VoteCounts(item="word", items=WORDS, max_items=most).bind(RECORDS, BY_USER)
    count = whole_function(claim)
    full = count(votes(rows))
    for who in range(6):
        moved = full - count(votes([row for row in rows if row[0] != who]))
        assert (moved >= 0).all()
        assert moved.max(initial=0) <= 1
        assert moved.sum() <= (most or len(WORDS))
        assert moved.sum() <= claim.sensitivity.l1


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.integers(2, 5), st.integers(1, 4))
def test_passes_without_a_user_count_every_row_once(words, passes, size):
    records = Records((Column("word", "str"),))
    claim = VoteCounts(item="word", passes=passes).bind(records, Symmetric())

    def count(kept):
        data = np.array(kept, dtype=object)
        blocks = [{"word": data[i : i + size]} for i in range(0, len(data), size)]
        found = claim.fold(lambda: blocks)
        return dict(zip(found["item"].tolist(), found["votes"].tolist(), strict=True))

    assert count(words) == {word: words.count(word) for word in set(words)}
    for row in range(len(words)):
        fewer = count(words[:row] + words[row + 1 :])
        assert {
            w: n - fewer.get(w, 0) for w, n in count(words).items() if n != fewer.get(w, 0)
        } == {words[row]: 1}


def test_the_bound_is_attained_and_spread_over_items():
    count = whole_function(VoteCounts(item="word", items=WORDS, max_items=2).bind(RECORDS, BY_USER))
    assert count(votes([(0, word) for word in WORDS])).sum() == 2
    crowd = count(votes([(who, word) for who in range(400) for word in WORDS]))
    assert crowd.sum() == 800
    assert crowd.min() > 140


def test_a_universe_stores_only_what_occurs():
    records = Records((Column("who", "int64"), Column("word", "int64")))
    claim = VoteCounts(item="word", universe=2**40).bind(records, BY_USER)
    data = {"who": np.array([1, 1, 2, 3]), "word": np.array([7, 7, 2**39, 2**40])}
    found = whole_function(claim)(data)
    assert found["item"].tolist() == [7, 2**39]
    assert found["votes"].tolist() == [1, 1]
    assert claim.output_metric == USERS


def test_empty_data():
    claim = VoteCounts(item="word").bind(RECORDS, BY_USER)
    found = whole_function(claim)(votes([]))
    claim.output.check(found)
    assert found["item"].size == found["votes"].size == 0


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"item": [1, 2], "votes": [1]}, "OS602"),
        ({"item": [1, 2], "votes": [1.5, 2.0]}, "OS602"),
        ({"item": [1, 2], "votes": [1, -2]}, "OS605"),
        ({"item": [1, 2], "votes": [0, 2]}, "OS605"),
        ({"item": [2, 1], "votes": [1, 2]}, "OS605"),
        ({"item": [1, 1], "votes": [1, 2]}, "OS605"),
    ],
)
def test_bad_counts_are_refused(bad, code):
    with pytest.raises(DataError, match=code):
        OpenCounts(text=False).check(bad)


def test_bad_known_counts_are_refused():
    domain = VoteCounts(item="word", items=WORDS).bind(RECORDS, BY_USER).output
    for bad, code in (([1, 2, -1, 0], "OS605"), ([1.5, 2, 3, 4], "OS602"), ([1, 2], "OS602")):
        with pytest.raises(DataError, match=code):
            domain.check(np.array(bad))


@pytest.mark.parametrize(
    ("params", "metric", "error"),
    [
        ({"item": "word", "items": ("a", "a")}, BY_USER, "OS102"),
        ({"item": "word", "items": (1, 2)}, BY_USER, "OS102"),
        ({"item": "word", "universe": 10}, BY_USER, "OS102"),
        ({"item": "word", "max_items": 2}, Symmetric(), "OS102"),
        ({"item": "words"}, BY_USER, "OS204"),
        ({"item": "word", "user": "word"}, BY_USER, "OS204"),
    ],
)
def test_what_does_not_go_together_is_refused(params, metric, error):
    with pytest.raises((ParameterError, SpaceError), match=error):
        VoteCounts(**params).bind(RECORDS, metric)


def test_items_of_a_category_are_among_its_keys() -> None:
    """They were ignored, and the catalogue became open, of the numbers of the keys."""
    kinds = Records((Column("kind", "category", keys=("a", "b", 7)), RECORDS.columns[0]))
    labels = {"kind": np.array([0, 1, 1, 2, 0])}
    for items, counts in ((None, [2, 2, 1]), ((7, "a"), [1, 2]), (("b", "a"), [2, 2])):
        claim = VoteCounts(item="kind", items=items).bind(kinds, Symmetric())
        assert claim.capabilities["item_counts"].items == (items or ("a", "b", 7))
        assert whole_function(claim)(labels).tolist() == counts
    for wrong in (("a", "z"), ("a", "a")):
        with pytest.raises(ParameterError) as refused:
            VoteCounts(item="kind", items=wrong).bind(kinds, Symmetric())
        assert refused.value.code == "OS102"
