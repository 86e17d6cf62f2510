"""The plan of a spec of the repository, once a process: plans are frozen, and many tests read the same."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from opendp_sim.dsl.plan.plan import Plan, plan_file


@cache
def planned(spec: Path) -> Plan:
    """Return the plan of a spec that no test changes."""
    return plan_file(spec)
