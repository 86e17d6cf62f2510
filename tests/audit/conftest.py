from __future__ import annotations

import os
from collections.abc import Iterator

import opendp.prelude as dp
import pytest

from opendp_sim.audit.work import clocked

dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")


@pytest.fixture(autouse=True, scope="session")
def _clock() -> Iterator[None]:
    """Let a whole run find what hangs on a budget: at `AUDIT_CLOCK=2` it is half of it."""
    with clocked(float(os.environ.get("AUDIT_CLOCK", "1"))):
        yield
