"""Texts of regular expressions, joins, quotes, JSON rows, days in a row, and words in other spellings."""

from __future__ import annotations

import csv
import json
import math
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest

from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.audit.seeds.constants import Mined, mined
from opendp_sim.audit.seeds.from_code import guided
from opendp_sim.audit.seeds.regex import low_and_high, matching
from opendp_sim.audit.seeds.text import ranked, spelled
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.core import dp

TEXTS = dp.vector_domain(dp.atom_domain(T=str))
LINE = re.compile(r"^(GET|POST) (\S+) took (?P<ms>\d{1,6})ms$")


def _largest(function: Callable[..., Any]) -> float:
    """Return the largest change of any cell between neighbours of the structured pairs."""
    obj = dp.m.make_user_measurement(
        TEXTS, dp.symmetric_distance(), dp.max_divergence(), function, float
    )
    found = mined(functions_of(obj))
    space = guided(space_of(TEXTS, dp.symmetric_distance(), 1), TEXTS, found)
    moved = [0.0]
    for pair in space.corners(np.random.default_rng(0)):
        left, right = (np.atleast_1d(function(side)) for side in (pair.left, pair.right))
        moved.append(float(np.abs(left.astype(float) - right.astype(float)).max()))
    return max(moved)


def _milliseconds(rows: list[str]) -> int:
    return sum(int(m["ms"]) for m in map(LINE.match, rows) if m)


def _posts(rows: list[str]) -> int:
    return sum(7 for m in map(LINE.match, rows) if m and m.group(1) == "POST")


def _joined(rows: list[str]) -> int:
    parts = [row.partition("|") for row in rows]
    owners = {key for kind, _, key in parts if kind == "C"}
    return sum(key in owners for kind, _, key in parts if kind == "O")


def _voided(rows: list[str]) -> float:
    total = 0.0
    for row in rows:
        fields = row.split(",")
        if len(fields) == 3:
            with suppress(ValueError):
                total += min(max(float(fields[2]), 0), 50)
    return 0.0 if math.isnan(total) else total


def _lines_together(rows: list[str]) -> int:
    with suppress(csv.Error):
        return sum(len(fields) >= 2 for fields in csv.reader(rows))
    return 0


def _longest_streak(rows: list[str]) -> int:
    days = set()
    for row in rows:
        with suppress(ValueError):
            days.add(date.fromisoformat(row))
    best = run = 0
    for day in sorted(days):
        before = day.toordinal() > 1 and day - timedelta(days=1) in days
        run = run + 1 if before else 1
        best = max(best, run)
    return best


def _by_the_largest(rows: list[str]) -> float:
    vectors = []
    for row in rows:
        with suppress(ValueError, TypeError):
            vectors += [v for v in [json.loads(row)] if isinstance(v, list) and len(v) == 4]
    top = max((abs(v[0]) for v in vectors), default=1) or 1
    return sum(100 * v[0] / top for v in vectors)


def _spelled_apart(rows: list[str]) -> list[int]:
    words = [w.lower() for row in rows for w in set(re.findall("[A-Za-z]+", row))]
    return [words.count(word) for word in ("cold", "rash")]


def _balance(rows: list[str]) -> int:
    kept: dict[str, list[int]] = {}
    for row in rows:
        user, _, amount = row.partition(":")
        with suppress(ValueError):
            kept.setdefault(user, []).append(max(-10, min(int(amount), 10)))
    return sum(sum(sorted(values)[:3]) for values in kept.values())


@pytest.mark.parametrize(
    ("function", "allowed"),
    [
        (_milliseconds, 10**5),
        (_posts, 0),
        (_joined, 2),
        (_voided, 100),
        (_lines_together, 2),
        (_longest_streak, 4),
        (_by_the_largest, 200),
        (_spelled_apart, 3),
        (_balance, 19),
    ],
)
def test_a_bound_that_texts_of_its_kind_break_is_broken(
    function: Callable[[list[str]], Any], allowed: float
) -> None:
    assert _largest(function) > allowed


def test_texts_of_an_expression_match_it_with_small_numbers_and_large_ones() -> None:
    pattern = LINE.pattern, LINE.flags
    found = matching([pattern])
    assert all(LINE.match(text) for text in found if text.count("took") == 1)
    assert {text[:4] for text in found} >= {"GET ", "POST"}
    (low, high) = low_and_high([pattern])[0]
    assert (low, high) == ("GET a took 0ms", "GET a took 999999ms")


@pytest.mark.parametrize(
    "pattern",
    [
        (r"(a+)\1b", 0),
        (r"[^\W\d_]{2,}-?[xyz]", 0),
        (r"(?i:abc)|\d+(?=kg)kg", 0),
        (r"\[\w+\] (?!no)\S+", 0),
        ("x  # a comment\n ([0-9a-f]{2}){3}", re.VERBOSE),
        (r"(?P<q>['\"]).*?(?P=q)", re.DOTALL),
        (r".^$é[À-ÿ]", 0),
    ],
)
def test_what_is_made_of_an_expression_matches_it_or_is_left_out(pattern: tuple[str, int]) -> None:
    found = matching([pattern])
    singles = [text for text in found if len(text) < 40]
    assert all(re.search(pattern[0], text, pattern[1]) for text in singles)
    assert found or pattern[0].startswith(".^")


