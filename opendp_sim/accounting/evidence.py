"""The evidence tier of a mechanism, from recorded audits and the proof beside the code.

The record is data (``audit/evidence.json``, written by the audit's own command), read as a file so
that accounting depends on no room above it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from opendp_sim.core.mechanism import REGISTRY

__all__ = ["EVIDENCE", "record", "tier", "weakest"]

EVIDENCE = ("proved and audited", "proved", "asserted")
"""From the strongest to the weakest."""


@cache
def _recorded() -> dict[str, Any]:
    file = files("opendp_sim").joinpath("audit", "evidence.json")
    if not file.is_file():
        return {}
    found = json.loads(file.read_text(encoding="utf-8"))
    entries: dict[str, Any] = found.get("mechanisms", found)
    return entries


def record(key: str) -> dict[str, Any] | None:
    """Return what the audit recorded about ``key``, or None."""
    entry = _recorded().get(key)
    return entry if isinstance(entry, dict) else None


def tier(key: str) -> str:
    """Return ``proved and audited``, ``proved`` or ``asserted``."""
    if not _has_proof(key):
        return EVIDENCE[2]
    entry = record(key)
    return EVIDENCE[0] if entry and entry.get("verdict") == "not refuted" else EVIDENCE[1]


def weakest(tiers: Iterable[str]) -> str:
    """Return the weakest of several tiers."""
    return max(tiers, key=EVIDENCE.index, default=EVIDENCE[0])


def _has_proof(key: str) -> bool:
    cls = REGISTRY.get(key)
    if cls is None:
        return False
    package, _, _ = cls.__module__.rpartition(".")
    return files(package).joinpath(f"{key}.md").is_file() if package else False
