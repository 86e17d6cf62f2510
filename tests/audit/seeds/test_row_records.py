"""Records of several parts are made of the words and numbers of the code."""

from __future__ import annotations

from typing import Any

import opendp.prelude as dp
import pytest

from opendp_sim.audit.options import searched_space
from opendp_sim.audit.seeds.constants import Mined
from opendp_sim.audit.seeds.from_code import differs, rows_like
from opendp_sim.audit.subject import read_subject
from opendp_sim.core.randomness import public_generator

FOUND = Mined(numbers={100.0, 0.5}, words={"hr", "it"}, listed={"hr", "it"})


def test_one_part_or_all_of_them_are_what_the_code_names() -> None:
    rows = list(rows_like(("a", 1), FOUND))
    assert {("it", 1), ("hr", 1), ("a", 100), ("it", 100), ("hr", 0)} <= set(rows)
    assert all(type(row) is tuple and type(row[1]) is int for row in rows)


@pytest.mark.parametrize("sample", [(), (True, None), [1.5, "a"], ((1, 2), "a")])
def test_parts_of_other_kinds_stay_as_they_are(sample: Any) -> None:
    rows = list(rows_like(sample, FOUND))
    assert all(type(row) is type(sample) and len(row) == len(sample) for row in rows)
    for place, part in enumerate(sample):
        if not isinstance(part, (str, int, float)) or isinstance(part, bool):
            assert all(row[place] == part for row in rows)


def test_values_are_told_apart_by_what_they_are() -> None:
    assert differs([1, 1.0, True, [1], [1], (1,)]) == [1, 1.0, True, [1], (1,)]


def test_a_domain_that_only_says_who_is_a_member_gets_rows_of_the_code() -> None:
    def member(rows: Any) -> bool:
        return isinstance(rows, list) and all(
            isinstance(r, tuple) and len(r) == 2 and type(r[0]) is str and type(r[1]) is int
            for r in rows
        )

    domain = dp.user_domain("rows", member)
    made = dp.m.make_user_measurement(
        domain, dp.symmetric_distance(), dp.max_divergence(), lambda rows: 0, float
    )
    space = searched_space(read_subject(made, 1), 1, (), None, FOUND)
    records = {repr(r) for pair in space.corners(public_generator(0, "t")) for r in pair.right}
    assert {"('it', 100)", "('hr', 100)"} <= records
