"""One public file for `--like` and for `public:`: what is promised is what another file promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from opendp_sim.accounting.release.release import Release
from opendp_sim.core.claims import Noise
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import Rows
from opendp_sim.postprocessing._impl.expected_error import (
    PublicExample,
    expected_kernel_error,
    shared_rows,
)
from tests.postprocessing.test_expected_error import SIZE, SKETCHES, SPACE, exact_flat, points


def test_one_file_for_both_promises_what_another_file_does() -> None:
    """The points like the data may be the public ones: 30 seeds without noise, each with other rows, within 25 %.

    Everything is fixed. Before, the same rows in both files took nearly all of the sampling away.
    """
    key, params = SKETCHES["fourier"]
    squares, same, apart = [], [], []
    for seed in range(30):
        data, queries, public = points(SIZE, 10 + seed), points(25, 50 + seed), points(150, seed)
        steps = [lookup("quantize")(bits=12), lookup(key)(**params, seed=seed)]
        stages = bind_steps(SPACE, Symmetric(), steps)
        sums = stages[-1].claim.capabilities["kernel_sums"]  # type: ignore[union-attr]
        of = Release.of_sketch(
            stages, exact_flat(stages, Rows(data)), Noise("discrete_gaussian", 0.0), {}
        )
        density = of.ask("density", queries, public=public)["density"]
        truth = sums.kernel(cdist(data, queries)).sum(axis=0)
        squares.append(np.square(np.ravel(density) - truth).mean())
        for like, into in ((public, same), (points(150, 90 + seed), apart)):
            asked = PublicExample(stages, 0.0, like, queries, SIZE, public)
            into.append(expected_kernel_error(asked, lookup("density")(public="points")).total ** 2)
    assert math.sqrt(np.mean(squares) / np.mean(same)) == pytest.approx(1.0, abs=0.25)
    assert math.sqrt(np.mean(apart) / np.mean(same)) == pytest.approx(1.0, abs=0.25)


def test_rows_that_chance_makes_equal_are_not_the_same_rows() -> None:
    rng = np.random.default_rng(1)
    coarse = [rng.integers(0, 2, (200, 6)).astype(float) for _ in range(2)]
    assert shared_rows(*coarse) == 0.0
    assert shared_rows(coarse[0], coarse[0][::-1]) == pytest.approx(200, rel=0.1)
    fine = rng.random((300, 3))
    assert shared_rows(fine[:200], fine[100:]) == 100.0
    assert shared_rows(np.zeros((30, 2)), np.zeros((20, 2))) == 0.0
