"""Queryables of unknown kinds: what a question looks like is found by asking, and which ones are asked."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.adversary.default_analysts import default_driver
from opendp_sim.audit.adversary.query_search import of_shapes
from opendp_sim.audit.instrument.python_queryable import asked_directly
from opendp_sim.core.errors import AuditError
from tests._tiers import tiered
from tests.audit.growing import refuted
from tests.audit.test_sound_programs import BRIEF

ROWS = dp.vector_domain(dp.atom_domain(T=int, bounds=(0, 20))), dp.symmetric_distance()
WORDS = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
SHORT = replace(BRIEF, trace_seconds=9.0, seconds=5.0, scan_seconds=0.5, total=12.0)


@functools.cache
def noise(scale: float) -> Any:
    return dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale)


def noisy(count: int, scale: float) -> int:
    return int(noise(scale)(count))


def service(start: Callable[[Any], Callable[[Any], Any]], space: Any = ROWS) -> Any:
    def release(rows: Any) -> Any:
        return dp.new_queryable(start(rows))

    return dp.m.make_user_measurement(*space, dp.max_divergence(), release, float)


def ranges(charge: Callable[[dict[Any, float], Any, float], bool]) -> Any:
    """Counts of a range, each at a cost; ``charge`` says whether it may be answered."""

    def start(rows: list[int]) -> Callable[[Any], Any]:
        spent: dict[Any, float] = {}

        def answer(question: Any) -> Any:
            low, high, cost = question
            if not 0.001 <= cost <= 10:
                raise ValueError("no such cost")
            return (
                noisy(sum(low <= r < high for r in rows), 1 / cost)
                if charge(spent, (low, high), cost)
                else None
            )

        return answer

    return service(start)


def strict(spent: dict[Any, float], _: Any, cost: float) -> bool:
    if spent.get("all", 0.0) + cost > 1:
        return False
    spent["all"] = spent.get("all", 0.0) + cost
    return True


def once_a_label(spent: dict[Any, float], label: Any, cost: float) -> bool:
    if spent.get(label, 0.0) + cost > 1:
        return False
    spent[label] = spent.get(label, 0.0) + cost
    return True


def too_late(spent: dict[Any, float], _: Any, cost: float) -> bool:
    if spent.get("all", 0.0) >= 1:
        return False
    spent["all"] = spent.get("all", 0.0) + cost
    return True


def rounded(spent: dict[Any, float], label: Any, cost: float) -> bool:
    return strict(spent, label, round(4 * cost) / 4)


def free_again(spent: dict[Any, float], label: Any, cost: float) -> bool:
    """A range that was asked before costs nothing."""
    if ("seen", label) in spent:
        return True
    spent["seen", label] = 0.0
    return strict(spent, label, cost)


@pytest.mark.long
def test_a_filter_that_charges_too_late_is_refuted() -> None:
    assert refuted(ranges(too_late), 1, SHORT).verdict == "refuted"


@pytest.mark.parametrize(
    ("charge", "least"),
    [(once_a_label, 2.0), (too_late, 3.0), (rounded, 2.0), (free_again, 5.0), (strict, 0.9)],
)
def test_what_a_conversation_costs_is_beyond_the_claim_of_a_filter_that_charges_too_little(
    charge: Any, least: float
) -> None:
    costs: list[float] = []

    def heard(spent: dict[Any, float], label: Any, cost: float) -> bool:
        answered = bool(charge(spent, label, cost))
        costs.append(cost * answered * (label[0] <= 5 < label[1]))  # of one record
        return answered

    obj = ranges(heard)
    driver = default_driver(obj, 1)
    assert driver is not None
    costs.clear()
    driver(obj([5]))
    assert sum(costs) >= least
    assert (sum(costs) <= 1) == (charge is strict)


@pytest.mark.long
def test_a_filter_that_charges_what_it_costs_is_not() -> None:
    report = audit(ranges(strict), 1, budget=replace(BRIEF, trace_seconds=1.0, seconds=0.5))
    assert report.verdict == "not refuted"
    assert "the question (0, 10, 0.12)" in str(report)


@pytest.mark.parametrize("read", ["item", "get", "attribute"])
def test_the_keys_of_a_mapping_are_those_that_the_queryable_asks_for(read: str) -> None:
    def answer_of(question: Any, name: str) -> Any:
        if read == "get":
            return question.get(name)
        return getattr(question, name) if read == "attribute" else question[name]

    def start(rows: list[str]) -> Callable[[Any], Any]:
        def answer(question: Any) -> Any:
            word, cost = answer_of(question, "word"), answer_of(question, "epsilon")
            return noisy(sum(r.startswith(word) for r in rows), 1 / cost)

        return answer

    driver = default_driver(service(start, WORDS), 1)
    assert driver is not None
    assert "{'word': 'a', 'epsilon': 0.12}" in driver.words
    assert (["a"], []) in [(pair.right, pair.left) for pair in driver.pairs]


@pytest.mark.long
@pytest.mark.parametrize("refusal", ["raise", "none", "text"])
def test_a_queryable_that_answers_nothing_is_not_audited(refusal: str) -> None:
    def start(_: Any) -> Callable[[Any], Any]:
        def answer(_: Any) -> Any:
            if refusal == "raise":
                raise ValueError
            return None if refusal == "none" else "refused"

        return answer

    with pytest.raises(AuditError, match="OS501"):
        audit(service(start), 1)


def test_each_conversation_gets_a_mapping_of_its_own() -> None:
    def start(rows: list[int]) -> Callable[[Any], Any]:
        def answer(question: Any) -> Any:
            return noisy(len(rows), 1 / question.pop("epsilon"))

        return answer

    obj = service(start)
    driver = of_shapes([lambda: obj([1, 2])])
    assert driver is not None
    first, again = driver(obj([1])), driver(obj([1]))
    assert len(first) == len(again)
    assert [cell for cell in (*first, *again) if cell <= -1e9] == [-1e9] * 4  # costs below zero


CHARGED: list[float] = []
"""What a record of 5 pays for each answer."""


def _texts_with_a_mark(overlapping: bool) -> Callable[[Any], Callable[[Any], Any]]:
    """Return counts of ranges written as ``lo-hi``: a row in two of them pays twice, or is refused."""

    def start(rows: list[int]) -> Callable[[Any], Any]:
        asked: dict[str, tuple[int, int]] = {}

        def answer(question: Any) -> Any:
            low_text, mark, high_text = str(question).partition("-")
            if not (mark and low_text.isdecimal() and high_text.isdecimal()):
                return "write lo-hi"
            low, high = int(low_text), int(high_text)
            met = any(low < h and other < high for other, h in asked.values())
            if question in asked or (met and not overlapping):
                return "asked before"
            asked[question] = low, high
            CHARGED.append(float(low <= 5 < high))
            return {"count": noisy(sum(low <= r < high for r in rows), 1.0), "asked": len(asked)}

        return answer

    return start


def _own_costs(late: bool) -> Callable[[Any], Callable[[Any], Any]]:
    """Return counts at costs of a menu that no usual cost is on."""

    def start(rows: list[int]) -> Callable[[Any], Any]:
        menu, spent = (0.21, 0.84, 3.36), 0.0

        def answer(question: Any) -> Any:
            nonlocal spent
            cost = question["eps"]
            if cost not in menu or (spent >= 1 if late else spent + cost > 1):
                return {"error": "budget"}
            spent += cost
            CHARGED.append(cost)
            return {"value": noisy(len(rows), 1 / cost)}

        return answer

    return start


@pytest.mark.parametrize("start", [_texts_with_a_mark, _own_costs])
def test_what_a_wrong_queryable_is_asked_costs_more_than_it_claims(
    start: Callable[[bool], Callable[[Any], Callable[[Any], Any]]],
) -> None:
    """Counted without an audit: the costs of all answers that a record of 5 is in."""
    for wrong in (True, False):
        obj = service(start(wrong))
        driver = default_driver(obj, 1)
        assert driver is not None
        queryable = obj([5])
        CHARGED.clear()
        driver(queryable)
        assert (sum(CHARGED) > 1.5) == wrong
        assert wrong or 0 < sum(CHARGED) <= 1


@pytest.mark.long
@pytest.mark.parametrize("start", [_texts_with_a_mark, _own_costs])
def test_a_wrong_queryable_is_refuted_and_a_right_one_is_not(
    start: Callable[[bool], Callable[[Any], Callable[[Any], Any]]],
) -> None:
    assert refuted(service(start(True)), 1, SHORT).verdict == "refuted"
    assert audit(service(start(False)), 1, SHORT).verdict == "not refuted"


def test_what_is_refused_of_few_records_is_asked_of_many() -> None:
    def start(rows: list[int]) -> Callable[[Any], Any]:
        def answer(question: Any) -> Any:
            count = noisy(sum(r == question["value"] for r in rows), 1.0)
            return count if count > 20 else "too few"

        return answer

    driver = default_driver(service(start), 1)
    assert driver is not None
    assert driver.words.startswith("the question {'value': 1}")


class _Odd:
    """An answer that cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError


