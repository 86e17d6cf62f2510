"""Columns of a dict, as every library holds them: one record more never changes what the others are."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import opendp_sim as sim
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.core.errors import DataError
from opendp_sim.domains.normalise import normal
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.columns import typed_column
from opendp_sim.io.frames import from_table, warn_of_objects
from opendp_sim.io.gate import check_form, gated_blocks
from opendp_sim.sklearn import DPKernelDensity

FAR = 2**53 + 1
"""A number that float64 does not hold."""


class Speaks:
    """A library that nobody knows, which speaks Arrow."""

    def __init__(self, cells: list[Any]) -> None:
        self._cells = pl.Series(cells)

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        return self._cells.__arrow_c_stream__(schema)


HOLDERS = {
    "polars": pl.Series,
    "arrow": pa.array,
    "arrow in chunks": lambda cells: pa.chunked_array([cells[:1], cells[1:]], pa.array(cells).type),
    "pandas nullable": lambda cells: pd.Series(cells, dtype="Int64"),
    "pandas array": lambda cells: pd.array(cells, dtype="Int64"),
    "pandas index": lambda cells: pd.Index(cells, dtype="Int64"),
    "pandas over arrow": lambda cells: pd.Series(cells, dtype="int64[pyarrow]"),
    "another library": Speaks,
    "a list": list,
    "a deque": deque,
    "objects": lambda cells: np.array([*cells, None], dtype=object)[:-1],
}
COLUMNS = {
    "whole": Column("x", "int64"),
    "bounded": Column("x", "int64", bounds=(-9.0, 9.0)),
    "real": Column("x", "float64"),
    "bool": Column("x", "bool"),
    "keys": Column("x", "category", keys=(5, FAR)),
    "person": Column("x", "int64", role="privacy_id"),
    "keys beyond 64 bits": Column("x", "category", keys=(1, 5, 2**63, -(2**70))),
}


def kept(column: Column, cells: Any) -> list[Any]:
    table = from_table(Records((column,)), {"x": cells})
    check_form(table)
    blocks = [b["x"] for b in gated_blocks(table, "enforce")()]
    assert len({b.dtype for b in blocks}) <= 1
    return [cell for block in blocks for cell in block.tolist()]


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_a_null_changes_no_other_record_and_refuses_nothing(column: Column, holder: Any) -> None:
    """``numpy.asarray`` gave int64 without a null, and float64 with one."""
    cells = [5, FAR, 1, -3]
    first = kept(column, holder(cells))
    for place in range(len(cells) + 1):
        assert kept(column, holder([*cells[:place], None, *cells[place:]])) == first
    assert first == kept(column, cells)
    assert kept(column, np.array(cells)) == first


FRAMES = {
    "polars": pl.DataFrame,
    "pandas": lambda d: pd.DataFrame({n: pd.array(c, dtype="Int64") for n, c in d.items()}),
    "arrow": pa.table,
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_frame_in_a_dict_is_a_vector(frame: Any) -> None:
    column = Column("x", "array[i64, 2]")
    first = kept(column, frame({"a": [FAR, 2], "b": [3, 4]}))
    assert first == [[FAR, 3], [2, 4]]
    assert kept(column, frame({"a": [FAR, 2, None], "b": [3, 4, 5]})) == first
    with pytest.raises(DataError, match="OS602"):
        kept(column, frame({"a": [1]}))


def test_a_null_is_no_fault_of_the_form(tmp_path: Any) -> None:
    """A null made the check of the form fail: not charged, not counted, for any number of runs."""
    file = tmp_path / "a.ledger"
    fit = sim.density(
        {"a": (0, 10)}, bandwidth=2.0, epsilon=0.1, unit="who", ids="int64", max_rows=1, ledger=file
    )
    fit.apply({"a": [1.0, 2.0, 3.0], "who": pl.Series([1, 2, None])}, into=tmp_path)
    with Ledger.open(file) as ledger:
        assert "charge" in {entry.kind for entry in ledger.entries}


def test_objects_of_polars_are_refused_before_a_charge(tmp_path: Any) -> None:
    """The process ended behind the reserve: charged, and no answer."""
    file = tmp_path / "a.ledger"
    fit = sim.density({"a": (0, 10)}, bandwidth=2.0, epsilon=0.1, ledger=file)
    with pytest.raises(DataError, match=r"OS602 .*a column of a type that Arrow has"):
        fit.apply(pl.DataFrame({"a": [object()]}), into=tmp_path)
    assert not file.exists() or not Ledger.open(file).entries


def test_a_native_chain_refuses_by_the_type_alone() -> None:
    """Behind OpenDP no dict is converted: a column with a type of its own is refused, nulls or none."""
    for cells in ([1, 2], [1, None], []):
        with pytest.raises(DataError, match="OS602"):
            normal(pl.Series(cells, dtype=pl.Int64), COLUMNS["whole"])
    assert normal(pd.Series([1, 2]), COLUMNS["whole"]).tolist() == [1, 2]


def test_what_raises_while_it_is_converted_says_nothing() -> None:
    class Odd:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise ValueError("record 17 holds Ada")

    with pytest.raises(DataError, match="OS602") as caught:
        kept(COLUMNS["whole"], Odd())
    assert "Ada" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_column_s_own_type_is_that_of_its_library() -> None:
    for cells in ([1, 2], [1, None]):
        for holder in ("polars", "arrow", "pandas nullable", "another library"):
            found = typed_column(HOLDERS[holder](cells), "y")
            assert found is not None
            assert found.dtype == np.int64
    assert typed_column(np.arange(2), "y") is None
    assert typed_column([1, 2], "y") is None
    assert typed_column(pl.Series(["a", None]), "y").tolist() == ["a", None]  # type: ignore[union-attr]
    assert typed_column(pl.Series([0.5, None]), "y").dtype == np.float64  # type: ignore[union-attr]


def heavy() -> Any:
    """Return the caller's stream: it opens, and fails at its second batch with a record in its text."""

    def batches() -> Any:
        yield pa.record_batch({"x": pa.array([1])})
        raise ValueError(TOLD)

    return pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches())


