"""Strangers' programs (``corpus/``): each says what breaks it and why its sound version keeps its claim.

The whole corpus is run by ``benchmarks/audit_opaque.py --corpus strangers``.
"""

from __future__ import annotations

from dataclasses import replace

import opendp.prelude as dp
import pytest

from opendp_sim.audit import Effort, audit
from tests._tiers import some, tiered
from tests.audit.corpus import programs
from tests.audit.growing import refuted

BY_NAME = {program.name: program for program in programs()}
BRIEF = replace(
    Effort.of("quick"), seconds=0.4, trace_seconds=0.5, stability_seconds=0.2, total=0.8
)
EXACT = (
    "map/constant_in_d",
    "categories/blue_also_other",
    "nan/overflow_bin_and_missing_bin",
    "t/padded_to_an_even_number",
    "variance/popoviciu_as_sensitivity",
)
"""Transformations whose distances decide at once."""
DRAWN = (
    "histogram/keys_from_data_pure",
    "stream/running_totals_charged_once",
    "sum/bound_from_data",
)


def test_every_program_says_what_breaks_it_and_why_the_other_is_sound() -> None:
    assert len(BY_NAME) == len(programs()) == 53 + 59 + 63 + 12 + 20 + 26
    for program in programs():
        assert program.fault
        assert program.sound
        for broken in (True, False):
            assert isinstance(program.make(broken), dp.Measurement | dp.Transformation)


@pytest.mark.parametrize("name", tiered([*EXACT, *DRAWN], EXACT.__contains__))
def test_a_stranger_s_fault_is_found(name: str) -> None:
    program = BY_NAME[name]
    assert refuted(program.make(True), program.d_in).verdict == "refuted"


@pytest.mark.few(1)
@pytest.mark.parametrize("name", some(sorted(BY_NAME)[::20], 9))
def test_its_sound_version_is_not_refuted(name: str) -> None:
    program = BY_NAME[name]
    report = audit(program.make(False), program.d_in, BRIEF, **program.options)
    assert report.verdict != "refuted", str(report)
