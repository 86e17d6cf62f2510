"""Choose a file's picture by kind or the command's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.accounting.release.query import features_of
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.errors import AuditError, ParameterError
from opendp_sim.dsl.plan.document import load_plan
from opendp_sim.dsl.plan.plan import Plan, plan_file
from opendp_sim.dsl.text.diagnostic import suggest
from opendp_sim.plots.canvas import Display
from opendp_sim.plots.curves import ErrorDisplay, PrivacyDisplay
from opendp_sim.plots.evidence import AuditDisplay
from opendp_sim.plots.items import TopDisplay
from opendp_sim.plots.maps import ClassMapDisplay, DensityDisplay
from opendp_sim.plots.spending import BudgetDisplay
from opendp_sim.report.audit import read_audits

PLOT_KINDS: dict[str, str] = {
    "error": "a spec or plan: expected error against epsilon",
    "privacy": "a spec or plan: what an attacker gains, and epsilon at every delta",
    "density": "a release (.npz): one column with its interval, or a map of two",
    "classes": "a release (.npz): the class over two columns",
    "top": "a saved selection (.json): its items",
    "budget": "a ledger: what was spent, entry by entry",
    "audit": "an audit (.json): what each layer did",
}
"""Each picture, and what it is made from."""
_FIRST = {".ledger": "budget", ".npz": "density", ".plan": "error", ".json": "top"}


def display_of(
    path: Path,
    kind: str | None = None,
    columns: Sequence[str] = (),
    at: Mapping[str, float] | None = None,
) -> Display:
    """Return the picture of a file.

    ``kind`` is one of ``PLOT_KINDS``, default the first that the file gives. Of a release one or two
    columns are drawn, the others held at ``at`` (default: the middle of their bounds).

    Raises:
        ParameterError (OS101, OS102): no such picture, or columns that it does not take. What the
            file's own reader raises.
    """
    wanted = kind or ("audit" if _is_audit(path) else _FIRST.get(path.suffix, "error"))
    made: dict[str, Callable[[], Display]] = {
        "error": lambda: ErrorDisplay.from_plan(_plan(path)),
        "privacy": lambda: PrivacyDisplay.from_plan(_plan(path)),
        "density": lambda: DensityDisplay.from_release(
            *_release_and_columns(path, columns, 1), at=at
        ),
        "classes": lambda: ClassMapDisplay.from_release(
            *_release_and_columns(path, columns, 2), at=at
        ),
        "top": lambda: TopDisplay.from_output(path),
        "budget": lambda: BudgetDisplay.from_ledger(path),
        "audit": lambda: AuditDisplay.from_file(path),
    }
    if wanted not in made:
        raise ParameterError(
            "OS101", "kind", expected=f"one of {', '.join(PLOT_KINDS)}", got=wanted[:40],
            hint=suggest(wanted, PLOT_KINDS) or "`opendp-sim plot --help` lists them.",
        )  # fmt: skip
    return made[wanted]()


def _is_audit(path: Path) -> bool:
    if path.suffix != ".json":
        return False
    try:
        read_audits(path)
    except AuditError:
        return False
    return True


def _plan(path: Path) -> Plan:
    return load_plan(path) if path.suffix == ".plan" else plan_file(path)


def _release_and_columns(path: Path, columns: Sequence[str], least: int) -> Any:
    release = Release.load(path)
    if not least <= len(columns) <= 2:
        known = [column.name for column in features_of(release).columns]
        raise ParameterError(
            "OS102", "columns", expected=f"from {least} to 2 columns", got=str(len(columns)),
            hint=f"name them with --column, once each; it has {', '.join(known)[:80]}.",
        )  # fmt: skip
    return release, *columns
