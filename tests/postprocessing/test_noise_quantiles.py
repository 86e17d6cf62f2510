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
SCALES = (0.05, 0.3, 0.5, 0.7, 1.0, 1.3, 2.0, 2.5, 4.0, 7.3, 20.0)
CONFIDENCES = (0.05, 0.3, 0.5, 0.69, 0.8, 0.9, 0.95, 0.99, 0.999)
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
@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("family", FAMILIES)
def test_one_cell_is_held_as_often_as_it_says(family: str, confidence: float) -> None:
    for scale in SCALES:
        release = released(family, scale)[0]
        far = reach(release, confidence) * release.deviation
        held = law(family, scale)[np.abs(FAR) <= far + 1e-9].sum()
        assert held >= confidence - 1e-12, (scale, held)


@pytest.mark.few(2)
@pytest.mark.parametrize("cells", [2, 3, 5, 12])
@pytest.mark.parametrize("family", FAMILIES)
def test_sums_of_a_few_cells_are(family: str, cells: int) -> None:
    for scale in (0.5, 1.0, 2.0, 7.3):
        one = law(family, scale)
        total = one
        for _ in range(cells - 1):
            total = np.convolve(total, one, mode="same")
        release = released(family, scale)[0]
        for confidence in (0.8, 0.95, 0.99):
            far = reach(release, confidence) * release.deviation * math.sqrt(cells)
            assert total[np.abs(FAR) <= far + 1e-9].sum() >= confidence, (scale, confidence)


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


def test_the_half_step_vanishes_beside_much_noise() -> None:
    assert reach(released("discrete_gaussian", 1e6)[0], 0.95) == pytest.approx(
        norm.ppf(0.975), 1e-6
    )
    wide = released("discrete_laplace", 1e6)[0]
    assert reach(wide, 0.95) == pytest.approx(math.log(20) / math.sqrt(2), 1e-6)
    assert reach(wide, 0.5) == pytest.approx(norm.ppf(0.75), 1e-6)


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-160])
def test_no_noise_is_no_division(scale: float) -> None:
    assert math.isfinite(reach(released("discrete_laplace", scale)[0], 0.95))
