"""One table in 24 dialects: private answers near the truth, or a refusal before any charge with its fix."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opendp_sim as sim
from opendp_sim.core.errors import DataError
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.run.find_dialect import find_dialect
from opendp_sim.io.gate import gated_blocks
from opendp_sim.io.open import open_source

RECORDS = Records(
    (Column("sales", "float64", (0.0, 5000.0)), Column("count", "float64", (0.0, 20.0)))
)
SIZE = 600
DRAW = np.random.default_rng(20)
SALES = np.round(np.exp(DRAW.normal(5.5, 1.6, SIZE)), 2)
COUNTS = DRAW.integers(1, 15, SIZE)
CITIES = DRAW.choice(["Alba", "Bruck", "Carcavelos"], SIZE)


def written(
    form: Callable[[float], str] = str,
    delimiter: str = ",",
    header: str = "city,kind,sales,count",
    quoting: Any = csv.QUOTE_MINIMAL,
    city: str = "",
) -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=quoting)
    writer.writerow(header.split(","))
    for place, sales, count in zip(CITIES.tolist(), SALES.tolist(), COUNTS.tolist(), strict=True):
        writer.writerow([place + city, "paper", form(sales), count])
    return out.getvalue()


def some(text: str, share: int) -> Callable[[float], str]:
    at = iter(range(10**6))
    return lambda value: text if next(at) % share == 0 else str(value)


LINES = written().splitlines()
DIALECTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "plain": (written().encode(), {}),
    "bom and crlf": (("\ufeff" + written().replace("\n", "\r\n")).encode(), {}),
    "cr only": (written().replace("\n", "\r").encode(), {}),
    "mixed line ends": (
        "".join(x + ("\r\n" if i % 2 else "\n") for i, x in enumerate(LINES)).encode(),
        {},
    ),
    "utf-16": (written().encode("utf-16"), {"encoding": "utf-16"}),
    "latin-1": (written(city="é").encode("latin-1"), {}),
    "quoted newlines": (written(city='\nSuite "A", 1').encode(), {}),
    "all quoted": (written(quoting=csv.QUOTE_ALL).encode(), {}),
    "semicolon": (written(delimiter=";").encode(), {"delimiter": ";"}),
    "semicolon, decimal comma": (
        written(lambda v: str(v).replace(".", ","), ";").encode(),
        {"delimiter": ";", "decimal": ","},
    ),
    "tab": (written(delimiter="\t").encode(), {"delimiter": "\t"}),
    "thousands": (written("{:,.2f}".format).encode(), {"thousands": ","}),
    "german": (
        written(lambda v: f"{v:,.2f}".translate({44: 46, 46: 44}), ";").encode(),
        {"delimiter": ";", "decimal": ",", "thousands": "."},
    ),
    "narrow blanks": (
        written(lambda v: f"{v:,.2f}".replace(",", "\u202f")).encode(),
        {"thousands": " "},
    ),
    "currency": (written("${:.2f}".format).encode(), {"strip": ["$"]}),
    "currency, thousands": (
        written("EUR {:,.2f}".format).encode(),
        {"strip": ["EUR"], "thousands": ","},
    ),
    "units": (written("{:.2f} EUR".format).encode(), {"strip": ["EUR"]}),
    "scientific": (written("{:.8e}".format).encode(), {}),
    "equal headers": (
        written(header="sales,kind,sales,count").encode(),
        {"columns": {"sales": {"at": 3}}},
    ),
    "blanks in headers": (written(header="city,kind, sales , count").encode(), {}),
    "trailing commas": (
        "\n".join([LINES[0], *(x + "," for x in LINES[1:])]).encode(),
        {"ragged": True},
    ),
    "preamble": (("Export of 2024-01-01\n\n" + written()).encode(), {"skip": 2}),
    "sep line": (("sep=;\n" + written(delimiter=";")).encode(), {"delimiter": ";"}),
    "words": (written(some("NULL", 10)).encode(), {}),
    "-200": (written(some("-200", 10)).encode(), {"missing": [-200]}),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", DIALECTS)
def test_the_dialect_is_found_and_the_records_are_the_tables(name: str, tmp_path: Path) -> None:
    data, expected = DIALECTS[name]
    (tmp_path / "t.csv").write_bytes(data)
    found = find_dialect({"file": "t.csv"}, RECORDS, tmp_path)
    assert found.options == expected
    source = open_source("csv", {"file": "t.csv", **found.options}, RECORDS, tmp_path)
    kept = np.concatenate([block["sales"] for block in gated_blocks(source, "enforce")()])
    truth = np.clip(SALES, 0, 5000)
    if name in ("words", "-200"):  # every tenth cell is missing, and said to be
        truth = truth[np.arange(SIZE) % 10 > 0]
        assert (
            found.examples.get("sales") == (["'NULL'"] if name == "words" else None)
            or name == "-200"
        )
    assert np.allclose(kept, truth, rtol=1e-9, atol=0)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", DIALECTS)
def test_a_wrong_declaration_loses_nothing_that_is_not_named(name: str, tmp_path: Path) -> None:
    """As plain text every dialect reads right, is refused by its form, or doctor names the loss."""
    data, expected = DIALECTS[name]
    (tmp_path / "t.csv").write_bytes(data)
    try:
        source = open_source("csv", "t.csv", RECORDS, tmp_path)
    except DataError:  # OS602, told before anything is reserved (`check_forms`)
        assert expected
        return
    kept = sum(len(block["sales"]) for block in gated_blocks(source, "enforce")())
    found = find_dialect({"file": "t.csv"}, RECORDS, tmp_path)
    assert kept == SIZE or found.reasons or found.examples


_FAST = ("plain", "semicolon, decimal comma", "currency, thousands", "utf-16")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in _FAST else pytest.mark.long) for n in DIALECTS]
)
def test_private_answers_of_a_dialect_are_near_the_truth(name: str, tmp_path: Path) -> None:
    """Epsilon is so large that the noise is below a record: a false alarm has less than 1e-6."""
    data, options = DIALECTS[name]
    (tmp_path / "t.csv").write_bytes(data)
    source = open_source("csv", {"file": "t.csv", **options}, RECORDS, tmp_path)
    table = {"sales": np.concatenate([b["sales"] for b in gated_blocks(source, "enforce")()])}
    density = sim.density({"sales": (0, 5000)}, bandwidth=1000.0, epsilon=1e3, delta=1e-6)
    found = density.apply(table, into=tmp_path / "out").density(
        {"sales": [300.0]}, confidence=1 - 1e-7
    )
    found = found.to_pandas()
    read = np.arange(SIZE) % 10 > 0 if name in ("words", "-200") else np.ones(SIZE, dtype=bool)
    sales = np.clip(SALES[read], 0, 5000)
    truth = np.exp(-((sales - 300.0) ** 2) / (2 * 1000.0**2)).sum()
    assert abs(found["density"][0] - truth) < 0.02 * SIZE
    assert found["lower"][0] <= truth <= found["upper"][0]
    assert abs(found["records"][0] - len(sales)) < 5


ONE = Records((Column("sales", "float64", (0.0, 5000.0)),))
TIES: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "1,234 2,500 12,001 999": (";", {"delimiter": ";"}, ["thousands"]),
    "1.234 2.500 12.001 999": (",", {}, []),  # the plain form stands, and the question is put
}


def one_column(cells: str, delimiter: str, tmp_path: Path) -> None:
    lines = [f"sales{delimiter}b", *(f"{cell}{delimiter}1" for cell in cells.split())]
    (tmp_path / "t.csv").write_text("\n".join(lines))


@pytest.mark.parametrize("cells", TIES)
def test_a_sign_that_may_be_a_decimal_or_of_thousands_is_asked(cells: str, tmp_path: Path) -> None:
    delimiter, options, holes = TIES[cells]
    one_column(cells, delimiter, tmp_path)
    found = find_dialect({"file": "t.csv"}, ONE, tmp_path)
    assert (found.options, found.holes) == (options, holes)
    (question,) = found.asked
    assert "1234 with" in question
    assert "1.234 with" in question
    for declared in ({"decimal": ","}, {"thousands": ","}):
        given = {"file": "t.csv", "delimiter": delimiter, **declared}
        assert find_dialect(given, ONE, tmp_path).asked == []


def test_times_and_places_are_found_by_the_columns_they_are_made_of(tmp_path: Path) -> None:
    lines = "\n".join(f"2024-03-{d + 10};48,{d};10,5" for d in range(9))
    (tmp_path / "t.csv").write_text(f"time;lat;lon\n{lines}\n")
    columns = {"day": {"weekday": "time"}, "place": {"km": ["lat", "lon"], "at": [48, 10]}}
    records = Records((Column("day", "array[f64, 2]"), Column("place", "array[f64, 2]")))
    given = {"file": "t.csv", "columns": columns}
    found = find_dialect(given, records, tmp_path)
    assert found.options == {"delimiter": ";", "decimal": ","}
    source = open_source("csv", given | found.options, records, tmp_path)
    (block,) = source.blocks()
    assert np.isfinite(block["place"]).all()
    assert np.allclose(np.hypot(*block["day"].T), 7 / (2 * np.pi))
