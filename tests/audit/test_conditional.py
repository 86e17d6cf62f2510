"""Claims that hold under a condition are recognised: no verdict is given on them."""

from __future__ import annotations

import opendp.prelude as dp
import pytest

from opendp_sim.audit.claimed_distance import check_unconditional
from opendp_sim.audit.run import audit
from opendp_sim.core.errors import AuditError


def _inner() -> dp.Measurement:
    space = (
        dp.vector_domain(dp.atom_domain(T=int, bounds=(0, 10)), size=10),
        dp.symmetric_distance(),
    )
    return dp.t.make_sum(*space) >> dp.m.then_laplace(10.0)


@pytest.mark.parametrize("chained", [False, True])
def test_an_amplified_claim_is_refused_with_its_condition(chained: bool) -> None:
    amplified = dp.c.make_population_amplification(_inner(), population_size=100)
    assert amplified.map(2) < 0.2 * _inner().map(2)
    obj = amplified >> (lambda total: total + 1) if chained else amplified
    with pytest.raises(AuditError, match="sample is secret"):
        audit(obj, 2)


def test_the_measurement_inside_is_not_refused() -> None:
    check_unconditional(_inner())
    check_unconditional(dp.c.make_composition([_inner(), _inner()]))
    with pytest.raises(AuditError, match="sample is secret"):
        check_unconditional(
            dp.c.make_composition(
                [_inner(), dp.c.make_population_amplification(_inner(), population_size=50)]
            )
        )
