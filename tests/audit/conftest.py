from __future__ import annotations

import os
from collections.abc import Iterator

import opendp.prelude as dp
import pytest

from opendp_sim.audit.work import clocked

dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")


@pytest.fixture(autouse=True, scope="session")
def _clock(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the suite pay half of each budget, `long` and `deep` the whole, and `AUDIT_CLOCK=3` a third."""
    half = "not long" in request.config.option.markexpr
    with clocked(float(os.environ.get("AUDIT_CLOCK", "2" if half else "1"))):
        yield
