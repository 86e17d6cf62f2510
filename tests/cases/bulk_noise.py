"""Rows of the table for noise drawn in bulk."""

from __future__ import annotations

from opendp_sim.core.mechanism import lookup
from opendp_sim.spaces.metrics import VectorNorm
from opendp_sim.spaces.sketch import IntVector
from opendp_sim.testing import Case
from opendp_sim.testing.strategies import integer_vectors

WEIGHTS = ((4, 1), (12, 3))

CASES = {
    "bulk_laplace": Case(
        mechanism=lookup("bulk_laplace")(scale=4.0),
        domain=IntVector(16),
        metric=VectorNorm("l1", WEIGHTS),
        pairs=integer_vectors(16),
    ),
    "bulk_gaussian": Case(
        mechanism=lookup("bulk_gaussian")(scale=4.0),
        domain=IntVector(16),
        metric=VectorNorm("l2", WEIGHTS),
        pairs=integer_vectors(16),
    ),
}
