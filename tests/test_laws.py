"""Every mechanism in the catalogue, against every law."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.testing import Law, all_laws
from tests._tiers import tiered
from tests.cases import cases

CASES = cases()


def test_every_mechanism_has_a_case() -> None:
    assert {key.partition("/")[0] for key in CASES} == set(REGISTRY)


@pytest.fixture(params=["few", pytest.param("dev", marks=pytest.mark.long)])
def _examples(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drawn pairs a law: six in the suite, forty in `long`, and what HYPOTHESIS_PROFILE says if it is set."""
    before = settings.get_current_profile_name()
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", request.param))
    yield
    settings.load_profile(before)


@pytest.mark.usefixtures("_examples")
@pytest.mark.parametrize("law", all_laws(), ids=lambda law: law.__name__)
@pytest.mark.parametrize("key", tiered(sorted(CASES), lambda key: "/" not in key))
def test_law(request: pytest.FixtureRequest, key: str, law: Law) -> None:
    case = CASES[key]
    if reason := case.excused.get(law.__name__):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    law(case)
