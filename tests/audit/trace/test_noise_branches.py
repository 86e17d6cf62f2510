"""A branch on the noise may hide between the values that are tried: it is not calculated alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.trace.pipeline import decides_by_noise

WHOLE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 10_000.0)
REAL = dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), 2.0)
CELLS = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), 1.0)


def decides(function: Callable[[Any], Any]) -> bool:
    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, [function]):
        _, draws = tape.run(function, [1], "record")
        return decides_by_noise(tape, function, (([1], tuple(draws)),))


@pytest.mark.parametrize(
    "function",
    [
        lambda rows: v if (v := WHOLE(len(rows))) % 9973 != 4321 else 0,
        lambda rows: 0 if abs(WHOLE(len(rows)) - len(rows)) > 9 else 1,
        lambda rows: 0 if (WHOLE(len(rows)) * 0.5 + 1) // 7 == 3 else 1,
        lambda rows: 0.0 if 0.25 < REAL(float(len(rows))) * 2 < 0.2501 else 1.0,
        lambda rows: [0, 0] if sum(CELLS([len(rows)] * 2)) == 17 else [1, 1],
        lambda rows: WHOLE(len(rows)) and 1,
        lambda rows: {7: 1}.get(WHOLE(len(rows)), 0),
        lambda rows: 0.0 if repr(REAL(float(len(rows)))).endswith("123") else 1.0,
        lambda rows: 0.0 if f"{WHOLE(len(rows)):x}"[-1] == "7" else 1.0,
        lambda rows: 0.0 if round(REAL(float(len(rows))), 6) == 0.25 else 1.0,
        lambda rows: 0.0 if math.floor(1e6 * REAL(float(len(rows)))) == 7 else 1.0,
        lambda rows: 0.0 if REAL(float(len(rows))) ** 2 < 1e-6 else 1.0,
        lambda rows: 0.0 if 0.5 + WHOLE(len(rows)) == 7.5 else 1.0,
        lambda rows: 0.0 if REAL(float(len(rows))).is_integer() else 1.0,
        lambda rows: [1] * min(len(rows), 2) * WHOLE(0),
    ],
)
def test_what_is_decided_by_noise_is_told(function: Callable[[Any], Any]) -> None:
    assert decides(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda rows: WHOLE(len(rows)),
        lambda rows: {"n": 2 * WHOLE(len(rows)) - 1, "of": len(rows) > 3},
        lambda rows: round(REAL(float(len(rows))) / 3, 2),
        lambda rows: 0.5 + 1.5 * WHOLE(len(rows)) ** 2,
        lambda rows: [sum(CELLS([len(rows)] * 3)), *CELLS([1, 2])],
    ],
)
def test_arithmetic_with_noise_is_no_decision(function: Callable[[Any], Any]) -> None:
    assert not decides(function)
