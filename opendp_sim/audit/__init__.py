"""Try to refute privacy claims of OpenDP objects, never certify them."""

from __future__ import annotations

import os

from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.instrument.reset_state import first_call
from opendp_sim.audit.outputs.encoding import outcome
from opendp_sim.audit.outputs.reading import read
from opendp_sim.audit.report.counterexample import Witness
from opendp_sim.audit.report.report import Report
from opendp_sim.audit.report.sarif import to_sarif
from opendp_sim.audit.run import assert_not_refuted, audit
from opendp_sim.audit.statistics.clopper_pearson import certified_epsilon
from opendp_sim.audit.subject import Subject

__all__ = [
    "Effort",
    "NoiseLaw",
    "Report",
    "Subject",
    "Witness",
    "assert_not_refuted",
    "audit",
    "certified_epsilon",
    "first_call",
    "outcome",
    "read",
    "to_sarif",
]

# OpenDP's errors are outputs here; with Rust's backtraces each of them takes 0.1 CPU seconds. Rust reads
# this once, at the process's first error: hence at import, and not when an audit begins.
os.environ.setdefault("RUST_LIB_BACKTRACE", "0")
