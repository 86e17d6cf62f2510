"""A release file says its sizes before it is inflated, and is refused by them."""

from __future__ import annotations

import hashlib
import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opendp_sim.accounting.release.release import RELEASE_FORMAT, Release
from opendp_sim.accounting.session._encoding import LatePayload, packed_arrays, unpacked_arrays
from opendp_sim.core.errors import BudgetError, ReleaseError


def packed(path: Path, about: dict[str, Any], body: bytes, header: bytes | None = None) -> Path:
    """Write a release file whose header says ``about`` of its one array."""
    raw = header or json.dumps({"format": RELEASE_FORMAT, "arrays": {"counts": about}}).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", raw)
        archive.writestr("header.sha256", hashlib.sha256(raw).hexdigest())
        archive.writestr("counts.npy", body)
    return path


def npy(shape: tuple[int, ...], rest: int) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        out, {"descr": "<i8", "fortran_order": False, "shape": shape}
    )
    return out.getvalue() + bytes(rest)


SIZE = 2**26


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("about", "body"),
    [
        ({"sha256": "", "shape": [8], "dtype": "<i8"}, npy((SIZE // 8,), SIZE)),
        ({"sha256": "", "shape": [2**40], "dtype": "<i8"}, npy((2**40,), SIZE)),
        ({"sha256": "", "shape": [8], "dtype": "<i8"}, npy((8,), SIZE)),
        ({"sha256": "", "shape": [8], "dtype": "|O"}, npy((8,), SIZE)),
    ],
)
def test_an_array_of_another_size_is_refused_before_it_is_inflated(
    tmp_path: Path, about: dict[str, Any], body: bytes
) -> None:
    path = packed(tmp_path / "bomb.npz", about, body)
    assert path.stat().st_size < SIZE / 500
    tracemalloc.start()
    try:
        with pytest.raises(ReleaseError, match="OS701"):
            Release.load(path)
        assert tracemalloc.get_traced_memory()[1] < SIZE / 8
    finally:
        tracemalloc.stop()


@pytest.mark.long
def test_a_bomb_whose_headers_agree_is_refused(tmp_path: Path) -> None:
    size = 2**28 + 8
    about = {"sha256": "", "shape": [size // 8], "dtype": "<i8"}
    path = packed(tmp_path / "bomb.npz", about, npy((size // 8,), size))
    tracemalloc.start()
    try:
        with pytest.raises(ReleaseError, match="OS701"):
            Release.load(path)
        assert tracemalloc.get_traced_memory()[1] < SIZE / 8
    finally:
        tracemalloc.stop()


def test_a_long_header_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "bomb.npz", {}, b"", header=b" " * (2**26 + 1))
    tracemalloc.start()
    try:
        with pytest.raises(ReleaseError, match="OS701"):
            Release.load(path)
        assert tracemalloc.get_traced_memory()[1] < SIZE / 8
    finally:
        tracemalloc.stop()


def test_entries_come_back_as_they_were_from_records_and_from_archives() -> None:
    rows = np.arange(6.0).reshape(2, 3)
    small = {"rows": rows, "scale": np.array(2.5), "labels": np.array([1, 2])}
    for payload, start in (
        (small, b"\x93NUMPY"),
        ({"rows": rows[:0]}, b"PK"),
        ({}, b"PK"),
        ({"rows": np.ones(2**17 + 1)}, b"PK"),
    ):
        blob = packed_arrays(payload)
        assert blob.startswith(start) or not payload
        found = unpacked_arrays(blob)
        assert found.keys() == payload.keys()
        for name, array in payload.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            assert np.array_equal(found[name], array)
    objects = io.BytesIO()
    np.save(objects, np.array((None,), dtype=[("rows", object)]), allow_pickle=True)
    for other in (objects.getvalue(), np.lib.format.magic(2, 0) + blob[:80]):
        with pytest.raises(BudgetError, match="OS407"):
            unpacked_arrays(other)


def test_an_entry_of_a_session_is_no_longer_than_its_bytes() -> None:
    payload = {"labels": np.arange(5)}
    assert np.array_equal(unpacked_arrays(packed_arrays(payload))["labels"], payload["labels"])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labels.npy", b"\x93NUMPY" + bytes(2**24))
    whole = packed_arrays(payload)
    for blob in (out.getvalue(), b"", b"PK", whole[:-9], whole + b"x", whole[:9], whole[:60]):
        with pytest.raises(BudgetError, match="OS407"):
            unpacked_arrays(blob)
        with pytest.raises(BudgetError, match="OS407"):
            LatePayload(blob)["labels"]
