"""Rows of the table for noise drawn in bulk."""

from __future__ import annotations

from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector
from opendp_sim.testing import Case
from opendp_sim.testing.strategies import integer_vectors

WEIGHTS = ((4, 1), (12, 3))

CASES = {
    "laplace/bulk": Case(
        mechanism=lookup("laplace")(scale=4.0, sampler="bulk"),
        domain=IntVector(16),
        metric=VectorNorm("l1", WEIGHTS),
        pairs=integer_vectors(16),
    ),
    "gaussian/bulk": Case(
        mechanism=lookup("gaussian")(scale=4.0, sampler="bulk"),
        domain=IntVector(16),
        metric=VectorNorm("l2", WEIGHTS),
        pairs=integer_vectors(16),
    ),
    "rounded_gaussian": Case(
        mechanism=lookup("rounded_gaussian")(scale=4.0),
        domain=IntVector(16),
        metric=VectorNorm("l2", WEIGHTS),
        pairs=integer_vectors(16),
    ),
}
