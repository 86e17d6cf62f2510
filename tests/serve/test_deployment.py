"""The container file and the systemd unit: their commands are commands, and they are what is checked."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
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
    # A copy into another layer has other times; by them two thirds of the modules were compiled at each start.
    assert "--invalidation-mode unchecked-hash" in FILE
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


@pytest.mark.long
def test_the_page_s_commands_give_an_answer(tmp_path):
    """A stranger's way: run a spec, draw a token, serve, ask by curl and from Python."""
    pytest.importorskip("httpx", reason="the extra `dev`")
    page = (ROOT / "docs/serve.md").read_text("utf-8")
    begun, asked = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[:2]
    python = re.search(r"```py\n(.*?)```", page, re.DOTALL).group(1)
    shutil.copytree(ROOT / "specs", tmp_path / "specs", ignore=shutil.ignore_patterns("out"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    begun = begun.replace(
        "opendp-sim serve specs/out", f"exec opendp-sim serve specs/out --port {port}"
    )
    begun = begun.replace("opendp-sim ", f"{sys.executable} -m opendp_sim ")
    server = subprocess.Popen(["sh", "-ec", begun], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        while not (line := server.stdout.readline()).startswith("serving"):
            assert line
        asked = asked.replace("8080", port)
        (tmp_path / "ask.py").write_text(python)
        found = subprocess.run(
            ["sh", "-ec", f'{asked}\necho\n"{sys.executable}" ask.py'],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    finally:
        server.terminate()
        server.communicate(timeout=60)
    answer, listed, columns = found.stdout.splitlines()
    densities = json.loads(answer)["columns"]["density"]
    assert len(densities) == 2
    assert listed.startswith("cities-lattice ['density', ")
    assert str(densities[0])[:10] in columns  # of two queries the last bit may differ
    assert server.returncode == 143
