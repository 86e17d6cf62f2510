"""Two questions in turns: bare answers of yes and no that never end hide one noise from each alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.adversary.analyst import REFUSED, SILENT
from opendp_sim.audit.adversary.query_search import Turns
from tests.audit.growing import refuted

ROWS = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()


def _asked(answer: Callable[[Any], tuple[Any, ...]]) -> tuple[list[Any], Callable[[Any], Any]]:
    questions: list[Any] = []

    def ask(question: Any) -> tuple[Any, ...]:
        questions.append(question)
        return answer(question)

    return questions, ask


def test_both_questions_are_asked_as_often_and_in_turns() -> None:
    questions, ask = _asked(lambda question: (float(question == "a"),))
    assert Turns("a", "b", [])([(0.0,), (1.0,)], ask) == (100.0, 100.0, 0.0)
    assert questions == ["a", "b"] * 100


@pytest.mark.parametrize(
    "heard",
    [
        [(1.0,), *[(REFUSED,)] * 4],
        [(1.0,), *[(SILENT,)] * 4],
        [(17.0,)],
        [(0.5,)],
        [("yes", 1.0)],
        [],
    ],
)
def test_numbers_and_refusals_are_not_asked_for_again(heard: list[tuple[Any, ...]]) -> None:
    questions, ask = _asked(lambda _: (1.0,))
    assert Turns("a", "b", [])(heard, ask) == (0.0, 0.0, 0.0)
    assert not questions


def bars(epsilon: float, answers: tuple[Any, Any], *, ends: bool) -> Any:
    """Say whether counts of ranges are above bars; the sound version ends at the first that is."""
    generator = np.random.default_rng()

    def release(rows: list[int]) -> Any:
        bar, ended = generator.laplace(0, 2 / epsilon), [False]

        def answer(question: Any) -> Any:
            low, high, least = question
            if ended[0]:
                return answers[1]
            count = sum(low <= row <= high for row in rows)
            above = count - least + generator.laplace(0, 4 / epsilon) >= bar
            ended[0] = ends and above
            return answers[0] if above else answers[1]

        return dp.new_queryable(answer)

    return dp.m.make_user_measurement(*ROWS, dp.max_divergence(), release, lambda d: epsilon * d)


@pytest.mark.long
@pytest.mark.parametrize("answers", [("above", "below"), (True, False)])
def test_a_sparse_vector_that_never_ends_is_refuted(answers: tuple[Any, Any]) -> None:
    """Each answer alone, and all answers to one question, are hidden by the noise of the bar."""
    assert refuted(bars(2.0, answers, ends=False), 1)
    assert audit(bars(2.0, answers, ends=True), 1).verdict == "not refuted"
