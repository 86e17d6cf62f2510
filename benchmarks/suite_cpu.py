"""A plugin of pytest: CPU seconds of each test file, of its own process and of the processes it started.

``python -m pytest -q -p benchmarks.suite_cpu FILES`` ends with the heaviest files and tests, also
with ``-n 2``. Where SUITE_CPU names a file, every test's seconds are written to it as JSON.
"""

from __future__ import annotations

import json
import os
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
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


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist hands over what it counted, and what it took in all."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cpu"] = [dict(_own), dict(_children), *_now()]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    own, children, *whole = getattr(node, "workeroutput", {}).get("cpu", ({}, {}, 0.0, 0.0))
    _own.update(own)
    _children.update(children)
    _workers.append(whole)


_workers: list[list[float]] = []


def pytest_terminal_summary(terminalreporter: Any) -> None:
    total = _own + _children
    for title, tests in (("files", False), ("tests", True)):
        names = [name for name, _ in total.most_common() if ("::" in name) is tests]
        terminalreporter.section(f"CPU seconds of {title}: own, of children")
        for name in names[:30]:
            terminalreporter.write_line(f"{_own[name]:8.2f} {_children[name]:8.2f}  {name}")
    own, children = (sum(each) for each in zip(*(_workers or [_now()]), strict=True))
    terminalreporter.write_line(f"{own:8.2f} {children:8.2f}  in all, with what is imported")
    if "SUITE_CPU" in os.environ:
        both = {name: (_own[name], _children[name]) for name in total}
        Path(os.environ["SUITE_CPU"]).write_text(json.dumps(both), encoding="utf-8")