TOLD = "record 17 holds Ada"


def fails(*_: Any, **__: Any) -> Any:
    raise ValueError(TOLD)


class Columns(Mapping[str, Any]):
    """A mapping of the caller's whose every method fails."""

    __getitem__ = __contains__ = __iter__ = fails

    def __len__(self) -> int:
        return 1


FOREIGN: dict[str, Any] = {
    "a function": lambda records: from_table(records, fails),
    "a function's stream": lambda records: from_table(records, heavy),
    "a mapping": lambda records: from_table(records, Columns()),
    "a computed column": lambda records: from_table(
        records, {"x": type("Odd", (), {"__array__": fails})()}
    ),
}


@pytest.mark.parametrize("opened", FOREIGN.values(), ids=FOREIGN)
def test_what_a_caller_s_own_code_raises_leaves_as_a_constant_refusal(opened: Any) -> None:
    """A function, mapping, stream or array of the caller's runs inside a release: its texts may hold data."""
    with pytest.raises(DataError, match=r"OS60[12]") as caught:
        list(opened(Records((COLUMNS["whole"],))).blocks())
    error: BaseException | None = caught.value
    while error is not None:
        assert TOLD not in f"{error!r} {error.args!r}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (pd.DataFrame({"a": pd.Series([1, "x"], dtype=object), "b": [1.0, 2.0]}), "a"),
        ({"a": np.array([1, None], dtype=object), "b": np.array([1.0, "x"], dtype=object)}, "a, b"),
        (np.zeros(2, dtype=[("a", "O"), ("b", "f8")]), "a"),
        ({"a": [1, None], "b": [1.0, 2.0]}, ""),
        (pd.DataFrame({"a": [1, 2], "b": [1.0, 2.0], "t": ["u", 5]}), ""),
        (pl.DataFrame({"a": [1, 2], "b": [1.0, 2.0]}), ""),
    ],
    ids=["pandas", "numpy", "structured", "lists", "typed", "polars"],
)
def test_numbers_stored_as_objects_are_warned_of_by_their_type(table, told):
    """Their unread cells were dropped without a word, where those of a text column are refused."""
    records = Records((Column("a", "int64"), Column("b", "float64"), Column("t", "str")))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_of_objects(table, records)
    assert [str(one.message).partition(".")[0] for one in found] == [
        f"stored as objects: {told}"
    ] * bool(told)


def test_apply_and_estimators_warn_of_objects_before_the_charge(tmp_path):
    cells = np.array([1.5, "x"] * 9, dtype=object)
    plan = sim.density({"a": (0, 5)}, bandwidth=1.0, epsilon=1.0, delta=1e-6)
    with pytest.warns(RuntimeWarning, match="stored as objects: a"):
        plan.apply({"a": cells}, into=tmp_path)
    model = DPKernelDensity(bounds=(0, 5), bandwidth=1.0, epsilon=1.0, delta=1e-6)
    with pytest.warns(RuntimeWarning, match="stored as objects: X"):
        model.fit(cells[:, None])