def _holding_itself() -> list[Any]:
    out: list[Any] = []
    out.append(out)
    return out


@pytest.mark.parametrize(
    "answer",
    tiered(
        [10**400, _holding_itself(), [_Odd()], np.datetime64("2024-01-01"), {1j: [None, {}]}],
        lambda answer: isinstance(answer, list) and isinstance(answer[0], _Odd),
    ),
    ids=lambda answer: type(answer).__name__,
)
def test_answers_that_are_hard_to_read_end_in_a_driver_or_in_a_refusal(answer: Any) -> None:
    obj, driver = service(lambda rows: lambda question: answer), None
    with suppress(AuditError):  # nobody can tell what to ask
        driver = default_driver(obj, 1)
    assert driver is None or driver(obj([1]))


def test_a_claim_of_nothing_is_no_error() -> None:
    made = dp.m.make_user_measurement(
        *ROWS,
        dp.max_divergence(),
        lambda rows: dp.new_queryable(lambda q, _: _Odd()),
        lambda d: 0.0,
    )
    with pytest.raises(AuditError, match="OS501"):
        default_driver(made, 1)


def test_a_queryable_that_a_program_keeps_is_asked_through_opendp() -> None:
    kept: list[Any] = []

    def release(rows: list[int]) -> Any:
        if len(kept) < 3:
            kept.append(dp.new_queryable(lambda question, _: 7 * question))
        return kept[-1]

    obj = dp.m.make_user_measurement(*ROWS, dp.max_divergence(), release, lambda d: 1.0)
    ended: list[int] = []
    asked = asked_directly(obj, lambda queryable: queryable(1), lambda: ended.append(1))
    assert asked is not None
    assert asked([]) == 7
    assert ended
