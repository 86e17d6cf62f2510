"""A store whose hashes were computed anew is read strictly: a damaged store, never a failure inside."""

from __future__ import annotations

import random

import numpy as np
import pytest

from opendp_sim.core.errors import BudgetError
from opendp_sim.domains.rows import GridRows
from opendp_sim.measurements.knn._impl.stored import kept_labels, replaying
from tests._edited_stores import MECHANISMS, EditedStores
from tests._edits import fault_of
from tests._tiers import some

GRID = GridRows(width=2, labels=("a", "b"), unit=0.01, lower=(-100,), upper=(100,))


@pytest.mark.parametrize("mechanism", some(MECHANISMS, 2))
def test_no_edit_of_a_store_is_a_failure_inside_the_mechanism(tmp_path, mechanism):
    """Before, one edit in four was OS902, and emptied every purse (benchmarks/survive_edits has the campaign)."""
    stores = EditedStores(tmp_path / "store", mechanism)
    ends = []
    for seed in range(25):
        stores.edit(random.Random(f"{mechanism} {seed}"))  # noqa: S311 - which edit
        ends.append(fault_of(stores.read))
    assert ends.count("OS407") >= 3
    assert set(ends) <= {None, "OS407", "OS607", "OS406"}
    stores.path.write_bytes(stores.whole)
    assert fault_of(stores.read) is None


@pytest.mark.parametrize("labels", [[0.0], [2], [-1], [[0]], ["a"], [True]])
def test_numbers_of_classes_that_no_service_wrote_are_refused(labels):
    with pytest.raises(BudgetError, match="OS407"):
        kept_labels(GRID, np.array(labels))


def test_an_interruption_is_no_damage():
    with pytest.raises(KeyboardInterrupt), replaying():
        raise KeyboardInterrupt
    with pytest.raises(MemoryError), replaying():
        raise MemoryError
