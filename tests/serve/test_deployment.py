"""The container file and the systemd unit: their commands are commands, and they are what is checked."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests._cli import run

ROOT = Path(__file__).parents[2]
UNIT = re.search(r"```ini\n(.*?)```", (ROOT / "docs/serve.md").read_text("utf-8"), re.DOTALL).group(
    1
)
FILE = (ROOT / "Dockerfile").read_text("utf-8")


def words_of(what):
    if what == "unit":
        return shlex.split(re.search(r"^ExecStart=(.*)$", UNIT, re.MULTILINE).group(1))
    words = json.loads(re.search(r"^ENTRYPOINT (.*)$", FILE, re.MULTILINE).group(1))
    return [*words, "--name", "data.example.org"]


@pytest.mark.parametrize("what", ["unit", "container"])
def test_the_command_is_one(what, tmp_path):
    """It is refused for its folder alone, which is not on this machine."""
    program, *words = words_of(what)
    assert program == "/opt/opendp_sim/bin/opendp-sim"
    missing = str(tmp_path / "none")
    found = run(*(missing if word == "/srv/served" else word for word in words))
    assert "OS601" in found.stderr
    assert missing in " ".join(found.stderr.split()).replace(" ", "")


def test_the_container_is_of_another_user_and_writes_nothing_else():
    assert re.search(r"^USER 10001:10001$", FILE, re.MULTILINE)
    assert FILE.index("USER ") < FILE.index("ENTRYPOINT ")
    assert "PYTHONDONTWRITEBYTECODE=1" in FILE  # the root file system can be read-only
    assert "STOPSIGNAL SIGTERM" in FILE
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert {".git", ".venv", "*.ledger", "*.session"} <= set(ignored)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path):
    unit = tmp_path / "opendp-sim.service"
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT, flags=re.MULTILINE))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert unit.name not in done.stderr  # no word of warning about it
    assert "SuccessExitStatus=143" in UNIT
