"""Rows of the table for the maps that begin at records."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from opendp_sim.core.mechanism import lookup
from opendp_sim.spaces.metrics import Symmetric
from opendp_sim.spaces.records import Column, Records
from opendp_sim.testing import Case

RECORDS = Records(
    (
        Column("x", "array[f32, 2]", bounds=(-0.1, 1.0)),
        Column("age", "int64", bounds=(0.0, 120.0)),
        Column("kind", "category", keys=("a", "b")),
        Column("user", "str", role="privacy_id"),
    )
)


def some(count: int, draw: st.DrawFn) -> dict[str, Any]:
    def cells(entry: st.SearchStrategy[Any], dtype: Any) -> Any:
        return np.array(draw(st.lists(entry, min_size=count, max_size=count)), dtype=dtype)

    corner = st.sampled_from((-0.1, 1.0, 0.0, -0.0, 0.3, 1e-45))
    x = [cells(corner, np.float32) for _ in range(2)]
    return {
        "x": np.stack(x, axis=1).reshape(count, 2),
        "age": cells(st.integers(0, 120), np.int64),
        "kind": cells(st.integers(0, 1), np.int64),
        "user": cells(st.sampled_from(("u", "v", "w")), object),
    }


def join(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    return {name: np.concatenate([left[name], right[name]]) for name in left}


@st.composite
def record_pairs(draw: st.DrawFn) -> Any:
    shared, left, right = (some(draw(st.integers(0, most)), draw) for most in (6, 3, 3))
    d_in = len(left["age"]) + len(right["age"])
    return join(shared, left), join(right, shared), d_in


CASES = {
    "select": Case(
        mechanism=lookup("select")(features=["x", "age"], label="kind", person="user"),
        domain=RECORDS,
        metric=Symmetric(),
        pairs=record_pairs(),
    ),
}
