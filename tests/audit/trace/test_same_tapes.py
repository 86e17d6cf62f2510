"""Pairs are ordered by what their outputs are on the same draws, where no draw has a law."""

from __future__ import annotations

import secrets
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import look
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.trace.undisclosed_noise import _apart, apart_on_same_tapes
from opendp_sim.core.randomness import public_generator

CLAIM = ("epsilon", 1.0, 0.0)


def _tracer(function: Any, pairs: list[Pair]) -> Any:
    """Return what the order needs of a tracer."""
    rng = public_generator(0, "test")
    tape = Tape(None, rng)
    space = SimpleNamespace(corners=lambda _: iter(pairs), draw=lambda _: pairs[0])
    out = SimpleNamespace(
        tape=tape,
        function=function,
        space=space,
        rng=rng,
        claim=CLAIM,
        hidden=False,
        direct=True,
        left=lambda: 5.0,
    )
    with tapped(tape, [function]):
        view = look(tape, function, pairs[0], CLAIM)
    out.seen = SimpleNamespace(best=[SimpleNamespace(view=view, pair=pairs[0])])
    return out


def _ordered(function: Any, pairs: list[Pair]) -> list[Pair]:
    tracer = _tracer(function, pairs)
    with tapped(tracer.tape, [function]):
        return list(apart_on_same_tapes(tracer))


def _chosen(rows: list[int]) -> int:
    """Return a place by cumulated weights: each record has a hundredth part of the first one's weight."""
    weights = np.cumsum([1.0, *(0.01 * row for row in rows)])
    return int(
        np.searchsorted(weights / weights[-1], secrets.randbelow(2**53) / 2**53, side="right")
    )


def test_the_pair_whose_outputs_are_furthest_apart_comes_first() -> None:
    pairs = [Pair([1], [1, 2], 1), Pair([1], [1, 900], 1), Pair([], [1], 1)]
    assert _ordered(_chosen, pairs)[0] is pairs[1]


def test_pairs_that_are_alike_on_all_tapes_are_left_out() -> None:
    assert _ordered(_chosen, [Pair([1], [1, 2], 1), Pair([], [1], 1)]) == []


def test_there_is_no_order_of_what_keeps_other_draws_or_none() -> None:
    def many(rows: list[int]) -> float:
        return sum(np.random.default_rng().random() for _ in range(9)) + len(rows)

    assert _ordered(many, [Pair([], [1], 1)]) == []
    assert _ordered(len, [Pair([], [1], 1)]) == []


@pytest.mark.parametrize(
    ("first", "second", "positive"),
    [
        ([0] * 24 + [1] * 24, [0] * 24 + [1] * 24, False),
        ([0] * 48, [0] * 4 + [1] * 44, True),
        ([float(i) for i in range(48)], [float(i) + 100 for i in range(48)], True),
        ([float(i) for i in range(48)], [float(i) + 0.5 for i in range(48)], False),
        (["a"] * 48, ["b"] * 48, True),
        ([[i, i] for i in range(48)], [[i] for i in range(48)], False),
    ],
)
def test_what_is_likelier_than_allowed_on_the_tapes(
    first: list[Any], second: list[Any], positive: bool
) -> None:
    assert (_apart(first, second, 1.0) > 0) == positive
