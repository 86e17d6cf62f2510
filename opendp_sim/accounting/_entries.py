"""What a ledger holds: terms, entries, and the hashes that chain them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from opendp_sim.accounting.budget import Budget, MeasureName

__all__ = ["Entry", "Terms", "canonical", "chained"]


@dataclass(frozen=True)
class Entry:
    """One line of the ledger: ``kind`` is ``charge``, ``outcome``, ``refusal`` or ``session``."""

    seq: int
    body: dict[str, Any]
    hash: str

    @property
    def kind(self) -> str:
        """What the entry records."""
        return str(self.body["kind"])


@dataclass(frozen=True)
class Terms:
    """What the ledger was opened with, fixed for its life."""

    measure: MeasureName
    unit: str
    limit: Budget

    def plain(self) -> dict[str, Any]:
        """The JSON form."""
        return {"measure": self.measure, "unit": self.unit, "limit": self.limit.plain()}


def canonical(value: Any) -> str:
    """Return JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def chained(previous: str, body: str) -> str:
    """Return the hash of an entry, which holds that of the one before it."""
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
