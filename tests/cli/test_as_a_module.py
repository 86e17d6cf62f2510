"""``python -m opendp_sim`` is the command: ``opendp_sim.__main__``."""

from __future__ import annotations

import subprocess
import sys


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "opendp_sim", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("opendp-sim ")
