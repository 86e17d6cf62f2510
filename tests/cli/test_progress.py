"""Progress shows a stage and the time: on a terminal one line, elsewhere a line every ten seconds."""

from __future__ import annotations

import io
import re
import sys
import time

from opendp_sim.cli import _progress
from opendp_sim.cli._progress import progress
from opendp_sim.cli.output.quiet import hush


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _shown(monkeypatch, stream, rows=1):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(_progress, "EVERY", 0.01)
    monkeypatch.setattr(_progress, "_FIRST", 0.01)
    monkeypatch.setattr(_progress, "_REDRAW", 0.01)
    with progress("planning") as change:
        time.sleep(0.05)
        change("building", rows)
        time.sleep(0.05)
    done = stream.getvalue()
    time.sleep(0.03)
    assert stream.getvalue() == done, "it went on after its end"
    return done


def test_lines_hold_a_stage_and_seconds_and_no_count(monkeypatch):
    lines = _shown(monkeypatch, io.StringIO(), rows=987_654).splitlines()
    assert {line.partition(",")[0] for line in lines} == {"planning", "building"}
    assert all(re.fullmatch(r"[a-z]+, 0 s", line) for line in lines)


def test_a_terminal_has_one_line_which_is_empty_at_the_end(monkeypatch):
    text = _shown(monkeypatch, _Terminal())
    assert "\n" not in text
    *drawn, last, cursor = text.split("\r")
    assert {line.strip() for line in drawn} == {"", "planning, 0 s", "building, 0 s"}
    assert (last.strip(), cursor) == ("", "")


def test_quiet_shows_nothing(monkeypatch):
    hush(on=True)
    try:
        assert _shown(monkeypatch, io.StringIO()) == ""
    finally:
        hush(on=False)


def test_a_stream_that_takes_nothing_ends_no_work(monkeypatch):
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, text)

    assert _shown(monkeypatch, Full()) == ""
