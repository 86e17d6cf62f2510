"""Every mechanism in the catalogue, against every law."""

from __future__ import annotations

import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.testing import Law, all_laws
from tests.cases import cases

CASES = cases()


def test_every_mechanism_has_a_case() -> None:
    assert {key.partition("/")[0] for key in CASES} == set(REGISTRY)


@pytest.mark.parametrize("law", all_laws(), ids=lambda law: law.__name__)
@pytest.mark.parametrize("key", sorted(CASES))
def test_law(request: pytest.FixtureRequest, key: str, law: Law) -> None:
    case = CASES[key]
    if reason := case.excused.get(law.__name__):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    law(case)
