"""Plain values as columns: what fits no column is refused, and none is quoted."""

from __future__ import annotations

import pytest

from opendp_sim.core.errors import DataError
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.run.session import checked_columns

RECORDS = Records((Column("x", "float64", bounds=(0.0, 1.0)), Column("n", "int64", bounds=(0, 9))))


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [7],
        [{"x": 0.5}],
        [{"x": "424242", "n": 1}],
        [{"x": 0.5, "n": True}],
        [{"x": 424242.0, "n": 1}],
        [{"x": [0.5], "n": 1}],
        [{"x": 0.5, "n": 10**30}],
    ],
)
def test_what_fits_no_column_is_refused_without_a_value(rows):
    with pytest.raises(DataError, match="OS607") as refused:
        checked_columns(RECORDS, rows)
    assert "424242" not in str(refused.value)
