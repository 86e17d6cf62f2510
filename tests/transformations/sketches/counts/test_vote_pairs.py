"""Votes by sorted pairs are those that a dictionary of sets counts, in whatever blocks they come."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from opendp_sim.core.system.executor import Alone
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.transformations.sketches.counts._impl import vote_table
from opendp_sim.transformations.sketches.counts.vote_counts import Counting, VoteCounts, codes_of

KEYS = ("b", 7, "a", 3)
RANGES = {
    "small": (-9, 9),
    "packed": (-(2**30), 2**30),
    "wide": (-(2**62), 2**62),
    "all": (-(2**63) + 1, 2**63 - 1),
}


def hash_of(value: str | int, seed: int) -> int:
    raw = b"s" + value.encode() if isinstance(value, str) else b"i" + str(value).encode()
    digest = hashlib.blake2b(raw, digest_size=8, salt=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")


def mixed(left: int, right: int) -> int:
    word = (left + right * 0x9E3779B97F4A7C15) % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ (word >> shift)) * factor % 2**64
    return word ^ (word >> 31)


def oracle(
    rows: list[tuple[Any, Any]], most: int | None, seed: int, inside: Any, *, by_user: bool
) -> dict[Any, int]:
    """Count with Python's own sets, one user after another."""
    votes: dict[Any, int] = {}
    if not by_user:
        for _, item in rows:
            if inside(item):
                votes[item] = votes.get(item, 0) + 1
        return votes
    of: dict[Any, set[Any]] = {}
    for user, item in rows:
        if inside(item):
            of.setdefault(user, set()).add(item)
    for user, items in of.items():
        rank = sorted(
            items, key=lambda i: (mixed(hash_of(user, seed), hash_of(i, seed)), type(i).__name__, i)
        )
        for item in rank[:most]:
            votes[item] = votes.get(item, 0) + 1
    return votes


def column_of(values: list[Any], dtype: str) -> np.ndarray:
    return np.array(values, dtype=object if dtype == "str" else np.int64)


@pytest.mark.few(6)
@pytest.mark.parametrize("by_user", [True, False])
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("most", [None, 1, 2])
@pytest.mark.parametrize("users", ["int64", "str"])
@pytest.mark.parametrize("items", ["int64", "str", "universe", "listed", "category"])
def test_counts_are_those_of_sets(
    items: str, users: str, most: int | None, passes: int, by_user: bool, monkeypatch: Any
) -> None:
    if most is not None and not by_user:
        return
    monkeypatch.setattr(vote_table, "_SLACK", 16)
    g = np.random.default_rng([most or 0, passes, by_user])
    for low, high in RANGES.values():
        who: list[Any] = g.integers(low, high, 40).tolist()
        what: list[Any] = g.integers(low, high, 12).tolist()
        who = [who[at] for at in g.integers(0, 40, 300)]
        what = [what[at] for at in g.integers(0, 12, 300)]
        who = [f"u{w}" for w in who] if users == "str" else who
        kind, settings, inside = "int64", {}, lambda _: True
        if items == "str":
            kind, what = "str", [f"é{w}" for w in what]
        elif items == "universe":
            settings, inside = {"universe": 2**20}, lambda i: 0 <= i < 2**20
        elif items == "listed":
            listed = tuple(dict.fromkeys([*what[:4], 5, -5]))
            settings, inside = {"items": listed}, lambda i, listed=listed: i in listed
        elif items == "category":
            kind, what = "category", [int(w) % 4 for w in what]
        keys = KEYS if kind == "category" else ()
        records = Records((Column("who", users), Column("what", kind, keys=keys)))
        one = VoteCounts(
            item="what",
            user="who" if by_user else None,
            max_items=most,
            seed=3,
            passes=passes,
            **settings,
        )
        claim = one.bind(records, IdDistance("who") if by_user else Symmetric())
        rows = list(zip(who, [keys[w] for w in what] if keys else what, strict=True))
        expected = oracle(rows, most, 3, inside, by_user=by_user)
        data = {"who": column_of(who, users), "what": column_of(what, kind)}
        found = counted(
            claim, [{n: v[a : a + 37] for n, v in data.items()} for a in range(0, 300, 37)]
        )
        if claim.sensitivity is not None:
            catalogue = claim.output.items
            assert found.tolist() == [expected.get(name, 0) for name in catalogue]
        else:
            assert found["item"].tolist() == sorted(expected)
            assert found["votes"].tolist() == [expected[name] for name in sorted(expected)]
            assert found["item"].dtype == (object if kind == "str" else np.int64)


def counted(claim: Any, blocks: list[dict[str, np.ndarray]]) -> Any:
    if claim.accumulate is None:
        return claim.fold(lambda: blocks)
    out = np.zeros(claim.output.size, dtype=np.int64)
    for block in blocks:
        claim.accumulate(block, out)
    return out


def test_nothing_is_counted_of_no_blocks() -> None:
    records = Records((Column("who", "int64"), Column("what", "int64")))
    claim = VoteCounts(item="what", max_items=2).bind(records, IdDistance("who"))
    found = claim.fold(list)
    assert found["item"].dtype == found["votes"].dtype == np.int64
    assert not len(found["item"])


