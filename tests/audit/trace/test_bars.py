"""Pairs at a bar: counts stand where the code compares them, and one more record moves a part of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from opendp_sim.audit.findings import Budget
from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.audit.seeds.constants import mined
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.audit.subject import read_subject
from opendp_sim.audit.trace import undisclosed_noise as bars
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.undisclosed_noise import at_bars, split_at_bars
from tests.audit.opaque.kit import PURE, SYMMETRIC, laps, opaque, whole

VECTOR = laps(1.0)
RNG = np.random.default_rng()


def _counts(rows: list[int]) -> list[int]:
    return [sum(row <= place for row in rows) for place in range(40)]


def many_answers(rows: list[int]) -> list[bool]:
    """Answer all questions on the budget of one."""
    bar, *noisy = VECTOR([12, *_counts(rows)])
    return [a >= bar for a in noisy]


def own_noise(rows: list[int]) -> list[bool]:
    """Do the same with noise that no tape knows the argument of."""
    noise = RNG.geometric(0.6, 41) - RNG.geometric(0.6, 41)
    return [a + z >= 12 + noise[-1] for a, z in zip(_counts(rows), noise, strict=False)]


def plain_counts(rows: list[int]) -> list[int]:
    """Release counts: no bar is in them."""
    return VECTOR([len(rows) + 12, *_counts(rows)])


def _tracer(function: Any, monkeypatch: pytest.MonkeyPatch) -> Tracer:
    monkeypatch.setattr(bars, "_SECONDS", 60.0)
    obj = opaque(whole(), SYMMETRIC, PURE, function, lambda d: 2.0 * d)
    found, space = functions_of(obj), space_of(obj.input_domain, obj.input_metric, 1)
    rng = np.random.default_rng(0)
    subject = read_subject(obj, 1)
    return Tracer(subject, space, 1, Budget.of("quick"), rng, 1e-3, (), found, mined(found))


def test_a_dataset_at_the_bar_gets_a_record_that_moves_a_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tracer = _tracer(many_answers, monkeypatch)
    with tracer.hooked():
        tracer.prepare()
        first = split_at_bars(tracer)[0]
    assert first.left == [0] * 12
    (more,) = (Counter(first.right) - Counter(first.left)).elements()
    assert 8 <= more < 32


def test_sizes_where_the_answer_changes_are_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in (many_answers, own_noise, plain_counts):
        tracer = _tracer(program, monkeypatch)
        with tracer.hooked():
            tracer.prepare()
            named = {len(p.left) for bar, p in at_bars(tracer) if bar}
        assert (12 in named) == (program is not plain_counts)
        assert 40 not in named
