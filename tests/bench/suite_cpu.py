"""A plugin of pytest: CPU seconds of each test file, of its own process and of the processes it started.

``python -m pytest -q -p tests.bench.suite_cpu FILES`` ends with the heaviest files and tests.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

_own: Counter[str] = Counter()
_children: Counter[str] = Counter()


def _now() -> tuple[float, float]:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, children = (used.ru_utime + used.ru_stime for used in both)
    return own, children


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    begin = _now()
    done = yield
    own, children = (after - before for after, before in zip(_now(), begin, strict=True))
    for name in (item.nodeid, item.nodeid.split("::")[0]):
        _own[name] += own
        _children[name] += children
    return done


def pytest_terminal_summary(terminalreporter: Any) -> None:
    total = _own + _children
    for title, tests in (("files", False), ("tests", True)):
        names = [name for name, _ in total.most_common() if ("::" in name) is tests]
        terminalreporter.section(f"CPU seconds of {title}: own, of children")
        for name in names[:30]:
            terminalreporter.write_line(f"{_own[name]:8.2f} {_children[name]:8.2f}  {name}")
