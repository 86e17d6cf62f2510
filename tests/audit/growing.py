"""Audits that get more time where they need it: what a test expects does not hang on a machine's speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from opendp_sim.audit import audit
from opendp_sim.audit.claims.curves import Curve
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.report.counterexample import Witness, find_witness
from opendp_sim.audit.report.report import Report
from opendp_sim.audit.work import clocked, metered

_TIMES = 1, 4, 16


def until(seen: Callable[[Any], bool], run: Callable[[], Any]) -> Any:
    """Run with slower and slower clocks, until what it returns is as expected; return the last."""
    for times in _TIMES:
        with clocked(1 / times):
            out = run()
        if seen(out):
            break
    return out


def audit_until(
    seen: Callable[[Report], bool], obj: Any, d_in: Any, budget: str | Effort, **options: Any
) -> Report:
    """Audit with slower and slower clocks, until a report is as expected; return the last one."""
    return until(seen, lambda: audit(obj, d_in, budget, **options))


def refuted(obj: Any, d_in: Any, budget: str | Effort = "quick", **options: Any) -> Report:
    """Audit until the claim is refuted; return the last report, which has no plain event."""
    given = Effort.of(budget) if isinstance(budget, str) else budget
    brief = replace(given, witness_seconds=0.0)  # who asks for an event calls ``witnessed``
    return audit_until(lambda report: report.verdict == "refuted", obj, d_in, brief, **options)


def witnessed(obj: Any, d_in: Any, budget: str | Effort = "quick", **options: Any) -> Report:
    """Audit until a plain event that shows the refutation is found; return the last report."""
    return audit_until(lambda report: report.witness is not None, obj, d_in, budget, **options)


def shown(obj: Any, pair: Pair, curve: Curve, seconds: float) -> Witness | None:
    """Look for a plain event until there is one."""
    return until(bool, lambda: find_witness(metered(obj), pair, curve, seconds))


def scaled(clock: Callable[[], float], speed: float) -> Callable[[], float]:
    """Return a clock of another speed, which is no line of the module that is audited."""
    return lambda: speed * clock()