class Adversary:
    """A crew that gives blocks to states as it likes, and items to `each` in any order."""

    def __init__(self, blocks: Any, size: int, draw: Any) -> None:
        self.blocks, self.size, self.draw = blocks, size, draw

    def gather(self, make: Any, add: Any) -> list[Any]:
        states = [make() for _ in range(self.size)]
        blocks = list(self.blocks())
        for at in self.draw(st.permutations(range(len(blocks)))):
            add(states[self.draw(st.integers(0, self.size - 1))], blocks[at])
        return states

    def each(self, function: Any, items: Any) -> list[Any]:
        found = {at: function(items[at]) for at in self.draw(st.permutations(range(len(items))))}
        return [found[at] for at in range(len(items))]


CELLS = {
    "int64": st.sampled_from([-(2**63) + 1, -1, 0, 1, 2, 3, 2**62]),
    "str": st.sampled_from(["a", "b", "é", "ab", "z\0"]),
}


@given(
    users=st.sampled_from(["int64", "str"]),
    items=st.sampled_from(["int64", "str", "listed"]),
    by=st.sampled_from(["user", "row", "row of a user"]),
    most=st.sampled_from([None, 1, 2]),
    passes=st.integers(1, 2),
    size=st.integers(1, 4),
    data=st.data(),
)
def test_whoever_counts_which_block(
    users: str, items: str, by: str, most: Any, passes: int, size: int, data: Any
) -> None:
    """States, their blocks, ranges of users and the order of all of them decide nothing."""
    kind = "int64" if items == "listed" else items
    rows = data.draw(st.lists(st.tuples(CELLS[users], CELLS[kind]), max_size=40))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    records = Records((Column("u", users, role="privacy_id"), Column("i", kind)))
    more: dict[str, Any] = {"items": (3, -1, 0)} if items == "listed" else {}
    if by == "user":
        more["max_items"] = most
    if by == "row of a user":
        more["user"] = "u"
    metric = IdDistance("u") if by == "user" else Symmetric()
    claim = VoteCounts(item="i", passes=passes, seed=5, **more).bind(records, metric)
    if claim.shared is None:
        return  # a sketch that adds up

    def column(values: list[Any], dtype: str) -> Any:
        return np.array(values, dtype=np.int64 if dtype == "int64" else object)

    def blocks() -> list[dict[str, Any]]:
        parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
        return [
            {"u": column([u for u, _ in part], users), "i": column([i for _, i in part], kind)}
            for part in parts
        ]

    one, two = claim.fold(blocks), claim.shared(Adversary(blocks, size, data.draw))
    if isinstance(one, dict):
        assert one["item"].tolist() == two["item"].tolist()
        assert one["item"].dtype == two["item"].dtype
        one, two = one["votes"], two["votes"]
    assert one.dtype == two.dtype
    assert one.tolist() == two.tolist()


def test_all_pairs_of_a_user_are_in_one_range() -> None:
    """A range that cut a user's pairs would count the user twice with `max_items`."""
    g = np.random.default_rng(0)
    gathered = [vote_table.Pairs() for _ in range(3)]
    for at, pairs in enumerate(gathered):
        pairs.add(g.integers(0, 5 * at + 1, 300), g.integers(0, 90, 300))
    expected = sorted(
        {
            (u, i)
            for p in gathered
            for u, i in zip(*map(np.ndarray.tolist, p.distinct()), strict=True)
        }
    )
    ranges = [pairs.distinct() for pairs in vote_table.by_user(gathered, Alone(list))]
    assert len(ranges) > 1
    assert len({int(u) for users, _ in ranges for u in set(users.tolist())}) == sum(
        len(set(users.tolist())) for users, _ in ranges
    )
    assert (
        sorted((u, i) for r in ranges for u, i in zip(r[0].tolist(), r[1].tolist(), strict=True))
        == expected
    )
    assert [len(p.distinct()[0]) for p in gathered] == [0, 0, 0]  # handed over
    one = vote_table.Pairs()
    one.add(np.zeros(4, dtype=np.int64), np.arange(4))
    several = vote_table.by_user([one, vote_table.Pairs()], Alone(list))
    assert sum(len(pairs.distinct()[0]) for pairs in several) == 4
    assert len(vote_table.by_user([vote_table.Pairs(), vote_table.Pairs()], Alone(list))) == 1


@pytest.mark.parametrize("passes", [1, 3])
def test_every_part_of_the_users_is_counted_in_one_pass(passes: int) -> None:
    item, user = Column("item", "int64"), Column("user", "int64")
    counting = Counting(item, user, None, None, 0, passes)
    seen: list[int] = []

    def blocks() -> Any:
        seen.append(1)
        yield {"item": np.arange(40) % 4, "user": np.arange(40) // 3}

    items, votes = counting.votes(Alone(blocks), codes_of(item))
    assert counting.reads == {"item", "user"}
    assert len(seen) == passes
    assert dict(zip(items.tolist(), votes.tolist(), strict=True)) == {0: 10, 1: 10, 2: 10, 3: 10}
