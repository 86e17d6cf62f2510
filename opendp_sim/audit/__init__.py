"""The auditor: is this map true? A verdict is ``refuted`` or ``not refuted``, never "private"."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from opendp_sim.audit.corpus import Control, Twin, collect
from opendp_sim.audit.counting import certified_epsilon
from opendp_sim.audit.enumeration import Coins, tree_pmf
from opendp_sim.audit.findings import Budget
from opendp_sim.audit.first_call import first_call
from opendp_sim.audit.noise import NoiseLaw
from opendp_sim.audit.reading import read
from opendp_sim.audit.report import Report
from opendp_sim.audit.runner import assert_not_refuted, audit
from opendp_sim.audit.sarif import to_sarif
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.witness import Witness, outcome

__all__ = [
    "Budget",
    "Coins",
    "Control",
    "NoiseLaw",
    "Report",
    "Subject",
    "Twin",
    "Witness",
    "assert_not_refuted",
    "audit",
    "certified_epsilon",
    "collect",
    "first_call",
    "outcome",
    "read",
    "to_sarif",
    "tree_pmf",
]

# OpenDP's errors are outputs here; with Rust's backtraces each of them takes 0.1 CPU seconds. Rust reads
# this once, at the process's first error: hence at import, and not when an audit begins.
os.environ.setdefault("RUST_LIB_BACKTRACE", "0")


class _Callable(ModuleType):
    """This package can be called: ``sim.audit(measurement, d_in)`` is ``sim.audit.audit``."""

    def __call__(self, *args: Any, **options: Any) -> Report:
        """Audit an object; see ``audit``."""
        return audit(*args, **options)


sys.modules[__name__].__class__ = _Callable
