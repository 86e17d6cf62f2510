"""Answers of any kind are heard: none ends an audit, and none has no end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.adversary.analyst import REFUSED, SILENT
from opendp_sim.audit.adversary.default_analysts import default_driver
from opendp_sim.audit.adversary.query_search import heard_of, is_answer
from opendp_sim.audit.seeds.constants import mined
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.core.errors import AuditError


class Exits:
    def __str__(self) -> str:
        raise SystemExit(3)

    __float__ = __str__  # type: ignore[assignment]
    __repr__ = __str__


class Endless(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield []


class Named(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit(4)


class Odd(metaclass=Named):
    def __str__(self) -> str:
        raise ValueError


def _itself() -> list[Any]:
    out: list[Any] = []
    out.append(out)
    return out


@pytest.mark.parametrize(
    ("answer", "cells"),
    [
        (None, (SILENT,)),
        (True, (1.0,)),
        (np.int64(3), (3.0,)),
        ([1, (2, "a")], (1.0, 2.0, "a")),
        ({"b": 1, "a": 2}, (2.0, 1.0)),
        (Exits(), ("Exits",)),
        ([1, Exits()], ("list",)),
        (Endless(), ("Endless",)),
        (_itself(), ("list",)),
        (Odd(), ("Odd",)),
        ("x" * 200, ("x" * 200,)),
        (list(range(1000)), tuple(map(float, range(16)))),
    ],
)
def test_an_answer_is_its_numbers_and_texts(answer: Any, cells: tuple[Any, ...]) -> None:
    assert heard_of(lambda _: answer, 1) == cells


@pytest.mark.parametrize("error", [dp.OpenDPException("FFI"), TypeError(), ValueError()])
def test_what_is_refused_is_no_answer(error: Exception) -> None:
    def refuses(_: Any) -> Any:
        raise error

    assert heard_of(refuses, 1) == (REFUSED,)
    assert not is_answer(heard_of(refuses, 1))


def test_an_interrupt_is_raised() -> None:
    class Stopped:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        heard_of(lambda _: Stopped(), 1)


def test_long_texts_are_short_and_stay_different() -> None:
    one, other = (heard_of(lambda _, end=end: "x" * 10**6 + end, 1)[0] for end in "ab")
    assert len(one) < 300
    assert one != other


def test_a_queryable_that_answers_a_measurement_now_and_then_is_asked_numbers() -> None:
    """It passed for one that evaluates measurements, and its own exception ended the audit."""

    def release(rows: list[int]) -> Any:
        turns = iter(range(10**9))

        def answer(question: Any) -> Any:
            return float("nan") if next(turns) % 3 == 0 else question + len(rows) * 0.0

        return dp.new_queryable(answer)

    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    obj = dp.m.make_user_measurement(*space, dp.max_divergence(), release, float)
    with suppress(AuditError):
        default_driver(obj, 1)


class Hooked(type):
    def __getattr__(cls, name: str) -> Any:
        raise RuntimeError(name)


class Program(metaclass=Hooked):
    @staticmethod
    def scaled(rows: list[int]) -> float:
        return len(rows) * 7919.0

    def __call__(self, rows: list[int]) -> float:
        return Program.scaled(rows)


class Numbered:
    __module__ = 3  # type: ignore[assignment]

    def go(self, rows: list[int]) -> float:
        return len(rows) * 7907.0


@pytest.mark.parametrize(
    "kept", [Program(), Numbered().go, lambda rows: Program.scaled(rows) + 1.0]
)
def test_classes_are_read_without_their_hooks(kept: Callable[[list[int]], float]) -> None:
    """A metaclass that raises, and a module that is a number, ended an audit."""
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    obj = dp.m.make_user_measurement(*space, dp.max_divergence(), kept, float)
    assert {7919.0, 7907.0} & mined(functions_of(obj)).numbers


@pytest.mark.long
def test_asking_for_what_a_question_is_made_of_has_an_end() -> None:
    """A queryable that asks for another key each time was asked for ever."""
    names = map(str, range(10**9))

    def answer(question: Any) -> float:
        return float(question["k" + next(names)])

    obj = dp.m.make_user_measurement(
        dp.vector_domain(dp.atom_domain(T=int)),
        dp.symmetric_distance(),
        dp.max_divergence(),
        lambda _: dp.new_queryable(answer),
        float,
    )
    begin = time.process_time()
    with suppress(AuditError):
        default_driver(obj, 1)
    assert time.process_time() - begin < 8
