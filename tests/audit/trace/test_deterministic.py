"""What is calculated stands without draws only where nothing draws beside the tape; no error ends an audit."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.trace import bets as steps, repeated_calls as repeated
from opendp_sim.audit.trace.deterministic import stands_alone
from opendp_sim.audit.trace.disjoint_support import support_step
from opendp_sim.audit.trace.layer import _taken

NOISE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 5.0)


def tapes_of(function: Any, count: int = 2) -> list[list[Any]]:
    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, [function]):
        return [tape.run(function, [], "record")[1] for _ in range(count)]


@pytest.mark.parametrize(
    "coin",
    [
        lambda: os.getrandom(8),
        lambda: os.urandom(8),
        lambda: ssl.RAND_bytes(8),
        lambda: np.random.SeedSequence().entropy,
        lambda: __import__("uuid").uuid4().int,
    ],
)
def test_coins_of_the_system_are_on_the_tape(coin: Callable[[], Any]) -> None:
    first, second = tapes_of(lambda _: coin())
    assert len(first) == len(second) == 1
    assert first[0].value != second[0].value


def alone(function: Any) -> bool:
    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, [function]):
        return stands_alone(
            SimpleNamespace(
                tape=tape, function=function, apart=None, subject=SimpleNamespace(run=None)
            ),
            Pair([], [1], 1),
        )


def test_a_call_that_may_draw_speaks_against_a_calculation() -> None:
    assert alone(lambda r: NOISE(sum(sorted(r))) + int(np.cumsum([1, 2]).sum()))
    assert not alone(lambda r: NOISE(len(r)) + int(time.time() < 0))


def test_an_error_in_a_step_ends_that_step_only() -> None:
    tracer = SimpleNamespace(unfinished="")

    def odd_step(_: Any) -> Any:
        return [].pop()

    assert _taken(odd_step, tracer) is None
    assert tracer.unfinished == "the search for odd ended with IndexError"


def test_values_out_of_reach_are_asked_of_one_draw_only() -> None:
    """A pool draws at some calls and at others not: it had no first draw to look at."""
    view = SimpleNamespace(moved=True, foreign=True, draws=[None])
    found = SimpleNamespace(view=view, pair=Pair([], [1], 1))
    tape = Tape(None, np.random.default_rng(0))
    tracer = SimpleNamespace(
        seen=SimpleNamespace(best=[found]), left=lambda _=1.0: 9.0, tape=tape, function=len
    )
    assert support_step(tracer) is None


def test_a_calculated_excess_is_not_dropped_where_bets_run_out_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from opendp_sim.audit.trace import pipeline as verdicts

    def late(*_: Any) -> Any:
        raise verdicts.OutOfTimeError

    monkeypatch.setattr(verdicts, "_won_beside", late)
    monkeypatch.setattr(verdicts, "fits", lambda *_: True)
    tracer = SimpleNamespace(obj=len, rng=None, curve=SimpleNamespace(text="a curve"))
    asked: tuple[Any, ...] = tracer, Pair([], [1], 1), None, "", (lambda alpha: alpha, "4 times")
    found = verdicts._calculated(*asked, sure=True)
    assert found is not None
    assert (found.claimed, found.confidence) == ("a curve", steps.CALCULATED)
    with pytest.raises(verdicts.OutOfTimeError):
        verdicts._calculated(*asked, sure=False)


@pytest.mark.parametrize(
    ("answers", "words"),
    [([3, 3, 3, 3], "equal calls give equal answers"), ([3, -3, 5, -5], "comes again")],
)
def test_the_words_say_what_two_calls_have_in_common(answers: list[int], words: str) -> None:
    """A release that was kept for its dataset was told as noise that two calls cancel."""
    given = cycle(answers)
    subject = SimpleNamespace(run=lambda _: [next(given), next(given)])
    told = repeated._not_afresh(subject, Pair([], [1], 1))
    assert words in told
    assert "cancel" not in told
