"""A user's interactive release is asked in Python, a hundred times as fast, and says what OpenDP's says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import opendp.core
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.instrument.python_queryable import asked_directly
from tests.audit.growing import refuted
from tests.audit.test_sound_programs import BRIEF

ROWS = dp.vector_domain(dp.atom_domain(T=int, bounds=(0, 10))), dp.symmetric_distance()
NOISE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 4.0)
SHORT = replace(BRIEF, trace_seconds=5.0, seconds=5.0, scan_seconds=0.5, total=7.0)


def session(answer_of: Callable[[list[int], list[int], int], Any], epsilon: float) -> Any:
    def start(rows: list[int]) -> Any:
        asked: list[int] = []

        def answer(query: int, internal: bool) -> Any:
            assert not internal
            asked.append(query)
            return answer_of(rows, asked, query)

        return dp.new_queryable(answer, Q=int, A=int)

    return dp.m.make_user_measurement(*ROWS, dp.max_divergence(), start, lambda d: epsilon * d)


def free_again(rows: list[int], asked: list[int], query: int) -> int:
    """A question that was asked before costs nothing, and its noise is fresh."""
    if len(set(asked)) > 2:
        raise ValueError("no budget left")
    return NOISE(sum(r >= query for r in rows))


def counted(rows: list[int], asked: list[int], query: int) -> int:
    if len(asked) > 2:
        raise ValueError("no budget left")
    return NOISE(sum(r >= query for r in rows))


def drive(queryable: Any) -> list[Any]:
    heard: list[Any] = []
    for _ in range(8):
        try:
            heard.append(queryable(3))
        except dp.OpenDPException:
            heard.append("refused")
    return heard


@pytest.mark.long
def test_a_service_that_answers_again_for_nothing_is_refuted() -> None:
    report = refuted(session(free_again, 0.5), 1, budget=SHORT, drive=drive)
    assert report.verdict == "refuted"
    assert report.layer == "LT trace"


@pytest.mark.long
def test_one_that_counts_its_questions_is_not() -> None:
    brief = replace(BRIEF, trace_seconds=0.5, seconds=0.5)
    assert audit(session(counted, 0.5), 1, budget=brief, drive=drive).verdict == "not refuted"


def test_a_conversation_in_python_is_that_with_the_object() -> None:
    exact = session(lambda rows, asked, query: sum(rows) + 100 * len(asked) + query, 1.0)
    run = asked_directly(exact, lambda q: [q(1), q(2)], lambda: None)
    assert run is not None
    assert run([3, 4]) == [q := exact([3, 4]), q(1), q(2)][1:]
    assert opendp.core.new_queryable is dp.new_queryable
    assert not hasattr(dp.new_queryable, "transition")
    refusing = session(counted, 0.5)
    asked = asked_directly(refusing, drive, lambda: None)
    assert asked is not None
    assert asked([1])[2:] == drive(refusing([1]))[2:] == ["refused"] * 6


def test_a_question_is_handed_on_as_opendp_does() -> None:
    """A list is copied on the way: a driver that changes it later would change what was paid for."""
    asked: list[Any] = []
    ended: list[bool] = []

    def make(kind: Any) -> Any:
        def start(_: list[int]) -> Any:
            def answer(query: Any, internal: bool) -> Any:
                del internal
                asked.append(query)
                return len(asked)

            return dp.new_queryable(answer, Q=kind, A="i32")

        return dp.m.make_user_measurement(*ROWS, dp.max_divergence(), start, lambda d: 1.0 * d)

    for kind, query, same in (("Vec<i32>", [1], False), ("ExtrinsicObject", [1], True)):
        for chain in (make(kind), asked_directly(make(kind), lambda q: q, lambda: None)):
            asked.clear()
            assert chain([1])(query) == 1
            assert (asked[0] is query) == same
    for query in (2.5, 2**40, True):
        run = asked_directly(make(int), lambda q, at=query: q(at), lambda: ended.append(True))
        assert run is not None
        with pytest.raises(dp.OpenDPException):
            run([1])
    assert ended == [True] * 3


def test_what_is_not_the_users_is_left() -> None:
    assert asked_directly(NOISE, drive, lambda: None) is None
