"""Purses are the last full copy less what was paid since; bytes that cannot be that are refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from opendp_sim.accounting import _session_chain as chain
from opendp_sim.accounting._session_tables import filled, read_purses
from opendp_sim.core.errors import BudgetError


def packed(*numbers: int) -> bytes:
    return np.array(numbers, dtype="<i8").tobytes()


@pytest.mark.parametrize(
    ("who", "paid", "left"),
    [
        (packed(1), packed(4), [10, 6, 10]),
        (packed(-1), packed(4), None),
        (packed(7), packed(4), None),
        (packed(0, 1), packed(4), None),
        (b"123", packed(4), None),
    ],
)
def test_purses_are_read_or_refused(who: bytes, paid: bytes, left: list[int] | None) -> None:
    with closing(sqlite3.connect(":memory:")) as store:
        filled(store, {}, "name")
        store.execute("INSERT INTO purses VALUES (1, ?)", (packed(10, 10, 10),))
        row = (2, "answers", b"", who, paid, 1, "", chain.start("name"))
        store.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        if left is None:
            with pytest.raises(BudgetError, match="OS407"):
                read_purses(store)
        else:
            assert read_purses(store).tolist() == left
