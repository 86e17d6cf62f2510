"""The coupling of two random outputs: which are told apart, and what one test costs."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import opendp.prelude as dp

from opendp_sim.audit import audit
from opendp_sim.audit.checks.stability import couple
from opendp_sim.audit.generators.neighbours import Pair
from tests.audit.test_sound_programs import BRIEF

PAIR = Pair([1, 2], [1, 2, 3], 1)


def _apart(left: Any, right: Any) -> float:
    return float(abs(len(left) - len(right)))


def test_a_coin_for_both_sides_has_a_coupling() -> None:
    coins = np.random.default_rng(1)
    found = couple(lambda x: [] if coins.random() < 0.5 else x, PAIR, _apart, 1.0, 1e-6)
    assert found.evidence is None


def test_a_longer_list_that_is_doubled_has_none() -> None:
    coins = np.random.default_rng(2)
    found = couple(lambda x: x * (2 + (coins.random() < 0.1)), PAIR, _apart, 1.0, 1e-6)
    assert found.evidence is not None
    assert found.evidence.claimed == 1.0


def test_outputs_that_have_no_bytes_are_each_their_own() -> None:
    class Shy:
        def __reduce__(self) -> Any:
            raise TypeError

    seen: list[int] = []

    def distance(left: Any, right: Any) -> float:
        seen.append(1)
        return 0.0 if left is right else math.inf

    assert couple(lambda _: Shy(), PAIR, distance, 1.0, 1e-6).evidence is None
    assert len(seen) > 1000


def repeated() -> Any:
    """Return all records two or three times by chance: one more is two or three changes."""
    rows = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()

    def some(values: list[int]) -> list[int]:
        return values * random.choice((2, 3))  # noqa: S311

    return dp.t.make_user_transformation(*rows, *rows, some, lambda d: d)


def test_records_that_are_repeated_by_chance_are_told_apart() -> None:
    dp.enable_features("contrib", "honest-but-curious")
    report = audit(repeated(), 1, BRIEF)
    assert report.verdict == "refuted"
    assert "no coupling of the two random outputs" in str(report)
