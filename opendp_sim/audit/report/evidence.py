"""The evidence tier of a mechanism, in words: read from recorded laws, audits and broken twins.

The record is written by the scoreboard (``benchmarks/audit_scoreboard.py --write``) and shipped as
data; nothing here is kept by hand. ``accounting`` reads the same file for certificates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opendp_sim.accounting.evidence import record, tier

__all__ = ["RECORD", "Standing", "scoreboard", "standing", "tier"]

RECORD = Path(__file__).parents[1] / "evidence.json"
"""Where the scoreboard writes and the evidence tier reads."""


@dataclass(frozen=True)
class Standing:
    """What stands behind one mechanism."""

    key: str
    tier: str
    kind: str
    laws: tuple[str, ...]
    verdict: str
    layers: tuple[str, ...]
    audits: int
    twins_caught: int
    twins: int
    date: str

    def __str__(self) -> str:
        audits = (
            f"{self.audits} audits ({', '.join(self.layers)}), {self.date}"
            if self.audits
            else "no audit"
        )
        twins = f"; {self.twins_caught} of {self.twins} broken twins caught" if self.twins else ""
        return f"{self.key}: {self.tier}; {len(self.laws)} laws; {audits}{twins}"


def scoreboard() -> dict[str, Any]:
    """Return the whole record; empty when none was ever written."""
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}


def standing(key: str) -> Standing:
    """Return what stands behind a mechanism, from the record."""
    found = record(key) or {"kind": None, "laws": {}, "audits": None, "twins": None}
    audits, twins = found["audits"] or {}, found["twins"] or {}
    return Standing(
        key,
        tier(key),
        found["kind"] or "unknown",
        tuple(found["laws"].get("held") or ()),
        audits.get("verdict", "not audited"),
        tuple(audits.get("layers", ())),
        audits.get("audits", 0),
        twins.get("caught", 0),
        twins.get("of", 0),
        audits.get("date", ""),
    )
