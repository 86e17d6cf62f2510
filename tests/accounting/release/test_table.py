"""A table of what was released: equal columns for every library, and no text that steers or marks up."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from opendp_sim.accounting.release.table import Table
from opendp_sim.core.errors import DataError

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
