"""Audits that get more time where they need it: what a test expects does not hang on a machine's speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from opendp_sim.audit import audit
from opendp_sim.audit.findings import Budget
from opendp_sim.audit.report import Report

_TIMES = 1.0, 4.0, 16.0


def audit_until(
    seen: Callable[[Report], bool], obj: Any, d_in: Any, budget: Budget, **options: Any
) -> Report:
    """Audit with longer and longer budgets, until a report is as expected; return the last one."""
    for times in _TIMES:
        longer = {
            name: times * getattr(budget, name)
            for name in ("seconds", "trace_seconds", "stability_seconds", "scan_seconds", "total")
        }
        report = audit(obj, d_in, replace(budget, **longer), **options)
        if seen(report):
            break
    return report
