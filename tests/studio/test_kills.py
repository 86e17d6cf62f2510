"""SIGKILL in the middle of a spend: charged before anything is written, nothing told wrongly, no half files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import httpx
import pytest

pytest.importorskip("starlette", reason="the extra `studio` is not installed")

import opendp_sim as sim
from opendp_sim.studio.desk import Desk
from tests.studio.conftest import BODY, Visitor, write_table

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork")
WRITES = os.O_WRONLY | os.O_RDWR
LEFT = [0]
"""Changes of files until this process is killed; 0 for never."""
STEPS = 39
"""Changes of files in a spend, about."""


def _die(event, arguments):
    if LEFT[0] and (
        event in ("os.rename", "os.link", "os.remove")
        or (event == "open" and arguments[2] and arguments[2] & WRITES)
    ):
        LEFT[0] -= 1
        if LEFT[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def hook():
    sys.addaudithook(_die)


def spend(desk, nonce):
    """Plan and spend; return the standing before, and the answer."""
    found = desk.plan({"form": BODY})
    standing = found["view"].standing
    body = {"plan": found["plan"], "nonce": nonce * 20, "head": standing.head}
    return standing, *desk.spend(body)


def killed(desk, at):
    """Spend in a process that is killed at a change of a file; say whether it was."""
    desk.plan({"form": BODY})
    child = os.fork()
    if child == 0:
        LEFT[0] = at
        _, _, status = spend(desk, "n")
        os._exit(0 if status == 200 else 1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(at, marks=() if at in (1, 22, 33, 35, STEPS + 1) else pytest.mark.long)
        for at in range(1, STEPS + 2)
    ],
)
def test_a_killed_spend_is_charged_before_it_writes_and_no_paid_run_is_lost(at, hook, tmp_path):
    file = write_table(tmp_path / "trips.csv")
    was = killed(Desk(file), at)
    assert was or at > STEPS - 3  # some file systems take fewer
    whole = list(tmp_path.rglob("*.npz"))
    before, answer, status = spend(Desk(file), "m")  # the studio is started again
    assert status == 200
    assert len(before.runs) == 1 or (was and not before.runs and not whole)  # charged, then written
    after = Desk(file).plan({"form": BODY})["view"].standing
    finished = "charged now" in answer["view"]["claim"]
    assert len(after.runs) == len(before.runs) + (not finished)
    shown = list(tmp_path.rglob("*.npz"))
    assert len(shown) in (len(after.runs), len(after.runs) - was)  # what noise drew may be lost
    for path in shown:
        assert sim.load(path).ops
        sim.verify(path.with_name(f"{path.name}.certificate.json"))


@pytest.mark.long
def test_a_command_that_is_killed_tells_the_truth_when_it_is_started_again(tmp_path):
    """Over a real socket: the answer is lost, the ledger has the run, and it costs nothing to have it."""
    file = write_table(tmp_path / "trips.csv")
    code = (
        "import sys; from pathlib import Path; from tests.studio import test_kills as t\n"
        "from opendp_sim.studio.app import Server\n"
        "sys.addaudithook(t._die); server = Server(Path(sys.argv[1])); print(server.address, flush=True)\n"
        "real = server.desk._run\n"
        "def run(*given):\n    t.LEFT[0] = int(sys.argv[2]); return real(*given)\n"
        "server.desk._run = run; server.run()"
    )
    for at in ("34", "0"):
        command = [sys.executable, "-c", code, str(file), at]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run,
            contextlib.ExitStack() as at_last,
        ):
            at_last.callback(run.kill)  # if a check fails
            address = run.stdout.readline().strip()

            class Started:
                host = address.partition("//")[2].partition("/")[0]

            Started.address = address
            with Visitor(Started) as visitor:
                found = visitor.planned()
                if at == "34":
                    with pytest.raises(httpx.HTTPError):
                        visitor.spend(found)
                    assert run.wait(30) == -signal.SIGKILL
                    continue
                assert 'data-before="14%"' in found["html"]  # charged, and said so
                assert "nothing was charged now" in visitor.spend(found).json()["html"]
                assert 'data-before="14%"' in visitor.planned()["html"]
            run.terminate()
            run.wait(30)
