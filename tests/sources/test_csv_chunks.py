"""pyarrow and the csv module agree about every cell: byte for byte, odd ones, cut anywhere."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import numpy as np
import pytest

from opendp_sim.sources import chunks, delimited
from opendp_sim.sources.conform import conform
from opendp_sim.sources.place import Place
from opendp_sim.spaces.records import Column, Records

pytest.importorskip("pyarrow")

RECORDS = Records((
    Column("x", "array[f32, 2]"), Column("r", "float64"), Column("n", "int64"), Column("w", "str"),
    Column("k", "category", keys=("a", 7, "")), Column("u", "array[u8, 2]"), Column("one", "array[f64, 1]"),
))  # fmt: skip
HEADER = "x_0,x_1,extra,r,n,w,k,u_0,u_1,one"
NUMBERS = (
    "0.5", "-0.0", "1e-3", " 2 ", "\t3", "1_0", "inf", "-inf", "nan", "-nan", "1e400", "-1e400", "+1.5", ".5", "5.",
    "0x10", "0X1F", "", " ", "NA", "null", "N/A", "true", "1e-400", "4.9e-324", "2.2250738585072011e-308", "١٢", "1d5",
    "0.1000000000000000055511151231257827", "9007199254740993", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "007", "-0", "+7", "517.0", "1e3", "1,5", "\u00a01", "1\u2028",
    "Infinity", "infinity", "#N/A", "0b1", "1.2.3", "--1", "- 1", "1 2", "256", "255", "1" * 401, "0." + "0" * 390 + "1",
    "1.7976931348623157e308", "1.7976931348623159e308", "\x0c5", "5\x0b", "1e", "e1", ".", "-", "1.e2", "0e0", "١.٥",
)  # fmt: skip
TEXTS = (
    "a", "7", " a ", "", "NA", "null", "true", "b", "1.5", "\ufeffa", "é", "e\u0301", "a\u2028b", "7.0", "[1]", "#", "0x7",
    "\\", "'", "\x85", "\x1c", "[0.5]", "-", "a\x0bb",
)  # fmt: skip
LINES = (
    b"", b" ", b",", b"1,2", b",,,,,,,,,,", b",,,,,,,,,", b'"', b'1,2,3,4,5,"a\nb",a,1,1,1', b'1,2,3,4,5,"a""b",7,1,1,1',
    b'1,2,3,4,5,a"b,7,1,1,1', b'1,2,3,4,5,"a"b,7,1,1,1', b"1,2,3,4,5,\xff\xfe,a,1,1,1", b"1,2,3,4,5,\xe2\x82,a,1,1,1",
    b"1,2,3,4,5,a\x00b,a,1,1,1", b"1\x00,2,3,4,5,a,a,1,1,1", b"1,2,3,4,5,a\rb,a,1,1,1", b"\r", b"\xef\xbb\xbf",
    b"1,2,3,4,5," + b"z" * 700 + b",a,1,1,1", b"1,2,3,4,5," + "é€".encode() * 150 + b",a,1,1,1",
    b'1,2,3,4,5,"' + "€\n".encode() * 150 + b'",a,1,1,1',
)  # fmt: skip


def both(path: Path, size: int, delimiter: str = ",") -> tuple[bytes, bytes]:
    place = Place(path, {}, delimiter)
    return told(delimited._by_lines(place, RECORDS, 7)), told(
        delimited._by_chunks(place, RECORDS, 7, size)
    )


def told(pieces) -> bytes:
    """All cells behind the door, as bytes: signs of zeros and of NaNs too."""
    blocks = [conform(piece, RECORDS) for piece in pieces]
    out = []
    for column in RECORDS.columns:
        values = [block[column.name] for block in blocks]
        joined = np.concatenate(values) if values else np.zeros(0)
        raw = repr(joined.tolist()).encode() if joined.dtype == object else joined.tobytes()
        out.append(f"{column.name} {joined.dtype} {joined.shape}".encode() + raw)
    return b"\n".join(out)


def line(g: random.Random, odd: float) -> bytes:
    def cell(cells: tuple[str, ...], plain: str) -> str:
        return g.choice(cells) if g.random() < odd else plain

    if g.random() < odd / 3:
        return g.choice(LINES)
    number = f"{g.uniform(-9, 9):.{g.randrange(18)}g}"
    cells = [
        *(cell(NUMBERS, number) for _ in range(4)), cell(NUMBERS, str(g.randrange(-99, 10**18))),
        cell(TEXTS, "word"), cell(TEXTS, "7"), cell(NUMBERS, "200"), cell(NUMBERS, "3"), cell(NUMBERS, "0.25"),
    ]  # fmt: skip
    return ",".join(cells).encode("utf-8")


@pytest.mark.parametrize("cell", NUMBERS)
def test_one_odd_number(cell: str, tmp_path: Path) -> None:
    rows = [",".join([f"{at}"] * 5 + ["w", "a", "1", "2", "3"]) for at in range(6)]
    for place in (0, 3, 4, 7, 9):
        cells = rows[2].split(",")
        cells[place] = cell
        text = "\n".join([HEADER, *rows[:2], ",".join(cells), *rows[3:]]) + "\n"
        (tmp_path / "t.csv").write_bytes(text.encode())
        slow, fast = both(tmp_path / "t.csv", 10**5)
        assert slow == fast


@pytest.mark.parametrize("seed", range(24))
def test_files_of_odd_cells_and_lines(seed: int, tmp_path: Path) -> None:
    g = random.Random(seed)  # noqa: S311 - cells of a test
    ends = g.choice((b"\n", b"\r\n", b"\n"))
    head = HEADER.encode()
    if seed % 10 == 9:
        head = b",".join(b'"' + name + b'"' for name in head.split(b","))
    head = g.choice((b"", b"", b"\xef\xbb\xbf")) + head
    body = [line(g, g.choice((0.0, 0.02, 0.3))) for _ in range(g.randrange(60))]
    data = ends.join([head, *body]) + g.choice((b"", ends))
    name = "t.csv.gz" if seed % 7 == 0 else "t.csv"
    (tmp_path / name).write_bytes(gzip.compress(data) if seed % 7 == 0 else data)
    for size in (16, 100, 333, 10**5):
        slow, fast = both(tmp_path / name, size)
        assert slow == fast, size


def test_other_delimiters(tmp_path: Path) -> None:
    for delimiter in (";", "\t", "|", " ", "é", '"', "."):
        text = f"{HEADER}\n1,2,3,4,5,a,a,1,2,3\n 1,2,3,,5,a b,a,1,2,x\n".replace(",", delimiter)
        (tmp_path / "t.csv").write_bytes(text.encode())
        slow, fast = both(tmp_path / "t.csv", 10**5, delimiter)
        assert slow == fast


def test_the_fast_way_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regular chunks never meet the csv module, one odd chunk among them does not stop it."""
    good = b"1,2,3,4,5,w,a,1,2,3\n" * 40
    (tmp_path / "t.csv").write_bytes(HEADER.encode() + b"\n" + good + b'"\n"\n' + good)
    met: list[int] = []
    plain = chunks.Chunks.lines
    monkeypatch.setattr(
        chunks.Chunks, "lines", lambda self, chunk: met.append(len(chunk)) or plain(self, chunk)
    )
    slow, fast = both(tmp_path / "t.csv", 200)
    assert slow == fast
    assert len(met) == 2  # the header, and the chunk with quotes


def test_a_broken_reader_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look at infinities and base 16 the two readers differ: the tests above can fail."""
    rows = ",".join(["1"] * 5 + ["w", "a", "1", "2", "3"])
    differ = 0
    monkeypatch.setattr(chunks, "_numbers", lambda column, _kind: np.array(column.to_pylist()))
    for cell in ("0x10", "1_0", "1e400"):
        cells = rows.split(",")
        cells[4] = cell
        (tmp_path / "t.csv").write_text("\n".join([HEADER, rows, ",".join(cells), rows]) + "\n")
        slow, fast = both(tmp_path / "t.csv", 10**5)
        differ += slow != fast
    assert differ


def test_large_files_go_the_fast_way(tmp_path: Path) -> None:
    row = b"1.25,2.5,3,4,5,w,a,1,2,3\n"
    path = tmp_path / "t.csv"
    path.write_bytes(HEADER.encode() + b"\n" + row * (chunks.CHUNK // len(row) + 2))
    assert delimited._is_large(Place(path, {}))
    source = delimited.csv_source(Place(path, {}), RECORDS)
    assert sum(len(block["r"]) for block in source.blocks()) == chunks.CHUNK // len(row) + 2
