"""Files that are whole or not there, whatever text they hold."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from opendp_sim.accounting.atomic_files import replacing


@pytest.mark.parametrize("text", ["\udcff\udcfe", "\ud800", "\x00", '\u20ac,"\n'])
def test_every_text_can_be_written(tmp_path: Path, text: str) -> None:
    """An item that is no UTF-8 was selected and charged, and then its table could not be written."""
    path = tmp_path / "items.csv"
    with replacing(path, "w") as stream:
        csv.writer(stream, lineterminator="\n").writerow(["item", text])
    with path.open(encoding="utf-8", newline="") as written:
        (row,) = csv.reader(written)
    expected = text.encode("utf-8", "backslashreplace").decode()
    assert row == ["item", expected]


def test_a_file_is_as_it_was_where_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("before")

    def half() -> None:
        with replacing(path, "w") as stream:
            stream.write("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
