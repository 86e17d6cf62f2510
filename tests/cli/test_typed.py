"""A signal ends the wait for a line, also one that comes right before the wait begins."""

from __future__ import annotations

import ctypes
import io
import operator
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from opendp_sim.cli._typed import typed_text

SECONDS = 20


class Stop(BaseException):
    pass


def _stop(signum, frame):
    raise Stop


@pytest.fixture
def stream():
    """A pipe into which nobody writes, as a text stream."""
    reader, writer = os.pipe()
    usual = signal.signal(signal.SIGUSR1, _stop)
    with os.fdopen(reader, encoding="utf-8") as text:
        yield text, writer
    signal.signal(signal.SIGUSR1, usual)
    os.close(writer)


def test_a_signal_right_before_the_wait_ends_it(stream):
    """Two calls of C in a row, with no bytecode between them: a handler cannot run there."""
    send = partial(getattr(ctypes.CDLL(None), "raise"), int(signal.SIGUSR1))
    start = time.monotonic()
    with typed_text(stream[0]) as lines:
        wait = partial(lines.buffer.raw.poll.poll, 1000 * SECONDS)
        with pytest.raises(Stop):
            list(map(operator.call, [send, wait]))
    assert time.monotonic() - start < SECONDS / 2


def test_a_signal_during_the_wait_ends_it(stream):
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    with pytest.raises(Stop), typed_text(stream[0]) as lines:
        lines.readline()


def test_a_handler_that_returns_lets_the_wait_go_on(stream):
    text, writer = stream
    seen = []
    signal.signal(signal.SIGUSR1, lambda signum, frame: seen.append(os.write(writer, b"a line\n")))
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    with typed_text(text) as lines:
        assert lines.readline() == "a line\n"
    assert seen == [7]


def test_lines_are_those_of_the_stream(stream):
    text, writer = stream
    os.write(writer, "ä\r\n\udcff\n\nlast".encode(errors="surrogateescape"))
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), writer)  # closes the pipe
    with typed_text(text) as lines:
        assert list(iter(lines.readline, "")) == ["ä\n", "\udcff\n", "\n", "last"]


def test_what_was_there_is_put_back(stream):
    before = signal.set_wakeup_fd(-1)
    opened = {path.name for path in Path("/proc/self/fd").iterdir()}
    with typed_text(stream[0]):
        inside = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(inside, warn_on_full_buffer=False)
        assert inside != before
    assert signal.set_wakeup_fd(before) == before
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == opened


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-16", "utf-8"])
def test_lines_are_utf_8_whatever_the_code_page_is(encoding):
    """A deletion answered "ok" and deleted nobody, since the insertion had come from another terminal."""
    raw = '\ufeff{"delete": ["José", "Łódź", "東京"]}\n'.encode()
    reader, writer = os.pipe()
    os.write(writer, raw)
    os.close(writer)
    with os.fdopen(reader, encoding=encoding) as text, typed_text(text) as lines:
        assert lines.readline() == raw.decode("utf-8-sig")
    no_file = io.TextIOWrapper(io.BytesIO(raw), encoding=encoding)
    with typed_text(no_file) as lines:
        assert lines.readline() == raw.decode("utf-8-sig")


def test_another_thread_has_the_stream_as_it_is(stream):
    found = []

    def look():
        with typed_text(stream[0]) as lines:
            found.append(lines)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [stream[0]]
