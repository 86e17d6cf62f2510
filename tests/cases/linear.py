from __future__ import annotations

from typing import Any

import numpy as np

from opendp_sim.accounting.release.release import Release
from opendp_sim.core.claims import Stage
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows
from opendp_sim.testing import Case
from opendp_sim.testing.strategies import grid_pairs

GRID = GridRows(width=3, labels=("a", "b"), unit=0.125, lower=(-80,), upper=(80,))
MODEL = lookup("linear_model")(rho=0.5, steps=3)
LINE = lookup("linear_regression")(rho=0.5, steps=3)


def _release() -> Release:
    claim = MODEL.bind(GRID, Symmetric())
    flat = np.random.default_rng(1).integers(-(2**24), 2**24, claim.output.size)
    return Release.of_sketch((Stage(MODEL, GRID, Symmetric(), claim),), flat, None, {"rho": 0.5})


RELEASE = _release()


def _asked() -> tuple[Any, Any]:
    return RELEASE.arrays, np.array([[1.0, -5.0, 2.0], [0.0, 0.0, 0.0], [80.0, 80.0, -80.0]])


CASES = {
    "linear_model": Case(mechanism=MODEL, domain=GRID, metric=Symmetric(), pairs=grid_pairs(GRID)),
    "linear_regression": Case(
        mechanism=LINE, domain=GRID, metric=Symmetric(), pairs=grid_pairs(GRID)
    ),
    "predict": Case(
        mechanism=lookup("predict")(), domain=RELEASE.released, metric=Symmetric(), released=_asked
    ),
}
