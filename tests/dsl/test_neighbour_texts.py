"""A slice of ``benchmarks/neighbour_texts.py``: what leaves runs on neighbours is the same bytes, up to noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import neighbour_texts as campaign
from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.open import open_source
from opendp_sim.io.protocol import PieceSource, from_arrays
from tests._gate import check_source

SPECS = Path(__file__).parents[2] / "specs"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("spec", "route", "mode"),
    [
        ("flights-regression", "csv", "refuse"),
        ("flights-delays", "npz", "enforce"),
        pytest.param("bright-pixels", "memory", "refuse", marks=pytest.mark.long),
        ("digits-session", "npz", "enforce"),
    ],
)
def test_texts_of_neighbours_are_the_same(tmp_path, spec, route, mode):
    with campaign.small_blocks():
        case = campaign.Case(SPECS / f"{spec}.yaml", route, mode, tmp_path)
        counts, differ = campaign.compared(case, whole=False)
    assert counts["texts"] > 5
    assert not differ


def test_the_bar_shows_the_same_phases_whatever_there_is(tmp_path):
    """Before, an empty file showed no `checking`, nor did one whose first block was refused."""
    with campaign.small_blocks():
        case = campaign.Case(SPECS / "flights-delays.yaml", "csv", "enforce", tmp_path)
        seen = [case.commands(rows)["text stderr"] for rows in (case.rows, [])]
    assert "checking" in seen[0]
    assert len(set(seen)) == 1


TWO = Records((Column("a", "float64", bounds=(0.0, 1.0)), Column("b", "category", keys=("x", "y"))))


@pytest.mark.parametrize("bad", [(0, 7), (7, 0), (3, 4), (4, 3)])
def test_a_refusal_says_nothing_about_the_order_of_bad_records(bad):
    """It was that of the first bad block: which kind of bad record came first."""
    a, b = np.full(8, 0.5), np.array(["x"] * 8, dtype=object)
    a[bad[0]], b[bad[1]] = 2.0, "z"
    chunks = [{"a": a[i : i + 1], "b": b[i : i + 1]} for i in range(8)]
    for source in (from_arrays(TWO, {"a": a, "b": b}), PieceSource(TWO, lambda _rows: chunks)):
        with pytest.raises(DataError, match="OS605") as caught:
            check_source(source, "refuse")
        assert caught.value.where == "column a"


@pytest.mark.parametrize("kind", ["npz", "parquet", "memory"])
@pytest.mark.parametrize("rows", [0, 1])
def test_a_wrong_dtype_is_refused_with_or_without_records(tmp_path, kind, rows):
    """Before, it was refused as soon as there was one record, under `enforce` too."""
    one = Records((Column("a", "int64", bounds=(0, 1)),))
    held = {"a": np.zeros(rows, dtype="datetime64[s]")}
    np.savez(tmp_path / "t.npz", **held)
    if kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table(held), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="OS602"):
        check_source(
            from_arrays(one, held)
            if kind == "memory"
            else open_source(kind, f"t.{kind}", one, tmp_path),
            "enforce",
        )


def test_bounds_without_an_integer_are_refused_where_they_are_declared():
    """Before, the gate refused them as soon as there was one record, under `enforce` too."""
    for dtype, bounds in (
        ("int64", (0.2, 0.8)),
        ("array[u8, 2]", (-5, -1)),
        ("array[i32, 1]", (2**31, 2**32)),
    ):
        with pytest.raises(SpecError, match="OS304"):
            Column("a", dtype, bounds=bounds)
