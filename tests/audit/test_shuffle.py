"""An order drawn in place is on the tape: forced again, the run is the same."""

from __future__ import annotations

import random
from random import gauss, shuffle
from typing import Any

import numpy as np
import pytest

from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape

RNG = np.random.default_rng(3)


def _by_module(rows: list[int]) -> list[int]:
    out = list(rows)
    random.shuffle(out)
    return out


def _by_copy(rows: list[int]) -> list[int]:
    out = list(rows)
    shuffle(out)
    return out


def _by_generator(rows: list[int]) -> list[int]:
    out = np.array(rows)
    RNG.shuffle(out)
    return out.tolist()  # type: ignore[no-any-return]


def _by_legacy(rows: list[int]) -> list[int]:
    out = np.array(rows)
    np.random.shuffle(out)
    return out.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("function", [_by_module, _by_copy, _by_generator, _by_legacy])
def test_an_order_is_recorded_and_forced(function: Any) -> None:
    tape, rows = Tape(None, np.random.default_rng(0)), list(range(40))
    with tapped(tape, [function]):
        out, draws = tape.run(function, rows, "record")
        again, _ = tape.run(function, rows, "force", [d.value for d in draws])
        shorter, _ = tape.run(function, rows[:5], "force", [d.value for d in draws])
        longer, _ = tape.run(function, [*rows, 40, 41], "force", [d.value for d in draws])
    assert len(draws) == 1
    assert sorted(out) == rows != out == again
    assert sorted(shorter) == rows[:5]
    assert sorted(longer) == [*rows, 40, 41]
    assert function(rows) != rows


def test_a_function_that_was_copied_from_its_module_is_on_the_tape() -> None:
    tape, one = Tape(None, np.random.default_rng(0)), gauss

    def noisy(rows: list[int]) -> float:
        return len(rows) + one(0.0, 2.0) + gauss(0.0, 1.0)

    with tapped(tape, [noisy]):
        out, draws = tape.run(noisy, [1], "record")
        again, _ = tape.run(noisy, [1], "force", [d.value for d in draws])
    assert len(draws) == 2
    assert out == again
