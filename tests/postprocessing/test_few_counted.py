"""Means of classes with hardly any records: the number below which they are noise stands beside them."""

from __future__ import annotations

import numpy as np
import pytest

from opendp_sim.accounting.release.release import Release
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Noise
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.postprocessing._impl.expected_distance import least_counted


@pytest.mark.parametrize("mean", [False, True])
def test_a_mean_of_distances_names_the_number_that_it_divides_by_at_least(mean):
    space = RealRows(width=2, lower=(0.0,), upper=(8.0,))
    stages = bind_steps(
        space, Symmetric(), [lookup("quantize")(bits=8), lookup("threshold_sketch")(thresholds=16)]
    )
    flat = whole_function(stages[-1].claim)(resolve(stages, list)(Rows(np.ones((2, 2)))))
    of = Release.of_sketch(stages, flat, Noise("discrete_gaussian", 30.0), {})
    told = of.ask("distance", np.array([[7.0, 7.0]]), mean=mean)
    sums = stages[-1].claim.capabilities["distance_sums"]
    least = least_counted(30.0 * sums.count_factor())
    assert np.ravel(told["least_records"]) == pytest.approx(least)
    assert np.ravel(told["records"])[0] < least
