"""Rows of the table for the maps of records and rows, before any sketch."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.testing import Case
from opendp_sim.testing.strategies import grid_pairs, real_pairs

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


@st.composite
def person_pairs(draw: st.DrawFn) -> Any:
    """Some persons are in both, in another order; each of the others is in one of the two."""
    shared, left, right = (some(draw(st.integers(0, most)), draw) for most in (8, 5, 5))
    left["user"] = np.array([f"left {v}" for v in left["user"]], dtype=object)
    right["user"] = np.array([f"right {v}" for v in right["user"]], dtype=object)
    order = np.array(draw(st.permutations(range(len(shared["age"])))), dtype=np.int64)
    mixed = {name: column[order] for name, column in shared.items()}
    d_in = len(set(left["user"])) + len(set(right["user"]))
    return join(shared, left), join(right, mixed), d_in


REAL = RealRows(width=3, labels=("a", "b"), lower=(-1.0, 0.0, -2.0), upper=(1.0, 3.0, 0.0))
GRID = GridRows(width=5, unit=0.25, lower=(-7, 0, -1, -9, 2), upper=(7, 8, 0, 9, 3), l2=13)
ONE_REAL = Rows(np.array([[0.9, 0.3, -1.0]]), np.zeros(1, np.int64))
NO_REAL = Rows(np.zeros((0, 3)), np.zeros(0, np.int64))

CASES = {
    "select": Case(
        mechanism=lookup("select")(features=["x", "age"], label="kind", person="user"),
        domain=RECORDS,
        metric=Symmetric(),
        pairs=record_pairs(),
    ),
    "bound_contributions": Case(
        mechanism=lookup("bound_contributions")(max_rows=2, seed=5),
        domain=RECORDS,
        metric=IdDistance("user"),
        pairs=person_pairs(),
    ),
    "clip_rows": Case(
        mechanism=lookup("clip_rows")(norm="l2", bound=0.75),
        domain=REAL,
        metric=Symmetric(),
        pairs=real_pairs(REAL),
        attains=(NO_REAL, ONE_REAL, 1),
    ),
    "rescale": Case(
        mechanism=lookup("rescale")(centre="middle", scale=[2.0, 0.3, 1e-3]),
        domain=REAL,
        metric=Symmetric(),
        pairs=real_pairs(REAL),
        attains=(NO_REAL, ONE_REAL, 1),
    ),
    "jl_projection": Case(
        mechanism=lookup("jl_projection")(dimension=3, seed=5),
        domain=GRID,
        metric=Symmetric(),
        pairs=grid_pairs(GRID),
        attains=(Rows(np.zeros((0, 5))), Rows(np.array([[7.0, 1.0, -1.0, 2.0, 3.0]])), 1),
    ),
    "fourier_features": Case(
        mechanism=lookup("fourier_features")(frequencies=3, bandwidth=1.0, seed=5),
        domain=GRID,
        metric=Symmetric(),
        pairs=grid_pairs(GRID),
        attains=(Rows(np.zeros((0, 5))), Rows(np.array([[7.0, 1.0, -1.0, 2.0, 3.0]])), 1),
    ),
}
