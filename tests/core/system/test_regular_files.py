"""A pipe or a device where a file should be is refused at once, by every command that reads one."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.core.system.regular_files import is_odd, regular
from tests._small import write_small

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of a POSIX system")


@contextmanager
def _within(seconds):
    """Fail where the context waits so long, also where the code takes the alarm for an unreadable file."""
    waited = []

    def late(*_):
        waited.append(seconds)
        raise TimeoutError

    usual = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
    assert not waited


def test_what_is_odd(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    (tmp_path / "file").write_text("text")
    for odd in (pipe, tmp_path / "link", "/dev/zero", "/dev/null"):
        assert is_odd(odd)
        with pytest.raises(OSError, match="no regular file"):
            regular(odd)
    for plain in (tmp_path, tmp_path / "file", tmp_path / "absent", "a\0b"):
        assert not is_odd(plain)
    assert regular(tmp_path / "file").read_text() == "text"


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "PIPE"],
        ["types", "PIPE"],
        ["plan", "PIPE"],
        ["apply", "PIPE"],
        ["session", "PIPE"],
        ["doctor", "PIPE", "--private"],
        ["verify", "PIPE"],
        ["verify", "PIPE.certificate.json"],
        ["report", "PIPE"],
        ["report", "PIPE.ledger", "-o", "r.html"],
        ["answer", "PIPE", "--query", "q.npz"],
        ["ledger", "show", "PIPE"],
        ["ledger", "verify", "PIPE"],
        ["check", "/dev/zero"],
        ["verify", "/dev/zero"],
        ["ledger", "show", "/dev/zero"],
        ["plot", "PIPE", "-o", "x.svg"],
        ["plot", "PIPE.json", "-o", "x.svg"],
    ],
)
def test_no_command_waits_for_a_pipe(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    names = {word for word in arguments if word.startswith("PIPE")}
    for name in names:
        os.mkfifo(tmp_path / name)
    with _within(20.0):
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code not in (0, 70), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert not isinstance(done.exception, TimeoutError)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "parquet", "jsonl", "arrow"])
def test_no_source_waits_for_a_pipe(tmp_path, kind):
    spec = write_small(tmp_path, ("{npz: points.npz}", f"{{{kind}: pipe}}"))
    os.mkfifo(tmp_path / "pipe")
    assert CliRunner().invoke(app, ["ledger", "new", str(spec)]).exit_code == 0
    with _within(20.0):
        done = CliRunner().invoke(app, ["apply", str(spec)])
    assert "OS601" in done.output
    assert "a pipe or a device" in done.output
    assert done.exit_code == 4


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["points.ledger", "out/release.npz", "key.pem"])
def test_no_run_waits_for_a_pipe_among_its_files(tmp_path, name):
    spec = write_small(tmp_path)
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / name)
    more = ["--sign", str(tmp_path / name)] if name.endswith(".pem") else []
    with _within(20.0):
        done = CliRunner().invoke(app, ["apply", str(spec), *more])
    assert done.exit_code not in (0, 70), done.output
