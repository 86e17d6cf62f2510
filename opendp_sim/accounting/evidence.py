"""What stands behind a mechanism: the proof beside the code, and recorded laws, audits and twins.

The record is data (``audit/evidence.json``, written by the audit's scoreboard), read as a file so that
accounting depends on no room above it. Nothing here is kept by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from opendp_sim.core.mechanism import REGISTRY, page_beside

EVIDENCE = ("proved and audited", "proved", "asserted")
"""From the strongest to the weakest."""
POST = "post-processing"
"""The tier of a query: it loses nothing, because a recorded law says that it reads a release alone."""
_ALONE = "post_processing_reads_the_release_alone"


@cache
def _recorded() -> dict[str, Any]:
    file = files("opendp_sim").joinpath("audit", "evidence.json")
    if not file.is_file():
        return {}
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def record(key: str) -> dict[str, Any] | None:
    """Return what was recorded about ``key``: its kind, laws, audits and broken twins; None for nothing.

    ``laws`` names those that held and those that did not; ``audits`` says how many, which layers ran and
    the verdict; ``twins`` how many of its broken twins there are, and how many an audit refutes.
    """
    found = _recorded()
    laws, audits = found.get("laws", {}).get(key), found.get("mechanisms", {}).get(key)
    if laws is None and audits is None:
        return None
    held = laws or {}
    return {
        "kind": held.get("kind"),
        "laws": {name: held.get(name) for name in ("held", "failed", "excused", "date")},
        "audits": audits,
        "twins": _twins(found.get("twins", {}), key),
    }


def _twins(rows: dict[str, Any], key: str) -> dict[str, Any] | None:
    mine = [row for name, row in rows.items() if name.split("/", 1)[0] == key]
    if not mine:
        return None
    return {
        "of": len(mine),
        "caught": sum(row["caught"] > 0 for row in mine),
        "caught_at_every_seed": sum(row["caught"] == row["seeds"] for row in mine),
        "seeds": min(row["seeds"] for row in mine),
    }


def tier(key: str) -> str:
    """Return ``proved and audited``, ``proved``, ``post-processing`` or ``asserted``.

    A proof stands beside the code; *audited* further means that every law that was tried held, that
    no audit refuted the claim, and that an audit refutes each of the broken twins. A query is
    post-processing when the law that it reads a release alone was among those that held.
    """
    if not _has_proof(key):
        return EVIDENCE[2]
    found = record(key)
    query = REGISTRY[key].room == "queries"
    if found is None or found["laws"]["failed"]:
        return EVIDENCE[2] if query else EVIDENCE[1]
    if query:
        return POST if _ALONE in (found["laws"]["held"] or ()) else EVIDENCE[2]
    audits, twins = found["audits"], found["twins"]
    sound = bool(found["laws"]["held"]) and audits and audits["verdict"] == "not refuted"
    seen = twins is None or twins["caught"] == twins["of"]
    return EVIDENCE[0] if sound and seen else EVIDENCE[1]


def weakest(tiers: Iterable[str]) -> str:
    """Return the weakest of several tiers; post-processing weakens nothing."""
    return max((t for t in tiers if t != POST), key=EVIDENCE.index, default=EVIDENCE[0])


def _has_proof(key: str) -> bool:
    cls = REGISTRY.get(key)
    return cls is not None and page_beside(cls) is not None
