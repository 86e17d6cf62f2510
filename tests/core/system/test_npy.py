"""Arrays are read though other threads disturb Python's making of syntax trees meanwhile."""

from __future__ import annotations

import ast
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opendp_sim.accounting.release import release as release_file
from opendp_sim.accounting.session._encoding import packed_arrays, unpacked_arrays
from opendp_sim.core.system.docstrings import from_source
from opendp_sim.core.system.npy import array_of, arrays_of, header_of
from opendp_sim.core.system.syntax_trees import tried_again
from opendp_sim.domains.records import Column, Records
from opendp_sim.engines.messages import pack, unpack
from opendp_sim.io.builtin import builtin_source
from opendp_sim.io.open import open_source
from tests.cases.race import release

_SEVERAL = {"a": np.arange(3), "b": np.array([0.5, -0.0])}
_TYPE = Records((Column("a", "int64"),))
_TABLE = {"a": np.arange(3)}


@contextmanager
def disturbed() -> Iterator[list[int]]:
    """Make every third syntax tree fail as CPython before 3.11.8 may; yield how many have failed."""
    real, asked, failed = ast.parse, [0], [0]

    def parse(*args: Any, **kwargs: Any) -> Any:
        asked[0] += 1
        if asked[0] % 3 == 1:
            failed[0] += 1
            raise SystemError("AST constructor recursion depth mismatch (before=21, after=15)")
        return real(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ast, "parse", parse)  # `literal_eval` asks it
        yield failed


def _same(found: Any, wanted: Any) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].dtype == wanted[name].dtype and np.array_equal(found[name], wanted[name])
        for name in wanted
    )


def _message(_: Path) -> bool:
    return _same(unpack(pack(_SEVERAL)), _SEVERAL)


def _record_of_a_session(_: Path) -> bool:
    return _same(unpacked_arrays(packed_arrays(_SEVERAL)), _SEVERAL)


def _archive_of_a_session(_: Path) -> bool:
    large = {"a": np.arange(2**18), "b": np.zeros(0)}
    return _same(unpacked_arrays(packed_arrays(large)), large)


def _release(folder: Path) -> bool:
    made = release()
    return _same(release_file.read_file(made.save(folder / "release.npz"))[1], made.arrays)


def _builtin(_: Path) -> bool:
    return len(list(builtin_source("digits").pieces(100))) > 1


def _npz(folder: Path) -> bool:
    np.savez(folder / "t.npz", **_TABLE)  # type: ignore[arg-type]
    pieces = list(open_source("npz", "t.npz", _TYPE, folder).pieces(2))
    return np.array_equal(np.concatenate([piece["a"] for piece in pieces]), _TABLE["a"])


def _npy(folder: Path) -> bool:
    np.save(folder / "t.npy", _TABLE["a"])
    pieces = list(open_source("npy", "t.npy", _TYPE, folder).pieces(2))
    return np.array_equal(np.concatenate([piece["a"] for piece in pieces]).ravel(), _TABLE["a"])


def _docstring(_: Path) -> bool:
    from_source.cache_clear()
    return from_source(Records) == from_source(Records) != ""


_READERS: list[Callable[[Path], bool]] = [
    _message,
    _record_of_a_session,
    _archive_of_a_session,
    _release,
    _builtin,
    _npz,
    _npy,
    _docstring,
]


@pytest.mark.parametrize("reader", _READERS)
def test_what_another_thread_disturbed_is_read_again(
    tmp_path: Path, reader: Callable[[Path], bool]
) -> None:
    """A worker's sum was lost behind its charge (OS902); a ledger or a release could be called damaged."""
    with disturbed() as failed:
        found = reader(tmp_path)
    assert found
    assert failed[0] > 0


def test_an_array_is_read_from_where_the_stream_stands() -> None:
    stream = io.BytesIO()
    stream.write(b"before")
    np.save(stream, _SEVERAL["a"])
    np.save(stream, _SEVERAL["b"])
    stream.seek(6)
    with disturbed() as failed:
        array, header = array_of(stream), header_of(stream)
    assert failed[0] > 0
    assert np.array_equal(array, _SEVERAL["a"])
    assert (header.version, header.shape, header.columns_first) == ((1, 0), (2,), False)
    assert stream.read() == _SEVERAL["b"].tobytes()


@pytest.mark.parametrize(
    "data", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x04\x00{'a}", b"PK\x03\x04"]
)
def test_what_holds_no_array_is_refused_at_once(data: bytes) -> None:
    for read in (header_of, array_of, arrays_of):
        with pytest.raises(Exception):  # noqa: B017, PT011 - of many kinds
            read(io.BytesIO(data))


def test_objects_are_not_unpacked() -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([{}], dtype=object), allow_pickle=True)
    for read in (array_of, arrays_of):
        stream.seek(0)
        with pytest.raises(ValueError, match="allow_pickle"):
            read(stream)


def test_what_never_succeeds_ends() -> None:
    calls = []

    def fails() -> None:
        calls.append(0)
        raise SystemError

    with pytest.raises(SystemError):
        tried_again(fails)
    assert len(calls) < 100


_CODE = """
import gc, sys, threading, time
import numpy as np
from opendp_sim.engines.messages import pack, unpack

class Ending:
    def __init__(self):
        self.me = self
    def __del__(self):  # as a destructor that calls native code: another thread goes on
        time.sleep(0)
        Ending()

data, failed = pack(np.arange(5)), []
end = time.monotonic() + float(sys.argv[1])
def work():
    while time.monotonic() < end:
        try:
            unpack(data)
        except Exception as error:
            failed.append(error)
gc.set_threshold(10)
Ending(), Ending(), Ending()
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
sys.exit(str(failed) if failed else 0)
"""


@pytest.mark.long
def test_messages_are_read_by_threads_whose_destructors_take_turns() -> None:
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", _CODE, "20"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
