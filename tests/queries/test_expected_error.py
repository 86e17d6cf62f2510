"""Expected errors: predicted from public points and a size, measured on other data of the same law."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release import Release
from opendp_sim.core.claims import Noise
from opendp_sim.core.errors import SimError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.core.whole import whole_function
from opendp_sim.noise.parts.sampling_noise import add_gaussian
from opendp_sim.queries.parts.expected_error import expected_error
from opendp_sim.spaces.metrics import Symmetric
from opendp_sim.spaces.rows import RealRows, Rows

SIZE, WIDTH = 1000, 6
SPACE = RealRows(width=WIDTH, lower=(0.0,), upper=(8.0,))
SKETCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "fourier": ("fourier_sketch", {"frequencies": 200, "kernel": {"gaussian": {"bandwidth": 2.0}}}),
    "laplacian": (
        "fourier_sketch",
        {"frequencies": 200, "kernel": {"laplacian": {"bandwidth": 6.0}}},
    ),
    "race": (
        "race_sketch",
        {"repetitions": 200, "buckets": 512, "family": {"p_stable_l2": {"width": 4.0}}},
    ),
}


def points(count: int, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return np.clip(rng.choice([2.0, 5.0], (count, 1)) + rng.normal(0, 1.0, (count, WIDTH)), 0, 8)


@pytest.mark.parametrize(("kind", "bits"), [("fourier", 3), ("laplacian", 12), ("race", 12)])
def test_predicted_is_measured(kind: str, bits: int) -> None:
    """40 seeds on other data of the same law: within 20 %.

    Draws and data are fixed; of the total only the noise is fresh, 1,000 numbers of it: far below 1e-6.
    """
    key, params = SKETCHES[kind]
    data, queries = points(SIZE, 1), points(25, 2)
    squares, totals = [], []
    for seed in range(40):
        steps = [lookup("quantize")(bits=bits), lookup(key)(**params, seed=seed)]
        stages = bind_steps(SPACE, Symmetric(), steps)
        sums = stages[-1].claim.capabilities["kernel_sums"]  # type: ignore[union-attr]
        deviation = 12.0 / sums.noise_factor()
        if seed < 4:
            found = expected_error(stages, deviation, points(300, 3 + seed), queries, SIZE)
            totals.append(found.total)
            assert found.noise == pytest.approx(12.0)
        flat = whole_function(stages[-1].claim)(resolve(stages, list)(Rows(data)))
        noisy = add_gaussian(flat, ((len(flat), Fraction(deviation)),))
        of = Release.of_sketch(stages, noisy, Noise("discrete_gaussian", deviation), {})
        metric = {"l1": "cityblock", "l2": "euclidean"}[sums.distance]
        truth = sums.kernel(cdist(data, queries, metric)).sum(axis=0)
        answer = lookup("density")().bind(of.released, Symmetric())
        density = answer.function(of.arrays, of.queries(queries))["density"][:, 0]
        squares.append(np.square(density - truth).mean())
    ratio = math.sqrt(np.mean(squares)) / math.sqrt(np.mean(np.square(totals)))
    assert 0.8 < ratio < 1.2


def test_coarse_grids_are_told_apart_from_noise() -> None:
    key, params = SKETCHES["fourier"]
    found = []
    for bits in (3, 12):
        steps = [lookup("quantize")(bits=bits), lookup(key)(**params, seed=0)]
        stages = bind_steps(SPACE, Symmetric(), steps)
        found.append(expected_error(stages, 9.0, points(300, 3), points(9, 2), SIZE))
    assert found[0].noise == pytest.approx(found[1].noise)
    assert found[0].maps > 30 * found[1].maps
    assert found[1].total == pytest.approx(
        math.hypot(found[1].noise, found[1].sampling, found[1].maps, found[1].bias)
    )


def test_what_cannot_be_predicted_is_refused() -> None:
    steps = [lookup("quantize")(bits=8), lookup("moments_sketch")()]
    with pytest.raises(SimError, match="OS607"):
        expected_error(bind_steps(SPACE, Symmetric(), steps), 1.0, points(50, 1), points(3, 2), 100)
    key, params = SKETCHES["race"]
    stages = bind_steps(
        SPACE, Symmetric(), [lookup("quantize")(bits=8), lookup(key)(**params, seed=1)]
    )
    with pytest.raises(SimError, match="OS607"):
        expected_error(stages, 1.0, points(5, 1), points(3, 2), 100)
