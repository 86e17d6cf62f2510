"""Subclasses of numpy's array: read as the plain array that they hold, or the same refusal at any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opendp_sim.core.errors import InternalError
from opendp_sim.domains.normalise import as_array, unmasked
from opendp_sim.domains.records import Column, Records
from opendp_sim.io import gate as door
from opendp_sim.io.frames import from_table
from opendp_sim.sklearn import DPKernelDensity, DPNearestCentroid

pytestmark = pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
TOLD = "a record's own text"


class Loud(np.ndarray):
    """An array of a library with units, say: every operation on it is the library's own."""

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        raise KeyError(TOLD)

    def __getitem__(self, _: Any) -> Any:
        raise KeyError(TOLD)


def cells(n: int) -> np.ndarray:
    return np.linspace(-1, 1, 4 * n).reshape(n, 4)


KINDS = [
    np.asmatrix,
    lambda array: array.view(Loud),
    lambda array: np.ma.array(np.asmatrix(array), mask=False),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, 1, 3, 300])
def test_a_subclass_is_read_as_the_array_that_it_holds(kind: Any, n: int) -> None:
    given = kind(cells(n))
    for found in (unmasked(as_array(given))[0], unmasked(given)[0]):
        assert type(found) is np.ndarray
        assert np.array_equal(found, cells(n))
    records = Records((Column("x", "array[f64, 4]", bounds=(-1.0, 1.0)),))
    for table in (given, {"x": given}):
        pieces = [piece["x"] for piece in from_table(records, table).pieces(2**10)]
        assert all(type(np.ma.getdata(piece)) is np.ndarray for piece in pieces)
        assert sum(map(len, pieces)) == n


@pytest.mark.parametrize("kind", KINDS)
def test_an_estimator_fits_a_subclass_as_the_array(kind: Any) -> None:
    """A matrix was charged, and the error of a shape told the exact number of records."""
    labels = np.arange(300) % 2
    model = DPNearestCentroid(epsilon=1.0, bounds=(-1, 1), classes=[0, 1], budget=None)
    assert model.fit(kind(cells(300)), labels).predict(cells(3)).shape == (3,)
    assert DPKernelDensity(epsilon=1.0, bounds=(-1, 1)).fit(kind(cells(300))).n_features_in_ == 4


def test_what_fails_inside_the_gate_has_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError(TOLD)

    monkeypatch.setattr(door, "_enforced", fails)
    records = Records((Column("x", "array[f64, 4]", bounds=(-1.0, 1.0)),))
    with pytest.raises(InternalError, match="OS902") as caught:
        door.check_block({"x": cells(5)}, records, "enforce")
    assert TOLD not in str(caught.value)
    assert caught.value.__context__ is None
