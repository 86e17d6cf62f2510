"""Public queries from far away: answered by about zero, or refused alike by every query."""

from __future__ import annotations

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Noise
from opendp_sim.core.errors import DataError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, RealRows, Rows

N = 1000
GRID = GridRows(width=2, unit=0.25, lower=(-8,), upper=(8,))
KERNELS = {
    "narrow": (
        "race_sketch",
        {"family": {"p_stable_l2": {"width": 0.001}}, "repetitions": 200, "buckets": 64},
    ),
    "l2": (
        "race_sketch",
        {"family": {"p_stable_l2": {"width": 1.0}}, "repetitions": 200, "buckets": 64},
    ),
    "l1": (
        "race_sketch",
        {"family": {"p_stable_l1": {"width": 1.0}}, "repetitions": 200, "buckets": 64},
    ),
    "fourier": ("fourier_sketch", {"kernel": {"gaussian": {"bandwidth": 1.0}}, "frequencies": 400}),
    "fine": ("fourier_sketch", {"kernel": {"gaussian": {"bandwidth": 1e-3}}, "frequencies": 400}),
}


def release(steps, domain, data) -> Release:
    stages = bind_steps(domain, Symmetric(), steps)
    flat = whole_function(stages[-1].claim)(resolve(stages, list)(data))
    return Release.of_sketch(stages, flat, Noise("discrete_gaussian", 1e-6), {"rho": 1.0})


def of_grid(kernel: str) -> Release:
    key, params = KERNELS[kernel]
    sketch = lookup(key)(**params, seed=4)
    return release([sketch], GRID, Rows(np.zeros((N, 2))))


@pytest.mark.few(2)
@pytest.mark.parametrize("power", [51, 60, 1023])
@pytest.mark.parametrize("kernel", KERNELS)
def test_beyond_the_grid_every_query_refuses(kernel, power):
    of = of_grid(kernel)
    params = {
        "outliers": {"threshold": 0.01},
        "sample": {"size": 2, "seed": 1},
        "modes": {"seed": 1},
    }
    for key in ("density", "outliers", "sample", "modes"):
        asked = lookup(key)(**params.get(key, {})).bind(of.released, Symmetric())
        if asked.takes != "release":
            continue
        with pytest.raises(DataError, match="OS607"):
            asked.function(of.arrays, Rows(np.array([[2.0**power, 0.0]])))


def test_through_quantize_a_vast_query_is_refused_too():
    real = RealRows(width=2, lower=(-1.0,), upper=(1.0,))
    key, params = KERNELS["l2"]
    of = release(
        [lookup("quantize")(bits=8), lookup(key)(**params, seed=4)], real, Rows(np.zeros((N, 2)))
    )
    density = lookup("density")().bind(of.released, Symmetric())
    assert (
        abs(density.function(of.arrays, of.queries(np.array([[1e9, 0.0]])))["density"][0, 0]) < 400
    )
    with pytest.raises(DataError, match="OS607"):
        density.function(of.arrays, of.queries(np.array([[1e300, 0.0]])))
