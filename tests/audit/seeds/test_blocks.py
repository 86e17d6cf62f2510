"""Records and datasets from the constants of audited code: a fault shows on a pair that the space draws."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest

from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.audit.seeds.blocks import explore, guided, sizes_of
from opendp_sim.audit.seeds.constants import Mined, mined
from opendp_sim.audit.seeds.grammar import Grammar
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.core import dp
from tests._tiers import tiered

TEXTS = dp.vector_domain(dp.atom_domain(T=str))
HOURS = tuple(f"{hour:02d}" for hour in range(24))
LINE = re.compile(r"^(GET|POST) (\S+) took (?P<ms>\d{1,6})ms$")


def moved_by(function: Callable[..., Any], domain: Any = TEXTS, metric: Any = None) -> float:
    """Return the largest change of any cell between neighbours that a search meets."""
    metric = dp.symmetric_distance() if metric is None else metric
    obj = dp.m.make_user_measurement(domain, metric, dp.max_divergence(), function, float)
    functions, rng = functions_of(obj), np.random.default_rng(0)
    space = guided(space_of(domain, metric, 1), domain, mined(functions))

    def moved(pair: Pair) -> float:
        try:
            left, right = (np.atleast_1d(function(side)) for side in (pair.left, pair.right))
        except (ValueError, OverflowError):
            return 0.0
        with np.errstate(invalid="ignore"):  # two infinities of one sign
            return float(np.nan_to_num(np.abs(left.astype(float) - right.astype(float))).max())

    explore(space, lambda pair: (moved(pair), ""), functions, rng, lambda runs: runs < 200)
    return max(map(moved, islice(space.corners(rng), 300)))


def _first_amounts(rows: list[str]) -> int:
    kept: dict[str, list[int]] = {}
    for row in rows:
        user, _, amount = row.partition(":")
        value = int(amount) if amount.isdecimal() else 0
        kept.setdefault(user, []).append(min(value, 10))
    return sum(sum(values[:2]) for values in kept.values())


def _letters_not_bytes(rows: list[str]) -> int:
    return sum(len(row[:10].encode()) for row in rows)


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


def _table(rows: list[str]) -> int:
    found = [item.partition("=") for row in rows for item in row.split(";")]
    return sum(
        min(int(value), 50) for key, _, value in found if key == "height" and value.isdecimal()
    )


def _marked(rows: list[str]) -> int:
    return sum(len(re.findall(r"#\w+", row)) for row in rows)


def _distinct(rows: list[str]) -> int:
    return sum(len(set(row.lower().split())) for row in rows)


def _lines(rows: list[str]) -> int:
    return sum(len(row.splitlines()) for row in rows)


def _windows(rows: list[str]) -> list[int]:
    hours = Counter(int(h) for h in (row.partition("T")[2][:2] for row in rows) if h in HOURS)
    return [hours[h] + hours[h + 1] + hours[h + 2] for h in range(22)]


def _hours_of_the_day(rows: list[str]) -> int:
    return sum(row[11:13] == "12" for row in rows)


def _milliseconds(rows: list[str]) -> int:
    return sum(int(m["ms"]) for m in map(LINE.match, rows) if m)


def _posts(rows: list[str]) -> int:
    return sum(7 for m in map(LINE.match, rows) if m and m.group(1) == "POST")


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


def _moves(rows: list[str]) -> list[int]:
    level = dict.fromkeys(("bolts", "nuts"), 20)
    for row in rows:
        source, mark, target = row.partition(">")
        if mark and source in level and target in level:
            level[source] -= 10
            level[target] += 10
    return list(level.values())


@pytest.mark.parametrize(
    "case",
    tiered(
        [
            (_first_amounts, 10),
            (_letters_not_bytes, 30),
            (_fields, 10),
            (_unclamped, 10**5),
            (_object, 10**5),
            (_days, 10**6),
            (_upper, 30),
            (_lines, 3),
            (_table, 100),
            (_marked, 20),
            (_distinct, 10),
            (_windows, 0),
            (_hours_of_the_day, 0),
            (_milliseconds, 10**5),
            (_posts, 0),
            (_moves, 9),
        ],
        lambda case: case[0] in (_first_amounts, _table, _windows),
    ),
)
def test_a_bound_that_texts_of_its_kind_break_is_broken(
    case: tuple[Callable[[list[str]], Any], float],
) -> None:
    function, allowed = case
    assert moved_by(function) > allowed


def test_neighbours_are_as_far_apart_as_the_metric_says() -> None:
    for metric in (dp.symmetric_distance(), dp.insert_delete_distance(), dp.hamming_distance()):
        space = guided(space_of(TEXTS, metric, 1), TEXTS, mined([_fields]))  # type: ignore[list-item]
        rng = np.random.default_rng(0)
        for pair in [*islice(space.corners(rng), 80), *(space.draw(rng) for _ in range(80))]:
            left, right = Counter(pair.left), Counter(pair.right)
            apart = ((left - right) + (right - left)).total()
            if "symmetric" in str(metric).lower():
                assert apart <= pair.distance
            elif "hamming" in str(metric).lower():
                assert sum(a != b for a, b in zip(pair.left, pair.right, strict=True)) <= 1
            else:
                short, long = sorted((pair.left, pair.right), key=len)
                assert short == long or any(
                    short == long[:i] + long[i + 1 :] for i in range(len(long))
                )


def test_one_seed_draws_one_sequence_of_every_kind_of_value() -> None:
    grammar = Grammar(mined([_table]))  # type: ignore[list-item]
    for example in ("", 0, 0.5, True, ("", 1), ["", 0.5]):
        one, two = (
            [grammar.like(example, rng) for _ in range(50)]
            for rng in (np.random.default_rng(1), np.random.default_rng(1))
        )
        assert repr(one) == repr(two)
        assert {type(v) for v in one} == {type(example)}
        assert type(grammar.varied(one[0], np.random.default_rng(1))) is type(example)


@pytest.mark.parametrize(
    "slow",
    [r"(?:a?){30}a{30}", r"(\w+)+\d{9}\d{9}[^\w]", "[[x]", "a{99999}", "".join([r"\d+"] * 40)],
)
def test_expressions_that_take_for_ever_are_not_matched(slow: str) -> None:
    begin, rng = time.process_time(), np.random.default_rng(0)
    grammar = Grammar(Mined(patterns={(slow, 0)}))
    assert all(len(grammar.text(rng)) <= 2000 for _ in range(50))
    assert time.process_time() - begin < 1


def test_texts_of_an_expression_match_it() -> None:
    grammar, rng = Grammar(Mined(patterns={(LINE.pattern, LINE.flags)})), np.random.default_rng(0)
    found = [m for m in (LINE.match(grammar.match(rng)) for _ in range(60)) if m]
    assert {m.group(1) for m in found} == {"GET", "POST"}
    assert {len(m["ms"]) for m in found} >= {1, 6}


def test_sizes_are_limits_of_sums_and_thresholds_of_keys() -> None:
    assert {33, 66} <= set(sizes_of(Mined({1000, 0.5}), 2**31))
    assert {744, 745} <= set(sizes_of(Mined({5e-324}), 1))
    assert 13 in sizes_of(Mined({1e-6}), 1)


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
    assert "bananas" in found.words - found.keywords


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
