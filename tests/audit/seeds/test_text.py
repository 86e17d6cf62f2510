"""Texts that the search draws, from what the code does with texts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from itertools import islice
from typing import Any

import numpy as np
import pytest

from opendp_sim.audit.generators.neighbours import Edit, apply_edits
from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.audit.seeds.constants import Mined, mined
from opendp_sim.audit.seeds.from_code import GuidedRecords, TextPairs, guided, thresholds
from opendp_sim.audit.seeds.regex import matching
from opendp_sim.audit.seeds.text import (
    Shapes,
    kin_of,
    marks_of,
    objects_of,
    ranked,
    texts_of,
    users_of,
)
from opendp_sim.audit.state.reachable import arguments_of
from opendp_sim.core import dp

TEXTS = dp.vector_domain(dp.atom_domain(T=str))
HOURS = tuple(f"{hour:02d}" for hour in range(24))
TAGS = ("apple", "melon", "peach", "plum")


def _space(function: Callable[..., Any], metric: Any = None) -> GuidedRecords:
    metric = dp.symmetric_distance() if metric is None else metric
    found = mined([function])  # type: ignore[list-item]
    return guided(space_of(TEXTS, metric, 1), TEXTS, found)  # type: ignore[no-any-return]


def _largest(function: Callable[[list[str]], Any], metric: Any = None) -> float:
    """Return the largest change of any cell between neighbours of the structured pairs."""
    moved = [0.0]
    for pair in _space(function, metric).corners(np.random.default_rng(0)):
        left, right = (np.atleast_1d(function(side)) for side in (pair.left, pair.right))
        moved.append(float(np.abs(left.astype(float) - right.astype(float)).max()))
    return max(moved)


def _first_amounts(rows: list[str]) -> int:
    kept: dict[str, list[int]] = {}
    for row in rows:
        user, _, amount = row.partition(":")
        value = int(amount) if amount.isdecimal() else 0
        kept.setdefault(user, []).append(min(value, 10))
    return sum(sum(values[:2]) for values in kept.values())


def _smallest_amounts(rows: list[str]) -> int:
    kept: dict[str, list[int]] = {}
    for row in rows:
        user, _, amount = row.partition(":")
        value = int(amount) if amount.isdecimal() else 0
        kept.setdefault(user, []).append(min(value, 10))
    return sum(sum(sorted(values)[:2]) for values in kept.values())


def _letters_not_bytes(rows: list[str]) -> int:
    return sum(len(row[:10].encode()) for row in rows)


def _distinct_too_early(rows: list[str]) -> list[int]:
    words = [word.casefold().strip(".!") for row in rows for word in set(row.split())]
    return [words.count(tag) for tag in TAGS]


def _fields(rows: list[str]) -> int:
    return sum(min(int(part), 5) for row in rows for part in row.split(";") if part.isdecimal())


def _unclamped(rows: list[str]) -> float:
    return sum(float(row) for row in rows if row.lstrip("-").isdecimal())


def _object(rows: list[str]) -> int:
    total = 0
    for row in rows:
        try:
            found = json.loads(row)
        except ValueError:
            continue
        amount = found.get("minutes", 0) if isinstance(found, dict) else 0
        total += amount if isinstance(amount, int) else 0
    return total


def _days(rows: list[str]) -> int:
    total = 0
    for row in rows:
        try:
            total += date.fromisoformat(row).toordinal()
        except ValueError:
            continue
    return total


def _upper(rows: list[str]) -> int:
    return sum(len(row[:20].upper()) for row in rows)


def _columns(rows: list[str]) -> int:
    parts = [row.split(",") for row in rows]
    return sum(min(int(p[4]), 60) for p in parts if len(p) == 5 and p[4].lstrip("-").isdecimal())


def _table(rows: list[str]) -> int:
    found = [item.partition("=") for row in rows for item in row.split(";")]
    return sum(
        min(int(value), 50) for key, _, value in found if key == "height" and value.isdecimal()
    )


def _marked(rows: list[str]) -> int:
    return sum(len(re.findall(r"#\w+", row)) for row in rows)


def _distinct(rows: list[str]) -> int:
    return sum(len(set(row.lower().split())) for row in rows)


def _latest(rows: list[str]) -> int:
    last = dict(row.split("=", 1) for row in rows if "=" in row)
    return sum(value == "yes" for value in last.values())


def _lines(rows: list[str]) -> int:
    return sum(len(row.splitlines()) for row in rows)


def _windows(rows: list[str]) -> list[int]:
    hours = Counter(int(h) for h in (row.partition("T")[2][:2] for row in rows) if h in HOURS)
    return [hours[h] + hours[h + 1] + hours[h + 2] for h in range(22)]


def _hours_of_the_day(rows: list[str]) -> int:
    return sum(row[11:13] == "12" for row in rows)


def _last_of_each(rows: list[str]) -> int:
    pairs = (row.partition(",") for row in rows)
    return sum({u: int(n) % 11 if n.isdecimal() else 0 for u, _, n in pairs}.values())


def _by_the_longest(rows: list[str]) -> int:
    found = []
    for row in rows:
        with suppress(ValueError, TypeError, KeyError):
            found += [v for v in [json.loads(row)["v"]] if isinstance(v, list) and len(v) == 3]
    longest = max((float(np.linalg.norm(v)) for v in found), default=1.0)
    return int(sum(128 * v[0] / longest for v in found))


@pytest.mark.parametrize(
    ("function", "allowed"),
    [
        (_first_amounts, 10),
        (_letters_not_bytes, 30),
        (_distinct_too_early, 4),
        (_fields, 10),
        (_unclamped, 10**5),
        (_object, 10**5),
        (_days, 10**6),
        (_upper, 40),
        (_lines, 3),
        (_columns, 10**5),
        (_table, 100),
        (_marked, 20),
        (_latest, 3),
        (_distinct, 30),
        (_windows, 0),
        (_hours_of_the_day, 0),
        (_last_of_each, 70),
        (_by_the_longest, 400),
    ],
)
def test_a_bound_that_texts_of_its_kind_break_is_broken(
    function: Callable[[list[str]], Any], allowed: float
) -> None:
    assert _largest(function) > allowed


def test_texts_are_neighbours_as_the_metric_says() -> None:
    assert _largest(_smallest_amounts) == 10
    for metric in (dp.symmetric_distance(), dp.insert_delete_distance(), dp.hamming_distance()):
        reordered = 0
        for pair in _space(_distinct_too_early, metric).corners(np.random.default_rng(0)):
            left, right = Counter(pair.left), Counter(pair.right)
            reordered += pair.genome.edits[-1:] == (Edit("reverse", 0),)
            if metric == dp.hamming_distance():
                changed = sum(a != b for a, b in zip(pair.left, pair.right, strict=True))
                assert changed <= pair.distance
            else:
                assert ((left - right) + (right - left)).total() <= pair.distance
        assert bool(reordered) == (metric == dp.symmetric_distance())


def test_pairs_of_texts_change_as_many_records_as_they_say() -> None:
    pairs = TextPairs(texts_of(mined([_first_amounts])), (40,))  # type: ignore[list-item]
    made = list(pairs.edited((5,), 2, sized=False))
    assert {len(edits) for _, edits in made} == {2}
    assert any(len(base) == 40 for base, _ in made)
    assert all(
        edit.kind == "replace" for _, edits in pairs.edited((), 1, sized=True) for edit in edits
    )
    assert all(len(base) % 2 == 0 for base, _ in pairs.reordered(()))


def test_counts_about_a_threshold_are_tried_one_by_one() -> None:
    epsilon, delta = 0.5, 1e-6

    def gap(rows: list[str]) -> int:
        counts = sorted((rows.count(tag) for tag in TAGS), reverse=True)
        return int(counts[0] - counts[1] > 1 + np.log(1 / delta) / epsilon)

    assert _largest(gap) == 1
    assert 28 in thresholds({epsilon, delta})
    assert thresholds({3.0, 200.0}) == []


def test_marks_and_words_come_from_the_code() -> None:
    assert marks_of(Mined(words={"::", "ab", "long words here"})) == ["::"]
    assert marks_of(Mined(names={"split"})) == [" "]
    assert marks_of(Mined(words={".!", ";"}, names={"split", "strip"})) == [";", " ", ".!"]
    assert marks_of(Mined(words={".!"}, names={"split", "strip"})) == [" ", ".!"]
    assert marks_of(Mined(names={"reader"})) == [","]
    assert marks_of(Mined(words={"ab"})) == []
    assert ranked(Mined(words={"b", "a", "split", "::"}, listed={"b"})) == ["b", "a"]
    fresh = texts_of(Mined(words={"|"}, listed={"quartz"}))
    drawn = {fresh.draw(np.random.default_rng(i)) for i in range(40)}
    assert any("|" in text and "quartz" in text for text in drawn)


def test_a_letter_is_a_mark_where_texts_are_taken_apart() -> None:
    assert marks_of(Mined(words={"T", "b", ";"}, listed={"b"}, names={"partition"})) == [";", "T"]
    assert marks_of(Mined(words={"T", ";"})) == [";"]
    moved = [
        sum(abs(a - b) for a, b in zip(_windows(p.left), _windows(p.right), strict=True))
        for p in _space(_windows).corners(np.random.default_rng(0))
        if p.distance == 1
    ]
    assert max(moved) == 3


def test_texts_of_one_key_are_of_the_kinds_that_code_reads() -> None:
    shapes = Shapes((",",), ("v",), (), ("12", "11"), (3, 2), dates=True, json=True)
    assert ('{"v": [1, 1, 1]}', '{"v": [1000000, 1000000, 1000000]}') in kin_of(shapes)
    assert ("1970-01-01", "9999-12-31") in kin_of(shapes)
    assert ("1,1,1", "1000000,1000000,1000000") in kin_of(Shapes((",",), widths=(3,), numbers=True))
    assert {high[0] for _, high in users_of(shapes)} == {"a,1000000", "a,7", "a,11", "a,10", "a,v"}
    assert '{"v": "2024-02-29T12:30:00"}' in objects_of(shapes)


def test_categories_of_a_chain_are_words() -> None:
    made = (TEXTS, dp.symmetric_distance()) >> dp.t.then_count_by_categories(
        ["yes", "no"], null_category=False, MO="L1Distance<i32>"
    )
    found = mined([], arguments_of(made))
    assert {"yes", "no"} <= found.words & found.listed


@pytest.mark.parametrize(
    "pattern", [r"#\w+", r"^\d{4}-\d\d$", r"(?:[^@ ]+)@([a-z]+)\.org", r"a|b+", r"\bcat\b"]
)
def test_a_text_matches_a_regular_expression_of_the_code(pattern: str) -> None:
    found = matching({(pattern, 0), ("(", 0), ("plain", 0)})
    assert found
    assert all(re.search(pattern, text) for text in found[:1])


def test_the_first_text_of_each_kind_comes_early() -> None:
    space = _space(_distinct_too_early)
    first = list(islice(space.corners(np.random.default_rng(0)), 24))
    assert any(_distinct_too_early(pair.right)[0] > 4 for pair in first)
    assert any(_distinct_too_early(pair.left) == [0, 0, 1, 1] for pair in first)


def test_an_order_is_turned_round() -> None:
    assert apply_edits([1, 2, 3], (Edit("reverse", 0),)) == [3, 2, 1]


def test_numbers_are_searched_as_before() -> None:
    whole = dp.vector_domain(dp.atom_domain(T=int))
    found = Mined({7.0}, words={":", "b"}, names={"split", "encode"})
    space = guided(space_of(whole, dp.symmetric_distance(), 1), whole, found)
    assert space.texts is None
