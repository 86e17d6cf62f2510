"""A release's file by itself: what is written is read, byte for byte, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opendp_sim.accounting.release.release import (
    RELEASE_FORMAT,
    array_header,
    read_file,
    write_file,
)
from opendp_sim.core.errors import ReleaseError

ARRAYS: dict[str, Any] = {"counts": np.arange(6, dtype=np.int64), "means": np.array([-0.0, 0.5])}


def _header(**arrays: Any) -> dict[str, Any]:
    return {
        "format": RELEASE_FORMAT,
        "arrays": {name: array_header(array) for name, array in arrays.items()},
    }


def test_an_array_is_described_by_its_content() -> None:
    changed = {"counts": ARRAYS["counts"][::-1], "means": np.array([0.0, 0.5])}
    for name, array in ARRAYS.items():
        assert array_header(array) == array_header(array.copy())
        assert array_header(array) != array_header(changed[name])
        assert array_header(array) != array_header(array.astype(np.float32))


def test_an_array_that_its_header_does_not_describe_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path / "release.npz", _header(counts=ARRAYS["counts"] + 1), ARRAYS)
    with pytest.raises(ReleaseError, match="OS701"):
        read_file(path)


def test_a_file_that_is_not_there_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="no such file"):
        read_file(tmp_path / "release.npz")


def test_a_file_tells_nothing_of_when_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate has the time at which a run began: its end would tell how many records there are."""
    header = _header(**ARRAYS)
    first = write_file(tmp_path / "first.npz", header, ARRAYS).read_bytes()
    monkeypatch.setattr("time.localtime", lambda *_: (2040, 1, 2, 3, 4, 6, 0, 2, 0))
    monkeypatch.setattr("time.time", lambda: 2.3e9)
    assert write_file(tmp_path / "second.npz", header, ARRAYS).read_bytes() == first
