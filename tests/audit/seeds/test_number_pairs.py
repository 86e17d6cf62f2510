"""Records halfway between two others, and as many records as the code names."""

from __future__ import annotations

import re
from typing import Any

import opendp.prelude as dp
import pytest

from opendp_sim.audit.seeds.from_code import between
from tests.audit.growing import refuted

dp.enable_features("contrib", "honest-but-curious")


def test_the_one_halfway_halves_a_gap_that_the_code_names() -> None:
    known = (0, 1, 5, -5, 10)
    assert list(between(known, 2)) == [((-5, 5), 0), ((0, 10), 5)]


@pytest.mark.parametrize("known", [(), ("a", 5), (True, 5), ((0, 1), 5)])
def test_of_other_records_there_is_none(known: tuple[Any, ...]) -> None:
    assert list(between(known, 0)) == []


def test_no_end_is_outside_of_what_is_known() -> None:
    known = (0.0, 2.0, float("inf"), float("nan"), -3.0)
    assert list(between(known, 1)) == []


def sentences(*, exact: bool) -> Any:
    """Answers in words, which a small group suppresses: by its exact number, or by the noisy one."""
    noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)

    def release(rows: list[str]) -> str:
        n = sum(bool(re.fullmatch(r"\s*[0-9]{1,3}\s*", row)) for row in rows)
        noisy = noise(n)
        return "too few" if (n if exact else noisy) < 10 else f"about {noisy}"

    texts = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
    return dp.m.make_user_measurement(*texts, dp.max_divergence(), release, float)


def test_a_bar_is_tried_with_records_that_move_something() -> None:
    """The simplest texts, which the code does not read, stood at the bar."""
    found = refuted(sentences(exact=True), 1)
    assert found.verdict == "refuted"
    assert found.witness is not None
