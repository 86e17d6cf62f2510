"""A release answers on another machine, and a damaged, edited or foreign file is refused."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from opendp_sim.accounting.release.release import (
    RELEASE_FORMAT,
    Release,
    array_header,
    read_file,
    write_file,
)
from opendp_sim.accounting.release.table import Table
from opendp_sim.core.errors import DataError, ReleaseError, SpaceError
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.postprocessing.density import Density
from tests.cases.race import QUERIES, release


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return release().save(tmp_path / "r.npz")


def test_round_trip_answers_the_same(saved: Path) -> None:
    again, first = Release.load(saved), release()
    assert again.header == json.loads(json.dumps(first.header))
    queries = np.array([[0.1, 0.2, 0.3], [5.0, 5.0, 5.0]])
    one, two = (
        Density().bind(r.released, Symmetric()).function(r.arrays, r.queries(queries))
        for r in (first, again)
    )
    for name, column in one.items():
        assert np.array_equal(column, two[name]), name
    assert not list(saved.parent.glob("*.partial"))


def test_nothing_in_the_file_is_pickled_or_private(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
        header = json.loads(archive.read("header.json"))
    assert set(header) == {
        "format",
        "versions",
        "source",
        "metric",
        "steps",
        "noise",
        "privacy",
        "matrices",
        "arrays",
    }


def rewrite(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def _edit(members: dict[str, bytes], **changed: Any) -> None:
    members["header.json"] = json.dumps(json.loads(members["header.json"]) | changed).encode()


def _other_array(members: dict[str, bytes]) -> None:
    out = io.BytesIO()
    np.save(out, np.zeros((2, 5, 8), dtype=np.int64))
    members["counts.npy"] = out.getvalue()


def _pickled(members: dict[str, bytes]) -> None:
    out = io.BytesIO()
    np.save(out, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    members["counts.npy"] = out.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: _edit(m, noise=None),
        lambda m: _edit(m, format="other/1"),
        _other_array,
        _pickled,
        lambda m: m.pop("counts.npy"),
        lambda m: m.pop("header.json"),
        lambda m: m.update({"header.json": b"{"}),
    ],
)
def test_an_edited_file_is_refused(saved: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    rewrite(saved, change)
    with pytest.raises(ReleaseError, match="OS701"):
        Release.load(saved)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused(saved: Path, share: float) -> None:
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ReleaseError, match="OS701"):
        Release.load(saved)


def test_a_missing_or_foreign_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="no such file"):
        Release.load(tmp_path / "none.npz")
    np.savez(tmp_path / "foreign.npz", a=np.zeros(3))
    with pytest.raises(ReleaseError, match="OS701"):
        Release.load(tmp_path / "foreign.npz")


def test_other_matrices_are_refused() -> None:
    """Another numpy that draws another stream from the seed is noticed, not answered with."""
    good = release()
    broken = Release({**good.header, "matrices": ["0" * 64] * 2}, good.arrays)
    with pytest.raises(ReleaseError, match="OS703"):
        _ = broken.released


def test_a_header_cannot_name_a_class_or_module() -> None:
    good = release()
    for source in (
        {"os.system": {}},
        {"Records": {"columns": [{"name": 1}]}},
        [],
        None,
        {"Path": {}},
    ):
        with pytest.raises(ReleaseError, match="OS701"):
            _ = Release({**good.header, "source": source}, good.arrays).stages


def test_questions_that_a_release_cannot_answer() -> None:
    good = release()
    answer = Density().bind(good.released, Symmetric()).function
    for wrong in (np.zeros((2, 4)), np.zeros(3), np.array([[np.nan, 0, 0]])):
        with pytest.raises(DataError, match="OS607"):
            answer(good.arrays, wrong)
    with pytest.raises(SpaceError, match="OS201"):
        Density().bind(good.stages[0].domain, Symmetric())
    with pytest.raises(ReleaseError, match="OS702"):
        good.released.capability("distance_sums", "distance")
    assert answer(good.arrays, QUERIES)["density"].shape == (2, 2)


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


FOUND = {"rank": [1, 2], "item": ["<b>\x1b[2J", 7], "count": [3.25, -1.0]}


def test_every_library_reads_the_same_columns():
    table = Table(FOUND)
    as_json = ['"<b>\\u001b[2J"', "7"]
    assert table.to_pandas()["item"].tolist() == FOUND["item"]
    assert table.to_arrow().column_names == list(FOUND)
    for frame in (table.to_polars(), pl.DataFrame(table), pl.from_arrow(pa.table(table))):
        assert frame["rank"].to_list() == [1, 2]
        assert frame["item"].to_list() == as_json  # texts and numbers in one column
        assert frame["count"].to_list() == FOUND["count"]
    assert (list(table), len(table), table.keys()) == (list(FOUND), 2, list(FOUND))
    assert not isinstance(table, Mapping)
    assert isinstance(table["count"], np.ndarray)


def test_hostile_items_are_shown_as_text():
    table = Table(FOUND)
    for text in (str(table), repr(table), table._repr_html_()):
        assert "\x1b" not in text
    assert "&lt;b&gt;" in table._repr_html_()
    assert "<b>" not in table._repr_html_()


def test_a_long_table_says_what_it_does_not_show():
    table = Table(
        {"item": [f"item {i}" for i in range(12)]} | {f"c{i}": range(12) for i in range(30)}
    )
    assert "... 2 more rows" in str(table)
    assert "c29: `to_pandas()` has all" in str(table)
    assert max(map(len, str(table).splitlines()[:-1])) <= 80


def test_an_unknown_column_names_the_known_ones():
    with pytest.raises(DataError, match="rank, item, count") as refused:
        Table(FOUND)["items"]
    assert (refused.value.code, refused.value.where) == ("OS602", "table")


def test_an_empty_one_has_its_columns():
    empty = Table({"rank": [], "item": []})
    assert (len(empty), str(empty)) == (0, "rank  item")
    assert isinstance(empty.to_pandas(), pd.DataFrame)
    assert empty.to_polars().columns == ["rank", "item"]
