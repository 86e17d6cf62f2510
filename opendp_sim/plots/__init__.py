"""Draw pictures on matplotlib (extra ``plot``).

Each keeps its data as attributes, as scikit-learn's do. ``from opendp_sim.plots import DensityDisplay;
DensityDisplay.from_release(release, "x", "y").plot()``. Nothing here opens private data: pictures are
made from plans, releases, ledgers and audits.
"""

from __future__ import annotations

from opendp_sim.core.system.lazy_import import door

_PLACES = {
    "curves": "ErrorDisplay PrivacyDisplay",
    "evidence": "AuditDisplay",
    "items": "TopDisplay",
    "maps": "ClassMapDisplay DensityDisplay",
    "spending": "BudgetDisplay",
}
__getattr__ = door(__name__, _PLACES)


def __dir__() -> list[str]:
    return sorted(" ".join(_PLACES.values()).split())
