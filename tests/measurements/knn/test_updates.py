"""What a curator may change while a service runs: nothing, or the records of persons."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from opendp_sim.core.errors import DataError, SpaceError
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.knn._impl.privacy_filter import IndividualFilter
from opendp_sim.measurements.knn._impl.updates import ChangingRecords, FixedRecords

SETTING = SimpleNamespace(key="some_knn")
GRID = GridRows(width=2, labels=("a", "b"), ids=True, lower=(0,), upper=(9,))


def rows(*ids):
    count = len(ids)
    return Rows(np.ones((count, 2)), np.zeros(count, dtype=np.int64), np.array(ids))


class Running(ChangingRecords):
    """A service that answers nothing, and changes its records."""

    _ready = False

    def __init__(self, domain, data):
        super().__init__(SETTING, domain, data, None, IndividualFilter(Fraction(1, 10), 0))

    def waiting(self):
        return [id_ for block, _ in self._waiting for id_ in block.ids.tolist()]


@pytest.mark.parametrize("word", ["insert", "relabel", "delete"])
def test_fixed_records_stay(word):
    service = FixedRecords(SETTING, GRID, None)
    with pytest.raises(SpaceError, match="OS201"):
        getattr(service, word)(rows(1))


def test_a_person_who_comes_back_has_the_purse_of_before():
    service = Running(GRID, rows(5, 6, 5))
    service.delete([5])
    assert service.waiting() == [6]
    service.insert(rows(5, 7))
    assert service.waiting() == [6, 5, 7]
    assert len(service._purses_now()) == 3
    assert service._meet(rows(7, 6, 5)).tolist() == [2, 1, 0]
    service.relabel(rows(6))
    assert service.waiting() == [5, 7, 6]
    assert not service._spend_all().any()


def test_persons_of_the_other_kind_and_records_without_persons_are_refused():
    service = Running(GRID, rows(5))
    with pytest.raises(DataError, match="OS607"):
        service.delete(["5"])
    nobody = Rows(np.ones((1, 2)), np.zeros(1, dtype=np.int64))
    alone = Running(GridRows(width=2, labels=("a",), upper=(9,)), nobody)
    with pytest.raises(DataError, match="OS607"):
        alone.delete([5])
