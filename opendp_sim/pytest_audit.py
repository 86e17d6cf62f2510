"""Run audits as pytest tests.

The fixture ``assert_not_refuted``, and ``--opendp-audit`` for whole modules. ``pytest --opendp-audit``
collects every test that is marked ``opendp_audit``; without the option they are skipped, so that a
suite stays fast. ``--opendp-audit-seconds`` is the CPU budget of one audit. ``--opendp-audit-module
pkg.mod`` audits every measurement and transformation that a module makes, as one test each.
``--opendp-audit-all`` audits every one that a test calls, after that test, at the distances that it asks
their maps for (1 where it asks none); each constructor with its arguments is audited once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

import pytest

__all__ = [
    "assert_not_refuted",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_pyfunc_call",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("opendp-audit")
    group.addoption("--opendp-audit", action="store_true", help="run tests marked opendp_audit")
    group.addoption(
        "--opendp-audit-seconds", type=float, default=10.0, help="CPU seconds of one audit (10)"
    )
    group.addoption(
        "--opendp-audit-all", action="store_true", help="audit every object that a test calls"
    )
    group.addoption(
        "--opendp-audit-module",
        action="append",
        default=[],
        metavar="MODULE",
        help="audit every object that this module makes; may be given more than once",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; spare audits the backtraces of OpenDP's errors, see ``opendp_sim.audit``."""
    seconds = config.getoption("--opendp-audit-seconds")
    if not 0 < seconds < float("inf"):
        raise pytest.UsageError(f"--opendp-audit-seconds has to be above 0: it is {seconds:g}")
    if any(
        map(config.getoption, ("--opendp-audit", "--opendp-audit-module", "--opendp-audit-all"))
    ):
        os.environ.setdefault("RUST_LIB_BACKTRACE", "0")
    config.addinivalue_line(
        "markers", "opendp_audit: audits a privacy claim; run with --opendp-audit, slow otherwise"
    )


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Skip audits unless they were asked for; append those of named modules."""
    if not config.getoption("--opendp-audit"):
        skip = pytest.mark.skip(reason="an audit; run with --opendp-audit")
        for item in items:
            if item.get_closest_marker("opendp_audit") is not None:
                item.add_marker(skip)
    for name in config.getoption("--opendp-audit-module"):
        items.extend(_of_module(session, name))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Item) -> Generator[None, object, object]:
    """Audit what a test has called, where the whole suite is audited."""
    if not pyfuncitem.config.getoption("--opendp-audit-all"):
        return (yield)
    from opendp_sim.audit.module_objects import CalledObjects  # noqa: PLC0415 - only when asked
    from opendp_sim.core.errors import AuditError  # noqa: PLC0415

    called = CalledObjects()
    with called.watched():
        out = yield
    known = pyfuncitem.config.stash.setdefault(_AUDITED, set())
    for key, obj, d_in in called.found():
        if key not in known:
            known.add(key)
            try:
                _assert(obj, d_in, seconds=pyfuncitem.config.getoption("--opendp-audit-seconds"))
            except AuditError as error:  # a distance that claims nothing, a domain without datasets
                warnings.warn(f"not audited at d_in = {d_in!r}: {error}", stacklevel=1)
    return out


_AUDITED = pytest.StashKey[set[object]]()
"""Objects of a session that were audited, by constructor and arguments."""


def _of_module(session: pytest.Session, module: str) -> Iterator[pytest.Item]:
    from opendp_sim.audit.module_objects import makers, place_of  # noqa: PLC0415 - only when asked

    try:
        found = makers(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's module raises
        raise pytest.UsageError(
            f"--opendp-audit-module {module}: a module that cannot be imported: {place_of(error)}"
        ) from None
    if not found:
        raise pytest.UsageError(
            f"--opendp-audit-module {module}: nothing in it can be audited: name factories make_..., "
            "without required arguments"
        )
    for name, make in found:
        yield _AuditItem.from_parent(session, name=f"{module}:{name}", make=make)


class _AuditItem(pytest.Item):
    """One object of a module, as a test."""

    def __init__(self, *, make: Callable[[], Any], **options: Any) -> None:
        super().__init__(**options)
        self.make = make

    def runtest(self) -> None:
        from opendp_sim.audit.module_objects import place_of  # noqa: PLC0415 - only when asked

        try:
            made = self.make()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a factory raises
            raise AssertionError(f"{self.name} could not be made: {place_of(error)}") from None
        _assert(made, 1, seconds=self.config.getoption("--opendp-audit-seconds"), origin=self.name)

    def repr_failure(self, excinfo: Any, style: Any = None) -> str:
        from opendp_sim.core.errors import SimError  # noqa: PLC0415 - only when asked

        if isinstance(excinfo.value, (AssertionError, SimError)):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo, style))

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.path, None, self.name


def _assert(obj: Any, d_in: Any, *, seconds: float, **options: Any) -> Any:
    __tracebackhide__ = True
    if not 0 < seconds < float("inf"):
        raise pytest.UsageError(f"seconds of an audit have to be above 0: they are {seconds:g}")
    from opendp_sim.audit.findings import Effort  # noqa: PLC0415 - only when asked
    from opendp_sim.audit.run import assert_not_refuted as check  # noqa: PLC0415

    quick = Effort.of("quick")
    share = seconds / (quick.total + 1)
    budget = replace(
        quick,
        name=f"{seconds:g} s",
        seconds=share * quick.seconds,
        total=share * quick.total,
        trace_seconds=share * quick.trace_seconds,
        scan_seconds=share * quick.scan_seconds,
        stability_seconds=share * quick.stability_seconds,
    )
    return check(obj, d_in, budget, **options)


@pytest.fixture
def assert_not_refuted(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a function that audits an object and fails on refutation.

    ``check(obj, d_in=1, **options)`` returns the report.
    """
    seconds = request.config.getoption("--opendp-audit-seconds")

    def check(obj: Any, d_in: Any = 1, **options: Any) -> Any:
        __tracebackhide__ = True
        return _assert(obj, d_in, seconds=options.pop("seconds", seconds), **options)

    return check
