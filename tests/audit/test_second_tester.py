"""After a refutation a second tester counts the winning event on fresh releases, in a part of the time."""

from __future__ import annotations

import numpy as np
import pytest

from opendp_sim.audit import Subject
from opendp_sim.audit.checks.distribution import distribution_layer
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import GivenPairs
from opendp_sim.audit.work import charge, work_seconds
from tests.audit.stand_ins import LINE, PURE, SYMMETRIC, laplace


@pytest.mark.audit
@pytest.mark.parametrize("cost", [1e-5, 3e-3])
def test_the_second_tester_keeps_to_its_part_of_the_work(cost):
    """Work of releases alone: a slow mechanism gets no more runs than half of what was done before."""
    budget = Effort.of("quick")

    def many(x, count):
        charge(cost * count)
        return list(len(x) + laplace((count,), 0.3))

    subject = Subject(
        run=lambda x: many(x, 1)[0],
        sample=many,
        input_domain=LINE,
        input_metric=SYMMETRIC,
        privacy_map=lambda d: 1.0 * d,
        measure=PURE,
    )
    pairs, begin = GivenPairs((Pair([], [1], 1),)), work_seconds()
    found = distribution_layer(subject, pairs, 1, budget, np.random.default_rng(0), 1e-6)
    assert found.status == "refuted"
    after = work_seconds() - begin - found.seconds
    assert after <= max(0.05 * budget.seconds, found.seconds / 2, 400 * cost) * 1.01
    assert (after > 7999 * cost) == (cost < 1e-4)  # what is quick has all the runs that it wants
