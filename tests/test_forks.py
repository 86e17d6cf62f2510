"""A command in a fork is what it is in a process of its own; what it may not do is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from tests import _forks
from tests._forks import Ended, forked, tally

SPECS = Path(__file__).parents[1] / "specs"
MAIN = "from opendp_sim._entry import main; main()"


def test_a_fork_says_what_a_fresh_process_says():
    arguments = ["check", "digit-density.yaml"]
    fresh = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        cwd=SPECS,
        capture_output=True,
        text=True,
        check=False,
    )
    ended = forked(arguments, SPECS)
    assert (ended.code, ended.said, ended.complained) == (
        fresh.returncode,
        fresh.stdout,
        fresh.stderr,
    )
    assert not ended.sick


def test_a_sick_command_is_told():
    assert Ended(0, "", "").sick == ""
    assert Ended(1, "", "Traceback (most recent call last):").sick == "internal"
    assert Ended(70, "", "error[OS903]").sick == "internal"
    assert Ended(-signal.SIGSEGV, "", "").sick == "crashed"
    assert Ended(0, "", "", peak=2000.0).sick.startswith("took")
    assert Ended(0, "", "", cpu=6.0).sick.startswith("hung")
    assert Ended(0, "", "", late=True).sick.startswith("hung")


def test_a_crash_among_many_cases_is_told_and_the_others_are_done():
    def work(number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 5:
            raise ValueError("five")
        return "even" if number % 2 == 0 else "odd"

    found = tally(work, range(8), size=4)
    assert found.ends == {"even": 4, "odd": 2, "FAULT": 2}
    assert found.faults == ["3 FAULT: its process ended with -9", "5 FAULT: ValueError five"]
    assert found.total == 8


def test_a_case_that_hangs_is_told(monkeypatch):
    monkeypatch.setattr("tests._forks.CPU_SECONDS", 0.1)

    def work(number):
        until = time.process_time() + 0.3 * number
        while time.process_time() < until:
            pass
        return "done"

    found = tally(work, range(2))
    assert found.ends == {"done": 1, "FAULT": 1}
    assert "-27" in found.faults[0]  # SIGPROF


def test_what_a_worker_holds_is_not_counted_as_what_its_fork_takes():
    """Two tests failed where others before them had made the worker large."""
    used = SimpleNamespace(ru_maxrss=1500 * 1024)
    assert _forks._peak(used, 1300.0) == 500.0
    assert _forks._peak(used, 100.0) == 1500.0
    assert 20 < _forks._resident() < 2**15
