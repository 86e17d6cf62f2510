"""An audit's result is what its process tells, whatever the audited code does to the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is forked")
LIGHT = """
import os, signal, sys
from opendp_sim._watched import watched
def run():
    {}
watched(run, (signal.SIGINT, signal.SIGTERM))
"""
MAIN = "from opendp_sim._entry import main; main()"


def _ended(code: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT.format(code)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "os._exit(0)",
        "os._exit(1)",
        "os.kill(os.getpid(), signal.SIGSEGV)",
        "os.closerange(3, 20); sys.exit(0)",
        "import threading; threading.Thread(target=os._exit, args=(0,)).start(); import time; time.sleep(9)",
    ],
)
def test_a_process_that_ends_without_a_word_has_no_result(code: str) -> None:
    ended, said = _ended(code)
    assert ended == 2
    assert "before its verdict" in said


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", 0),
        ("sys.exit(1)", 1),
        ("sys.exit(0)", 0),
        ("sys.exit('text')", 1),
        ("import atexit; atexit.register(os._exit, 0); sys.exit(1)", 1),
        ("os._exit(130)", 130),
    ],
)
def test_what_was_told_is_the_result(code: str, expected: int) -> None:
    assert _ended(code)[0] == expected


def test_signals_reach_the_process_that_runs() -> None:
    code = "signal.signal(signal.SIGTERM, lambda *_: os._exit(143)); print(1, flush=True); signal.pause()"
    process = subprocess.Popen(
        [sys.executable, "-c", LIGHT.format(code)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 143


@pytest.mark.parametrize(
    "place",
    [pytest.param("", marks=pytest.mark.long), "def make_it():\n    import os; os._exit(0)\n"],
)
def test_a_module_that_ends_the_process_has_not_passed(tmp_path, place: str) -> None:  # type: ignore[no-untyped-def]
    """At import, and when its factory is called."""
    (tmp_path / "ending_module.py").write_text(place or "import os; os._exit(0)")
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "audit", "ending_module:make_it"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "OS501" in done.stderr
    assert not done.stdout
