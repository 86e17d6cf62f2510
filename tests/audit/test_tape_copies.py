"""Programs that write to what they drew, to what they asked, or to what they released: the tape stays as it was."""

from __future__ import annotations

from array import array
from collections import Counter, deque

import numpy as np
import opendp.prelude as dp

from opendp_sim.audit import audit
from opendp_sim.audit.checks.structure import Call, recorded_calls
from opendp_sim.audit.generators.copies import copied
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import decode
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.state.reachable import functions_of
from tests.audit.opaque.kit import PURE, SYMMETRIC, opaque, whole
from tests.audit.test_sound_programs import BRIEF

CELLS = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
NOISE = dp.m.make_laplace(*CELLS, 10.0)


def over_the_draw(rows: list[int]) -> list[int]:
    """One noisy cell, released twice."""
    out = NOISE([len(rows)] * 2)
    out[0] = out[1]
    return out


def over_foreign_noise(rows: list[int]) -> list[float]:
    out = np.random.default_rng().normal(0.0, 1.0, 2)
    out *= 10.0
    out += len(rows)
    return list(map(float, out))


def test_a_noisy_cell_that_is_shown_twice_is_no_two_noisy_cells() -> None:
    """It was: the draw on the tape became what the program had written over it."""
    for program, shows in ((over_the_draw, False), (over_foreign_noise, True)):
        tape = Tape(None, np.random.default_rng(0))
        with tapped(tape, functions_of(program)):
            assert (decode(tape, program, Pair([1], [], 1)) is not None) is shows


def test_what_a_composition_was_asked_and_answered_is_kept() -> None:
    calls: list[Call] = []
    with recorded_calls(calls, None):
        cells = [3, 3]
        out = NOISE(cells)
        seen = list(out)
        cells.clear()
        out.clear()
    assert (calls[0].argument, calls[0].release) == ([3, 3], seen)


def test_copies_share_nothing_that_can_be_written_to() -> None:
    whole_of = [1, [2, {"a": [3]}], ({4}, np.arange(3)), deque([5]), array("i", [6]), Counter("ab")]
    again = copied(whole_of)
    assert repr(again) == repr(whole_of)
    whole_of[1][1]["a"].append(0)
    whole_of[2][0].add(0)
    whole_of[2][1][0] = 9
    for kept in whole_of[3:]:
        kept.clear() if not isinstance(kept, array) else kept.pop()
    assert repr(again) == repr(
        [1, [2, {"a": [3]}], ({4}, np.arange(3)), deque([5]), array("i", [6]), Counter("ab")]
    )
    assert copied(fixed := (1.0, "a")) == fixed
    assert copied(generator := np.random.Generator(np.random.PCG64(0))) is generator


def test_a_program_that_shows_one_noisy_cell_twice_is_sound() -> None:
    obj = opaque(whole(), SYMMETRIC, PURE, over_the_draw, lambda d: d / 10)
    assert audit(obj, 1, budget=BRIEF).verdict == "not refuted"
