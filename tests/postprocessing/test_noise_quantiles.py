"""What an interval holds of noise that is a whole number of steps, summed over the exact law (no draws)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.claims import Noise
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.postprocessing._impl.noise_quantiles import reach

GRID = GridRows(width=1, unit=1.0, lower=(0,), upper=(15,))
FAMILIES = ("discrete_laplace", "discrete_gaussian", "rounded_gaussian")
FAR = np.arange(-900, 901)


def law(family: str, scale: float) -> np.ndarray:
    """Return the probability of each whole number of ``FAR``."""
    if family == "rounded_gaussian":
        tails = norm.sf((np.abs(FAR) - 0.5) / scale) - norm.sf((np.abs(FAR) + 0.5) / scale)
        return np.where(FAR == 0, 1 - 2 * norm.sf(0.5 / scale), tails)
    laplace = family == "discrete_laplace"
    weights = np.exp(-np.abs(FAR) / scale if laplace else -np.square(FAR) / (2 * scale**2))
    return np.asarray(weights / weights.sum())


def released(family: str, scale: float) -> tuple[Released, np.ndarray]:
    """A release of a hundred records in one leaf, and what it holds before noise."""
    claim = lookup("distance_tree")(levels=1).bind(GRID, Symmetric())
    exact = np.zeros(claim.output.size, np.int64)
    claim.accumulate(Rows(np.full((100, 1), 3.0)), exact)
    noise = Noise(family, scale)  # type: ignore[arg-type]
    return Released(claim.output, claim.capabilities, noise, GRID), exact


@pytest.mark.few(2)
@pytest.mark.parametrize("family", FAMILIES[:2])
@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_a_count_in_an_interval_is(family: str, scale: float) -> None:
    release, exact = released(family, scale)
    post = lookup("interval_count")(radius=3.5, column=0).bind(release, Symmetric())
    held, chances = 0.0, law(family, scale)
    for noise in range(-40, 41):
        found = post.function(release.sketch.split(exact + noise), Rows(np.array([[3.5]])))
        inside = found["lower"][0, 0] <= 100 <= found["upper"][0, 0]
        held += chances[noise + 900] * bool(inside)
    assert held >= 0.95


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-160])
def test_no_noise_is_no_division(scale: float) -> None:
    assert math.isfinite(reach(released("discrete_laplace", scale)[0], 0.95))
