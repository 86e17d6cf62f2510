"""Whatever reads sums of kernels has all that the protocol asks for, and a sketch all that its reader asks for."""

from __future__ import annotations

from typing import Any

import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.capabilities import KernelSums
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows
from opendp_sim.transformations.sketches.kernels.race_sketch import RaceParameters

GRID = GridRows(width=2, unit=0.1, lower=(-20, -20), upper=(20, 20))
FAMILY = {"p_stable_l2": {"width": 2.0}}
KERNEL = {"gaussian": {"bandwidth": 2.0}}
SKETCHES: dict[str, dict[str, Any]] = {
    "race_sketch": {"repetitions": 7, "buckets": 32, "family": FAMILY, "seed": 1},
    "fourier_sketch": {"frequencies": 9, "kernel": KERNEL, "seed": 2},
    "gauss_transform_sketch": {"bandwidth": 2.0},
}


def asked_of(protocol: type) -> set[str]:
    """Return the names that a protocol declares, but for what a plugin may leave out."""
    return {name for name in vars(protocol) if not name.startswith("_")}


@pytest.mark.parametrize("key", SKETCHES)
def test_readers_of_kernels_keep_the_protocol(key: str) -> None:
    claim: Any = lookup(key)(**SKETCHES[key]).bind(GRID, Symmetric())
    reader = claim.capabilities["kernel_sums"]
    assert asked_of(KernelSums) >= {"estimate", "kernel"}
    assert not {name for name in asked_of(KernelSums) if not hasattr(reader, name)}


def test_race_tells_its_reader_everything() -> None:
    sketch = lookup("race_sketch")(**SKETCHES["race_sketch"])
    assert not {name for name in asked_of(RaceParameters) if not hasattr(sketch, name)}
