"""What is calculated is priced until draws confirm it; no error ends an audit."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import OutOfTimeError, Tape
from opendp_sim.audit.trace import bets, repeated_calls as repeated, suspicious_pairs
from opendp_sim.audit.trace.bets import CALCULATED
from opendp_sim.audit.trace.layer import _taken
from opendp_sim.audit.trace.one_draw import support_step


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


def test_an_error_in_a_step_ends_that_step_only() -> None:
    tracer = SimpleNamespace(unfinished="")

    def odd_step(_: Any) -> Any:
        return [].pop()

    assert _taken(odd_step, tracer) is None
    assert tracer.unfinished == "the search for odd ended with IndexError"


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("size", [2, 5])
def test_opposed_blocks_are_neighbours(size: int, monotone: bool) -> None:
    """Many answers move at once, some up and some down; only one way under a monotone distance."""
    blocks = suspicious_pairs._blocks(size, 3, monotone=monotone)
    moves = [[b - a for a, b in zip(left, right, strict=True)] for left, right in blocks]
    assert all(max(map(abs, move)) == 3 for move in moves)
    assert any(min(move) < 0 for move in moves) == (not monotone)


def test_values_out_of_reach_are_asked_of_one_draw_only() -> None:
    """A pool draws at some calls and at others not: it had no first draw to look at."""
    view = SimpleNamespace(moved=True, foreign=True, draws=[None])
    found = SimpleNamespace(view=view, pair=Pair([], [1], 1))
    tape = Tape(None, np.random.default_rng(0))
    tracer = SimpleNamespace(
        seen=SimpleNamespace(best=[found]), left=lambda _=1.0: 9.0, tape=tape, function=len
    )
    assert support_step(tracer) is None


def test_a_calculated_excess_is_priced_where_bets_run_out_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(*_: Any, **__: Any) -> Any:
        raise OutOfTimeError

    monkeypatch.setattr(bets, "lean_bets", late)
    kept: list[Any] = []
    tracer: Any = SimpleNamespace(price=kept.append, left=lambda: 1.0, risk=float, curve=None)
    price = Evidence("loss", "", "a curve", "4 times", Pair([], [1], 1), None, CALCULATED)
    with pytest.raises(OutOfTimeError):
        bets.confirmed(tracer, price, len, [(len, "releases", 1.0)])  # type: ignore[list-item]
    assert kept == [price]


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
