"""pyarrow and the csv module agree about every cell: byte for byte, odd ones, cut anywhere."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import numpy as np
import pytest

from opendp_sim.domains.cell import reals, wholes
from opendp_sim.domains.records import Column, Records
from opendp_sim.io import csv_files as chunks, csv_files as delimited
from opendp_sim.io.conform import conform
from opendp_sim.io.file_spec import FileOptions
from tests._tiers import some

pytest.importorskip("pyarrow")

RECORDS = Records(
    (
        Column("x", "array[f32, 2]"),
        Column("r", "float64"),
        Column("n", "int64"),
        Column("w", "str"),
        Column("k", "category", keys=("a", 7, "")),
        Column("u", "array[u8, 2]"),
        Column("one", "array[f64, 1]"),
    )
)
HEADER = "x_0,x_1,extra,r,n,w,k,u_0,u_1,one"
NUMBERS = (
    "0.5",
    "-0.0",
    "1e-3",
    " 2 ",
    "\t3",
    "1_0",
    "inf",
    "-inf",
    "nan",
    "-nan",
    "1e400",
    "-1e400",
    "+1.5",
    ".5",
    "5.",
    "0x10",
    "0X1F",
    "",
    " ",
    "NA",
    "null",
    "N/A",
    "true",
    "1e-400",
    "4.9e-324",
    "2.2250738585072011e-308",
    "١٢",
    "1d5",
    "0.1000000000000000055511151231257827",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "007",
    "-0",
    "+7",
    "517.0",
    "1e3",
    "1,5",
    "\u00a01",
    "1\u2028",
    "Infinity",
    "infinity",
    "#N/A",
    "0b1",
    "1.2.3",
    "--1",
    "- 1",
    "1 2",
    "256",
    "255",
    "1" * 401,
    "0." + "0" * 390 + "1",
    "1.7976931348623157e308",
    "1.7976931348623159e308",
    "\x0c5",
    "5\x0b",
    "1e",
    "e1",
    ".",
    "-",
    "1.e2",
    "0e0",
    "١.٥",
    "0.5" + "0" * 397,
    "0.5" + "0" * 398,
    "0.5" + "0" * 2000,
    "0" * 399 + "1",
    "0" * 400 + "1",
    "0" * 401 + "1",
    "-" + "0" * 400 + "7",
    "0" * 5000 + "200",
    "200." + "0" * 400,
    " " * 401 + "2",
    "2" + "\t" * 401,
    "5e-" + "0" * 401 + "1",
    "1" + "0" * 390 + "e-390",
    "0." + "0" * 390 + "1e391",
    "0e99999999999999999999",
    "1e-99999999999999999999",
    "1e+05",
    "1E5",
    "+-1",
    "-0x1",
    "0o7",
    "1_000",
    "1__0",
    "1e5_0",
    "1f",
    "1L",
    "nan(1)",
    "snan",
    "infinit",
    "True",
    "2020-01-01",
    "1\u00a0",
    "١" * 200,
    "١" * 401,
)
TEXTS = (
    "a",
    "7",
    " a ",
    "",
    "NA",
    "null",
    "true",
    "b",
    "1.5",
    "\ufeffa",
    "é",
    "e\u0301",
    "a\u2028b",
    "7.0",
    "[1]",
    "#",
    "0x7",
    "\\",
    "'",
    "\x85",
    "\x1c",
    "[0.5]",
    "-",
    "a\x0bb",
)
LINES = (
    b"",
    b" ",
    b",",
    b"1,2",
    b",,,,,,,,,,",
    b",,,,,,,,,",
    b'"',
    b'1,2,3,4,5,"a\nb",a,1,1,1',
    b'1,2,3,4,5,"a""b",7,1,1,1',
    b'1,2,3,4,5,a"b,7,1,1,1',
    b'1,2,3,4,5,"a"b,7,1,1,1',
    b"1,2,3,4,5,\xff\xfe,a,1,1,1",
    b"1,2,3,4,5,\xe2\x82,a,1,1,1",
    b"1,2,3,4,5,a\x00b,a,1,1,1",
    b"1\x00,2,3,4,5,a,a,1,1,1",
    b"1,2,3,4,5,a\rb,a,1,1,1",
    b"\r",
    b"\xef\xbb\xbf",
    b"1,2,3,4,5," + b"z" * 700 + b",a,1,1,1",
    b"1,2,3,4,5," + "é€".encode() * 150 + b",a,1,1,1",
    b'1,2,3,4,5,"' + "€\n".encode() * 150 + b'",a,1,1,1',
)


def both(path: Path, size: int, delimiter: str = ",") -> tuple[bytes, bytes]:
    place = FileOptions(path, {}, delimiter)
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
        *(cell(NUMBERS, number) for _ in range(4)),
        cell(NUMBERS, str(g.randrange(-99, 10**18))),
        cell(TEXTS, "word"),
        cell(TEXTS, "7"),
        cell(NUMBERS, "200"),
        cell(NUMBERS, "3"),
        cell(NUMBERS, "0.25"),
    ]
    return ",".join(cells).encode("utf-8")


@pytest.mark.few(17)
@pytest.mark.parametrize("cell", some(NUMBERS, 2), ids=lambda cell: f"{len(cell)} {cell[:20]}")
def test_one_odd_number(cell: str, tmp_path: Path) -> None:
    rows = [",".join([f"{at}"] * 5 + ["w", "a", "1", "2", "3"]) for at in range(6)]
    for place in (0, 3, 4, 7, 9):
        cells = rows[2].split(",")
        cells[place] = cell
        text = "\n".join([HEADER, *rows[:2], ",".join(cells), *rows[3:]]) + "\n"
        (tmp_path / "t.csv").write_bytes(text.encode())
        slow, fast = both(tmp_path / "t.csv", 10**5)
        assert slow == fast


DTYPES = ("float64", "int64", "array[f32, 1]", "str", "date", "bool")
LONG = {
    "0.5" + "0" * 398: (True, True),
    "0" * 400 + "1": (True, True),
    "0" * 5000: (True, True),
    " " * 400 + "1": (False, False),
    "0.5" + "0" * 397: (False, True),
    "0" * 399 + "1": (False, False),
    "t" * (2**16 + 1): (True, True),
}
"""Cells, and whether a real and a whole column of them is missing."""


def read(path: Path, text: str, column: Column) -> np.ndarray:
    path.write_text(text)
    records = Records((column, Column("k", "str")))
    pieces = delimited._by_chunks(FileOptions(path, {}, ","), records, 5)
    return np.concatenate([conform(piece, records)["x"] for piece in pieces])


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_record_elsewhere_changes_no_other(dtype: str, tmp_path: Path) -> None:
    """A quote, an infinity or a cell of base 16 in one record changes how no other is read."""
    for cell in (*LONG, *NUMBERS[::4], "2020-02-29", " 2020-02-29 ", "TRUE", "1.0"):
        if "," in cell:
            continue
        found = [
            read(tmp_path / "t.csv", "x,k\n" + f"{cell},b\n" * 3 + last + "\n", Column("x", dtype))[
                :3
            ]
            for last in ("1,a", '1,"a"', "inf,a", "0x1,a", "1," + "t" * 500)
        ]
        assert len({repr(values.tolist()) for values in found}) == 1, cell[:20]
        if cell in LONG and dtype in ("float64", "int64"):
            values = found[0]
            missing = np.isnan(values) if dtype == "float64" else values == -(2**63)
            assert missing.tolist() == [LONG[cell][dtype == "int64"]] * 3


def test_random_numbers_of_every_form() -> None:
    """What pyarrow reads of 400 characters or fewer is what the cell's own door reads."""
    g = random.Random(5)  # noqa: S311 - cells of a test

    def digits(*counts: int) -> str:
        return "".join(g.choice("0123456789") for _ in range(g.choice(counts)))

    for _ in range(500):
        cell = g.choice(("", "-", "+", " ", "\t", "- ")) + "0" * g.choice((0, 0, 5, 380, 400))
        cell += digits(0, 1, 17, 19, 20, 60) + g.choice(("", ".")) + digits(0, 1, 18, 330)
        cell += (
            g.choice(("", "", "e", "E", "e+", "e-0"))
            + digits(0, 1, 3, 20)
            + g.choice(("", " ", "f"))
        )
        for kind, read in (("real", reals), ("whole", wholes)):
            found = chunks.fast_cells(f"{cell}|1\n".encode(), "|", 2, {0: kind})
            assert found is not None
            assert found[0].tobytes() == read([cell]).tobytes(), cell


@pytest.mark.parametrize("seed", some(range(24), 2))
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


RETURNS = b'n,word\n1,a\rb\n2,\rc\r\n3,d\r\re\n4,"f\rg\n\r"\n5,h\r'


@pytest.mark.parametrize("size", [3, 7, 2**20])
def test_a_lone_carriage_return_is_a_letter_where_the_header_ends_by_a_line_feed(size, tmp_path):
    """pandas does not quote it: one record was read as two, by a letter that its person chose."""
    records = Records((Column("n", "int64"), Column("word", "str")))
    (file := tmp_path / "t.csv").write_bytes(RETURNS)
    place = FileOptions(file, {}, ",")
    for pieces in (
        delimited._by_lines(place, records, 7),
        delimited._by_chunks(place, records, 7, size),
    ):
        words = [word for piece in pieces for word in conform(piece, records)["word"].tolist()]
        assert words == ["a\rb", "c", "d\r\re", "f\rg", "h"]  # blanks around are none
