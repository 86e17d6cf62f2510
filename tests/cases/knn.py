from __future__ import annotations

from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows
from opendp_sim.testing import Case
from opendp_sim.testing.strategies import grid_pairs

GRID = GridRows(width=3, labels=("a", "b"), unit=0.125, lower=(-8,), upper=(8,))

CASES = {
    "ind_knn": Case(
        mechanism=lookup("ind_knn")(rho=0.5, queries=20, size=1000, threshold=0.8, centre=False),
        domain=GRID,
        metric=Symmetric(),
        pairs=grid_pairs(GRID),
    ),
    "hybrid_knn": Case(
        mechanism=lookup("hybrid_knn")(rho=0.5, queries=20, size=1000),
        domain=GRID,
        metric=Symmetric(),
        pairs=grid_pairs(GRID),
    ),
    "private_knn": Case(
        mechanism=lookup("private_knn")(epsilon=1.0, delta=1e-6, queries=20, centre=False),
        domain=GRID,
        metric=Symmetric(),
        pairs=grid_pairs(GRID),
    ),
}
