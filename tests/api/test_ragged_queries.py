"""Rows of several lengths are refused by name at every door; numpy's own message counts the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import opendp_sim as sim
from opendp_sim.accounting.release.query import query_columns
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import RealRows, array_of_rows
from opendp_sim.dsl.run.session import Served
from opendp_sim.postprocessing._impl.asked import check_queries

RAGGED = [[0.1, 0.2], [0.3]]


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    table = np.random.default_rng(1).random((50, 2))
    spec = sim.density({"x": (0, 1), "y": (0, 1)}, bandwidth=0.2, epsilon=1.0, delta=1e-6)
    return spec.apply({"x": table[:, 0], "y": table[:, 1]}, into=tmp_path_factory.mktemp("release"))


@pytest.mark.parametrize(
    "queries",
    [RAGGED, [RAGGED], [[0.1, [0.2]]], np.array([[0.1, 0.2], [0.3]], dtype=object), [[1, 2], "ab"]],
)
def test_a_release_refuses_ragged_queries(release, queries):
    with pytest.raises(sim.SimError) as refused:
        release.density(queries)
    assert refused.value.code == "OS607"


def test_a_column_that_is_spread_has_one_length():
    features = Records((Column("x", "array[f64, 2]"),))
    with pytest.raises(sim.SimError) as refused:
        query_columns({"x_0": [0.1, 0.2, 0.3], "x_1": [0.1, 0.2]}, features)
    assert (refused.value.code, refused.value.__context__) == ("OS607", None)
    held = query_columns({"x_0": [0.1, 0.2], "x_1": [0.3, 0.4]}, features)
    assert held["x"].tolist() == [[0.1, 0.3], [0.2, 0.4]]


@pytest.mark.parametrize("code", ["OS602", "OS607"])
def test_no_count_of_rows_is_in_the_message(code):
    with pytest.raises(sim.SimError) as refused:
        array_of_rows([[0.5]] * 736 + [[0.5, 0.5]], code)
    assert "736" not in str(refused.value)
    assert "737" not in str(refused.value)
    assert refused.value.__context__ is None


def test_so_do_the_doors_of_opendp():
    domain = RealRows(2)
    with pytest.raises(sim.SimError):
        domain.normal(RAGGED)
    with pytest.raises(sim.SimError):
        check_queries(domain, RAGGED)


@pytest.mark.parametrize(
    "series",
    [
        pd.Series([1.0, 2.0]),
        pd.Series([1, 2], dtype="Int64", name="b"),
        pl.Series([1.0, 2.0]),
        pa.chunked_array([[1.0], [2.0]]),
        pa.array([1, 2]),
    ],
    ids=lambda one: type(one).__module__,
)
def test_a_series_is_what_a_list_of_numbers_is(series: Any) -> None:
    one = Records((Column("a", "float64"),))
    two = Records((Column("a", "float64"), Column("b", "float64")))
    assert query_columns(series, one)["a"].tolist() == [1, 2]
    assert [cells.tolist() for cells in query_columns(series, two).values()] == [[1], [2]]


def test_a_row_of_a_frame_is_read_by_its_names() -> None:
    two = Records((Column("a", "float64"), Column("b", "float64")))
    row = pd.DataFrame({"b": [2.0], "a": [1.0], "c": [9.0]}).iloc[0]
    assert query_columns(row, two) == {"a": [1.0], "b": [2.0]}
    assert (
        query_columns(pd.Series({"x": 1.0, "y": 2.0}), two) == {}
    )  # of other names: refused as missing


@pytest.mark.parametrize(
    "queries",
    [
        [30.0, 160.0],
        [[30.0, 160.0]],
        {"a": 30.0, "b": 160.0},
        [{"b": 160, "a": 30}],
        np.array([30.0, 160.0]),
        np.array([[30.0, 160.0]]),
        pd.DataFrame({"b": [160.0], "a": [30.0]}),
        pl.DataFrame({"a": [30.0], "b": [160.0]}),
        pd.Series([30.0, 160.0]),
    ],
    ids=lambda one: f"{type(one).__module__} {one!r:.20}",
)
def test_a_session_takes_one_query_and_a_table_of_them(queries: Any) -> None:
    """``session.ask([30.0, 160.0])`` was refused with a hint of this form."""
    two = Records((Column("a", "float64"), Column("b", "float64")))
    served: Any = Served(None, two, two)  # type: ignore[arg-type]
    asked = served.queries(queries)
    assert {name: cells.tolist() for name, cells in asked.items()} == {"a": [30], "b": [160]}


def test_a_session_of_one_column_takes_a_list_of_queries() -> None:
    one = Records((Column("a", "float64"),))
    served: Any = Served(None, one, one)  # type: ignore[arg-type]
    assert served.queries([30.0, 40.0])["a"].tolist() == [30, 40]
    for wrong in ([], [True, False], "ab", 3):
        with pytest.raises(sim.SimError):
            served.queries(wrong)
