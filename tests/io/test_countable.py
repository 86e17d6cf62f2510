"""Fewer than 2**31 records: counted while streaming, refused in a text that says no number."""

from __future__ import annotations

import io
import sys
import time

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.cli import _progress
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.arithmetic.countable import TOO_MANY, countable, need_countable
from opendp_sim.core.errors import DataError
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import Rows
from opendp_sim.io.gate import gated_blocks
from tests.cases import cases

SKETCHES = sorted(k for k, c in cases().items() if c.mechanism.room == "sketches")


@pytest.mark.parametrize("sizes", [(TOO_MANY,), (TOO_MANY - 1, 1), (2**30, 2**30)])
def test_too_many_records_are_refused_while_streaming(sizes):
    blocks = [Rows(np.broadcast_to(np.zeros(1), (n, 1))) for n in sizes]  # no memory
    with pytest.raises(DataError, match="OS610") as caught:
        list(countable(blocks))
    assert str(sum(sizes)) not in str(caught.value)
    assert len(list(countable(blocks[:-1]))) == len(blocks) - 1
    need_countable(TOO_MANY - 1)


@pytest.mark.parametrize("key", SKETCHES)
def test_a_sketch_in_memory_counts_too(key):
    case = cases()[key]
    claim = case.claim()
    if claim.accumulate is None:
        pytest.skip("counts blocks")
    vast = (
        Rows(np.broadcast_to(np.zeros(1), (TOO_MANY, case.domain.width)))
        if hasattr(case.domain, "width")
        else {"who": np.broadcast_to(np.zeros(1), TOO_MANY)}
    )
    with pytest.raises(DataError, match="OS610"):
        whole_function(claim)(vast)


def test_every_source_is_counted_behind_its_gate(monkeypatch):
    monkeypatch.setattr("opendp_sim.core.arithmetic.countable.TOO_MANY", 7)
    records = Records((Column("x", "int64", bounds=(0.0, 9.0)),))

    class Two:
        def __init__(self, rows):
            self.rows, self.records = rows, records

        def blocks(self, _rows=None):
            return iter([{"x": np.zeros(n, dtype=np.int64)} for n in self.rows])

    for mode in ("refuse", "enforce", "assume"):
        assert len(list(gated_blocks(Two((3, 3)), mode)())) == 2
        with pytest.raises(DataError, match="OS610"):
            list(gated_blocks(Two((3, 4)), mode)())


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("size", [7919, 7920])
def test_the_bar_says_no_number_of_records(monkeypatch, size):
    screen = _Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(_progress, "_FIRST", 0.0)
    monkeypatch.setattr(_progress, "_REDRAW", 0.001)
    with _progress.progress("planning") as told:
        for stage in ("checking", "building"):
            told(stage, size)
            for _ in range(2000):
                if stage in screen.getvalue():
                    break
                time.sleep(0.005)
    text = screen.getvalue()
    assert "checking" in text
    assert "building" in text
    for word in (str(size), f"{size:,}", str(3 * size), f"{3 * size:,}", "records"):
        assert word not in text