@pytest.mark.parametrize(
    "pattern",
    [
        "".join([r"\d+"] * 40) + r"(?<=x)",
        "".join([r"(\d+)[ -]?"] * 24) + r"(?<![0-9])$",
        r"(\w*)(\w*)(\w*)(\w*)(\w*)(\w*)(\w*)(?!$)b",
    ],
)
def test_an_expression_with_many_ways_to_match_takes_no_time(pattern: str) -> None:
    begin = time.process_time()
    matching([(pattern, 0)])
    low_and_high([(pattern, 0)])
    assert time.process_time() - begin < 1


def test_compiled_expressions_of_globals_closures_and_partials_are_found() -> None:
    inner = re.compile(r"user=(\w+) paid=(\d+)")

    def release(rows: list[str], cats: tuple[str, ...]) -> int:
        return sum(bool(inner.match(r) or LINE.match(r)) for r in rows if r not in cats)

    bound = partial(release, cats=("red", "green"))
    found = mined([release], [bound])
    assert {inner.pattern, LINE.pattern} <= {pattern for pattern, _ in found.patterns}
    assert {"red", "green"} <= found.words & found.listed

    def outer(rows: list[str]) -> int:
        return bound(rows)

    assert {"red", "green"} <= mined([outer]).words


def test_names_of_arguments_and_variables_are_no_first_words() -> None:
    def release(rows: list[str]) -> float:
        scale = dict(mode="fast", width=3)  # noqa: C408 - an argument by name
        return float("bananas" in rows) * len(scale)

    found = mined([release])
    assert {"mode", "width", "scale"} <= found.keywords
    words = ranked(found)
    assert words.index("bananas") < min(words.index(w) for w in words if w in found.keywords)


def test_words_stand_together_only_where_a_record_may_hold_several() -> None:
    found = Mined(words={"flu", "."})
    both = spelled(found, [" "], ["flu"], together=True)
    assert len(set(both[0].lower().split())) < len(both[0].split())
    assert spelled(found, [" "], ["flu"], together=False) == both[1:]
    assert Counter(both).most_common(1)[0][1] == 1


RATES = {"EUR": 1, "KWD": 3}


class _Money:
    """Is read by a method of the class, as records of an amount and a word."""

    @classmethod
    def parse(cls, text: str) -> int:
        found = re.fullmatch(r"([0-9]{1,9}) ([A-Z]{3})", text)
        return min(int(found[1]), 100) * RATES[found[2]] if found and found[2] in RATES else 0


@dataclass(frozen=True)
class _Row:
    amount: int
    currency: str

    @staticmethod
    def read(text: str) -> int:
        return len(text) % 7919

    @property
    def cents(self) -> int:
        return self.amount * 6367


def _capped_too_early(rows: list[str]) -> int:
    return sum(map(_Money.parse, rows))


def _moves(rows: list[str]) -> list[int]:
    level = dict.fromkeys(("bolts", "nuts"), 20)
    for row in rows:
        source, mark, target = row.partition(">")
        if mark and source in level and target in level:
            level[source] -= 10
            level[target] += 10
    return list(level.values())


def _hours(rows: list[str]) -> list[int]:
    found: list[int] = [0] * 24
    for row in rows:
        with suppress(ValueError):
            found[datetime.fromisoformat(row.split("\t")[0]).hour] += len(row.split("\t")) - 1
    return found


def _sampled(rows: list[str]) -> int:
    return sum("ERROR" in row for row in rows if zlib.crc32(row.encode()) % 10 == 0)


@pytest.mark.parametrize(
    ("function", "more"), [(_capped_too_early, 300), (_moves, 10), (_hours, 1), (_sampled, 1)]
)
def test_records_are_made_of_words_beside_numbers_words_and_dates(
    function: Callable[..., Any], more: int
) -> None:
    """A word of an expression, a word for each side of a mark, a date and a field, and many alike."""
    assert _largest(function) >= more


def test_words_stand_where_an_expression_has_letters() -> None:
    found = matching([(r"([0-9]{1,9}) ([A-Z]{3})", 0)], (), ("EUR", "KWD", "long", "x"))
    assert {"0 EUR", "0 KWD", "99999999 EUR", "99999999 KWD"} <= set(found)
    assert not any("long" in text for text in found)
    spaced = matching([(r"(?i)(?:[a-z ]{2,9})=(\d+)", 0)], (), ("two words", "KWD"))
    assert "two words=0" in spaced


def test_methods_that_somebody_wrote_are_read_and_no_others() -> None:
    def uses(rows: list[str]) -> int:
        return sum(_Row(_Row.read(row), "x").cents for row in rows)

    obj = dp.m.make_user_measurement(
        TEXTS, dp.symmetric_distance(), dp.max_divergence(), uses, lambda d: 1.0 * d
    )
    found = mined(functions_of(obj))
    assert {7919, 6367} <= found.numbers
    assert "..." not in found.words  # of the text of a dataclass
    assert not any("cannot" in word for word in found.words)
