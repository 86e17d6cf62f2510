"""The auditor: is this map true? A verdict is ``refuted`` or ``not refuted``, never "private"."""

from __future__ import annotations

from opendp_sim.audit.corpus import Control, Twin, collect

__all__ = ["Control", "Twin", "collect"]
