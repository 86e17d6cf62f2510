"""No advice contradicts the numbers that the plan itself predicts."""

from __future__ import annotations

import math
from typing import Any

import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows
from opendp_sim.dsl.plan.kernel_choice import frequencies_of, gaussian_kernel_step

WIDTHS = {"narrow": 0.1, "middle": 0.3, "wide": 2.0}
GIVEN: dict[str, Any] = {
    "fourier_sketch": lambda h: {
        "frequencies": 2000,
        "seed": 1,
        "kernel": {"gaussian": {"bandwidth": h}},
    },
    "gauss_transform_sketch": lambda h: {"bandwidth": h},
}


def claim(key: str, columns: int, bandwidth: float) -> Any:
    grid = GridRows(width=columns, unit=2.0**-9, lower=(0,), upper=(512,))
    return lookup(key)(**GIVEN[key](bandwidth)).bind(grid, Symmetric())


def price(found: Any) -> float:
    """What the plan predicts: an estimate's noise deviation under zCDP, at rho of one half."""
    return found.expected["noise per unit of cell noise"] * math.sqrt(found.sensitivity.l2_squared)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_the_gauss_transform_is_never_less_noise_under_zcdp(columns: int):
    """Why `fourier_sketch` does not send anybody there: 2 to 8.7 times the noise of one query."""
    for bandwidth in WIDTHS.values():
        own = price(claim("fourier_sketch", columns, bandwidth))
        assert price(claim("gauss_transform_sketch", columns, bandwidth)) > own


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_the_sketch_that_is_chosen_has_the_least_noise(columns: int):
    """By the sketches' own numbers: under zCDP always a Fourier sketch, under pure DP by the range."""
    for bandwidth in (0.08, *WIDTHS.values()):
        assert gaussian_kernel_step(bandwidth, columns, 1.0)[1] == "fourier"
        assert price(claim("fourier_sketch", columns, bandwidth)) < 1.03
        noise = {}
        for key in GIVEN:
            found = claim(key, columns, bandwidth)
            noise[key] = found.expected["noise per unit of cell noise"] * found.sensitivity.l1
        least = min(noise, key=lambda key: noise[key])
        assert gaussian_kernel_step(bandwidth, columns, 1.0, pure=True)[1] in least


def test_frequencies_grow_with_size_and_budget_up_to_a_cap():
    by_size = [frequencies_of(n, 4.0, [2.5] * 4) for n in (1, 30, 100, 10**4, 10**400)]
    assert by_size == sorted(by_size)
    assert (by_size[0], by_size[-1]) == (500, 8000)
    assert frequencies_of(1000, 40.0, [2.0] * 9) < frequencies_of(1000, 4.0, [2.0] * 9)
    assert {frequencies_of(10**6, 4.0, [2.5] * columns) for columns in (1, 2, 3)} == {2000}


@pytest.mark.parametrize("width", [1, 2, 3])
def test_few_columns_take_the_least_frequencies_that_are_enough(width):
    """By the sketch's own sampling deviation, which its claim states."""
    size, noise = 1000, 4.0
    for length in (3.0, 15.0, 100.0):
        count = frequencies_of(size, noise, [length] * width)
        grid = GridRows(width=width, unit=length / 2**20, lower=(0,), upper=(2**20,))

        def sampled(frequencies, grid=grid):
            kernel = {"gaussian": {"bandwidth": 1.0}}
            given = {"frequencies": frequencies, "seed": 1, "kernel": kernel}
            found = lookup("fourier_sketch")(**given).bind(grid, Symmetric()).expected
            return 3.0 * size * found["sampling deviation per far record"]

        assert count == 8000 or sampled(count) <= 1.001 * noise
        assert count == 2000 or sampled(count // 2) > 0.999 * noise
