from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import opendp.prelude as dp
import pytest

from opendp_sim.audit import clock
from tests.audit.growing import Told

dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")


@pytest.fixture(autouse=True, scope="session")
def _clock() -> Iterator[None]:
    """Let a whole run find what hangs on the machine: at `AUDIT_CLOCK=2` it is one of half the speed."""
    with clock.clocked(float(os.environ.get("AUDIT_CLOCK", "1"))):
        yield


@pytest.fixture
def told_time(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Return what puts a made clock in the place of the process's own, whatever its speed."""

    def tell(now: Callable[[], float]) -> None:
        monkeypatch.setattr(clock, "_SPEED", [1.0])
        monkeypatch.setattr("time.process_time", now)

    return tell
