"""The auditor: is this map true? A verdict is ``refuted`` or ``not refuted``, never "private"."""

from __future__ import annotations

from opendp_sim.audit.corpus import Control, Twin, collect
from opendp_sim.audit.enumeration import Coins, tree_pmf
from opendp_sim.audit.noise import NoiseLaw
from opendp_sim.audit.report import Report
from opendp_sim.audit.runner import assert_not_refuted, audit
from opendp_sim.audit.sarif import to_sarif
from opendp_sim.audit.subject import Subject

__all__ = [
    "Coins",
    "Control",
    "NoiseLaw",
    "Report",
    "Subject",
    "Twin",
    "assert_not_refuted",
    "audit",
    "collect",
    "to_sarif",
    "tree_pmf",
]
