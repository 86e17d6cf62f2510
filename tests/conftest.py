"""OpenDP's flags and Hypothesis's profiles, once for every test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import opendp.prelude as dp
import pytest
from hypothesis import HealthCheck, settings

dp.enable_features("contrib", "honest-but-curious")
# Rust's backtrace takes 0.1 seconds of every error of OpenDP, and this is read at the first one.
os.environ.setdefault("RUST_LIB_BACKTRACE", "0")
for _name, _examples in (("dev", 40), ("deep", 1000)):
    settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(autouse=True)
def _handlers_of_signals() -> Iterator[None]:
    """A command that ran in this process leaves its handlers; the next test has those from before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


collect_ignore = [
    "plugin"
]  # a stranger's package: importing it here would enter it in the catalogue
