"""Epsilon, delta and the absence of a ledger in sentences, whose numbers hold."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from opendp_sim.dsl.loss_in_words import delta_in_words, epsilon_in_words, in_words, spent_of
from opendp_sim.dsl.plan import plan_file
from tests._small import write_small

SPECS = Path(__file__).parents[2] / "specs"


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 1.0, 2.0, 7.7, 20.0])
def test_the_factor_is_never_too_small(epsilon):
    factor = float(re.search(r"at most (\S+) times", epsilon_in_words(epsilon)).group(1))
    assert math.exp(epsilon) <= factor <= math.exp(epsilon) * 1.01 + 0.01


def test_what_limits_nothing_says_so():
    assert "hardly anything" in epsilon_in_words(50.0)
    assert "hardly anything" in epsilon_in_words(math.inf)


def test_a_delta_is_an_addition_and_none_is_said():
    assert "delta 1e-06" in delta_in_words(1e-6)
    assert "no exceptions" in delta_in_words(0.0)


def test_a_ledger_is_asked_for_where_there_is_none(tmp_path):
    without = list(in_words(plan_file(SPECS / "digit-modes.yaml")))
    assert spent_of(plan_file(SPECS / "digit-modes.yaml")) == (1.0,)
    assert "no ledger counts" in without[-1]
    assert "no exceptions" in without[1]
    assert not any("no ledger" in text for text in in_words(plan_file(write_small(tmp_path))))
