"""Tables of scikit-learn's face: one cell decides about its own record alone, whatever holds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from opendp_sim.sklearn import DPKernelDensity, DPNearestCentroid, DPSearch
from opendp_sim.sklearn._validation.refusals import InputRefused
from opendp_sim.sklearn._validation.tables import ids_of, label_array, matrix_of

LABELS = {
    "a list": list,
    "lists of one": lambda cells: [[cell] for cell in cells],
    "tuples of one": lambda cells: [(cell,) for cell in cells],
    "arrays of one": lambda cells: [np.array([cell]) for cell in cells],
    "polars": pl.Series,
    "a polars frame": lambda cells: pl.DataFrame({"y": cells}),
    "pandas": lambda cells: pd.Series(cells, dtype="Int64"),
    "a pandas frame": lambda cells: pd.DataFrame({"y": pd.array(cells, dtype="Int64")}),
}


@pytest.mark.parametrize("odd", [None, [0, 1], [], [[0]], "x"], ids=str)
def test_one_odd_label_in_a_list_leaves_the_others_what_they_are(odd: Any) -> None:
    """Of lists of one, numpy made (n, 1), but (n,) of lists where one cell was odd: all were foreign."""
    for wrap in (lambda cell: cell, lambda cell: [cell], lambda cell: (cell,)):
        cells = [wrap(k % 2) for k in range(6)]
        assert label_array([*cells, odd], "y")[:6].tolist() == label_array(cells, "y").tolist()
        assert label_array([*cells, odd], "y").shape == (7,)


def test_one_odd_label_moves_a_release_by_one_record() -> None:
    x, y = np.linspace(0, 1, 200)[:, None], [[k % 2] for k in range(200)]
    found = []
    for labels in (y, [*y[:-1], None], [*y[:-1], [0, 1]]):
        clf = DPNearestCentroid(epsilon=1e4, delta=1e-6, bounds=(0, 1), classes=[0, 1])
        found.append(clf.fit(x, labels).release_.arrays["total"].astype(float))
    weight = found[0].sum() / 200
    for total in found[1:]:
        assert np.abs(total - found[0]).sum() < 1.5 * weight + 2000.0


@pytest.mark.parametrize("hold", LABELS.values(), ids=LABELS)
def test_labels_are_what_they_are_beside_a_null(hold: Any) -> None:
    far = 2**53 + 1
    whole, holed = label_array(hold([far, 1]), "y"), label_array(hold([far, 1, None]), "y")
    assert whole.dtype == holed.dtype
    assert whole.tolist() == holed[:2].tolist() == [far, 1]


@pytest.mark.parametrize("hold", LABELS.values(), ids=LABELS)
def test_persons_are_declared_the_same_beside_a_null(hold: Any) -> None:
    (one, of_one), (more, of_more) = ids_of(hold([7, 1])), ids_of(hold([7, 1, None]))
    assert of_one == of_more
    assert one.tolist() == more[:2].tolist()
    assert [str(name) for name in one.tolist()] == ["7", "1"]


def test_persons_in_a_list_of_numbers_are_persons() -> None:
    """They were declared as text and read as none: every record was left out, and all was charged."""
    x, y = np.linspace(0, 1, 100)[:, None], [k % 2 for k in range(100)]
    clf = DPNearestCentroid(
        epsilon=1e3, delta=1e-6, bounds=(0, 1), classes=[0, 1], unit="groups", max_rows=1
    )
    by_list = clf.fit(x, y, groups=list(range(100))).release_.arrays["total"].astype(float)
    by_array = clf.fit(x, y, groups=np.arange(100)).release_.arrays["total"].astype(float)
    assert np.abs(by_list - by_array).max() < 0.1 * by_array.max()
    assert ids_of([1, 2.0, "3", None, b"4", np.int64(5)])[0].tolist() == [
        "1",
        "2",
        "3",
        None,
        None,
        "5",
    ]


def test_a_null_in_a_frame_changes_no_plan() -> None:
    """Of Int16 Polars makes int16 without a null and float32 with one: the plan declared another type."""
    hashes = set()
    for cells in ([0, 1, 1], [0, 1, None]):
        frame = pl.DataFrame({"a": pl.Series(cells, dtype=pl.Int16)})
        fitted = DPKernelDensity(bounds=(0, 1), bandwidth=0.3).fit(frame)
        hashes.add(fitted.plan_.program.hash)
    assert len(hashes) == 1


@pytest.mark.parametrize("odd", [[[1], 2], [None, 2], ["x", [2]]], ids=str)
def test_one_odd_cell_of_a_list_of_rows_is_its_own(odd: Any) -> None:
    deep = [[[1], [2]], [[3], [4]]]
    for rows in ([[1, 2], [3, 4]], deep):
        found = matrix_of([*rows, odd])
        assert found.shape == (3, 2)
        assert found[:2].tolist() == matrix_of(rows).tolist() == rows
    with pytest.raises(InputRefused, match="OS602"):
        matrix_of([[1, 2], [3]])


def test_two_columns_of_one_name_are_told_by_place() -> None:
    for holes in ([1, 2], [1, None]):
        frame = pd.DataFrame({"a": pd.array(holes, dtype="Int64"), "b": [3, 4]}).set_axis(
            ["a", "a"], axis=1
        )
        assert matrix_of(frame).dtype == np.float64
        assert matrix_of(frame)[0].tolist() == [1.0, 3.0]


def test_a_search_takes_persons_of_any_text() -> None:
    """A lone surrogate raised UnicodeEncodeError, which held the name."""
    x, y = np.linspace(0, 1, 40)[:, None], np.arange(40) % 2
    groups = np.array([f"p{k}" for k in range(39)] + ["bob\ud83d"], dtype=object)
    centroid = DPNearestCentroid(bounds=(0, 1), classes=[0, 1], unit="groups", max_rows=1)
    assert DPSearch(centroid, {"data_norm": [None]}).fit(x, y, groups=groups).best_params_


def test_a_refused_query_is_called_as_the_caller_calls_it() -> None:
    """It was "queries: expected finite numbers (column x)": no caller has a column of that name."""
    model = DPKernelDensity(epsilon=1.0, delta=1e-6, bounds=(0, 1)).fit(np.full((9, 2), 0.5))
    for odd in ([[np.nan, 0.5]], [[1e300, 0.5]], [[0.5, 0.5, 0.5]], [["a", "b"]]):
        with pytest.raises(InputRefused) as refused:
            model.score_samples(odd)
        assert (refused.value.code, refused.value.where) == ("OS607", "X")
        assert "column x" not in str(refused.value)
        assert ".." not in str(refused.value)
