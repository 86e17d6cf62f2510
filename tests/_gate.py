"""The gate as tests use it: a whole source in a pass of its own."""

from __future__ import annotations

from opendp_sim.io.checked import GatedSource
from opendp_sim.io.gate import Ingest
from opendp_sim.io.protocol import Source


def check_source(source: Source, mode: Ingest = "refuse") -> None:
    """Send every record through the gate."""
    GatedSource(source, mode).finish()
