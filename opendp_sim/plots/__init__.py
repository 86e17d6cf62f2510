"""Draw pictures on matplotlib (extra ``plot``).

Each keeps its data as attributes, as scikit-learn's do. ``from opendp_sim.plots import DensityDisplay;
DensityDisplay.from_release(release, "x", "y").plot()``. Nothing here opens private data: pictures are
made from plans, releases, ledgers and audits.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "AuditDisplay": "evidence",
    "BudgetDisplay": "spending",
    "ClassMapDisplay": "maps",
    "DensityDisplay": "maps",
    "ErrorDisplay": "curves",
    "PrivacyDisplay": "curves",
    "TopDisplay": "items",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"opendp_sim.plots has no {name!r}; it offers {', '.join(_WHERE)}")
    return getattr(import_module(f"opendp_sim.plots.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_WHERE)
