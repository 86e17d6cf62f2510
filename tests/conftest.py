"""OpenDP's flags and Hypothesis's profiles, once for every test."""

from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import opendp.prelude as dp
import pytest
from hypothesis import HealthCheck, Phase, settings

dp.enable_features("contrib", "honest-but-curious")
# Where it is set, every process that a test starts would compile the whole package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Ledgers and stores wait for the disk at every entry: the folders of tests are in memory where there is room.
_MEMORY = Path("/dev/shm")  # noqa: S108 - if it has room
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK):
    _held = os.statvfs(_MEMORY)
    if not _held.f_flag & os.ST_NOEXEC and _held.f_bavail * _held.f_frsize >= 2**31:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
        os.environ.setdefault("TMPDIR", str(_MEMORY))  # budgets in memory have a ledger there
# Each worker has one core, and threads of BLAS spin while they wait; tests of several threads set them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Rust's backtrace takes 0.1 seconds of every error of OpenDP, and this is read at the first one.
os.environ.setdefault("RUST_LIB_BACKTRACE", "0")
for _name, _examples in (("few", 6), ("dev", 40), ("deep", 1000)):
    settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
settings.load_profile(PROFILE)
settings.register_profile("unshrunk", settings.get_profile(PROFILE), phases=[Phase.generate])


@pytest.fixture
def unshrunk() -> Iterator[None]:
    """Whoever expects a law to fail needs no smallest example, and no explanation of it."""
    settings.load_profile("unshrunk")
    yield
    settings.load_profile(PROFILE)


@pytest.fixture(autouse=True)
def _handlers_of_signals() -> Iterator[None]:
    """A command that ran in this process leaves its handlers; the next test has those from before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _certificates() -> set[Path]:
    """Return certificates in this folder and in those right below it."""
    return {*Path().glob("*.certificate.json"), *Path().glob("*/*.certificate.json")}


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Fail where a test or a docstring left a run in the folder that pytest was started in."""
    yield
    left = _certificates() - _BEFORE
    if left and not hasattr(session.config, "workerinput"):
        print(
            f"\nleft behind: {', '.join(sorted(map(str, left)))}; give `into=` a temporary folder"
        )
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


_BEFORE = _certificates()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but ``n`` evenly spread cases of a test that is marked ``few(n)`` as `long`."""
    cases = defaultdict(list)
    if unstable := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(
            f"a name with an address, another one in each worker: {unstable[0]}"
        )
    for item in items:
        few = item.get_closest_marker("few")
        if few and not any(map(item.get_closest_marker, ("long", "deep", "gpu", "engines"))):
            cases[item.nodeid.partition("[")[0], few.args[0]].append(item)
    for (_, count), found in cases.items():
        fast = {at * len(found) // count for at in range(count)}
        for at, item in enumerate(found):
            if at not in fast:
                item.add_marker(pytest.mark.long)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """What is imported and collected lives as long as the process: no later collection walks through it.

    Each took up to half a second of a worker, and tests ask for some.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)  # tests make few circles: most walks freed nothing


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[Any]:
    """Look for doctests in the package only: in here each worker would import every bench and table."""
    found = yield
    return [each for each in found if type(each).__name__ != "DoctestModule"]


collect_ignore = [
    "plugin"
]  # a stranger's package: importing it here would enter it in the catalogue
