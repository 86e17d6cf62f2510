"""Read a mechanism's recorded evidence, and compare its code hash.

``evidence.jsonl`` has one line a mechanism, written by ``benchmarks/audit_scoreboard.py``: laws that
held, audits, broken twins, and a hash of the code that they ran on. Nothing here is kept by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from opendp_sim.accounting.code_hash import closure, code_hash, runs_as_written
from opendp_sim.core.mechanism import REGISTRY, page_beside

EVIDENCE = ("proved and audited", "proved", "asserted")
"""From the strongest to the weakest."""
POST = "post-processing"
"""The tier of a query: it loses nothing, because a recorded law says that it reads a release alone."""
_ALONE = "post_processing_reads_the_release_alone"


@cache
def _recorded() -> Mapping[str, dict[str, Any]]:
    file = files("opendp_sim").joinpath("accounting", "evidence.jsonl")
    if not file.is_file():
        return {}
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {line.pop("key"): line for line in lines}


def record(key: str) -> dict[str, Any] | None:
    """Return the recorded evidence of ``key``, or None.

    ``laws`` names those that held and those that did not; ``audits`` has their number, the layers that
    ran and the verdict; ``twins`` the number of broken twins and of those that an audit refutes; ``code``
    the hash (`code_hash`) of the code that laws and audits ran on, None where they ran on different
    ones; ``auditor`` the hash of the auditor. A newer auditor does not lower the tier, because a claim
    that an older one did not refute was audited all the same; the hash names which one.
    """
    return _recorded().get(key)


def tier(key: str) -> str:
    """Return ``proved and audited``, ``proved``, ``post-processing`` or ``asserted``.

    A proof stands beside the code; *audited* further means that every law that was tried held, that
    no audit refuted the claim, that an audit refutes each of the broken twins, and that all this was on
    the code that is installed. A query is post-processing when the law that it reads a release alone was
    among those that held, on this code. Evidence of other code leaves the proof.
    """
    if (cls := REGISTRY.get(key)) is None or page_beside(cls) is None:
        return EVIDENCE[2]
    found = record(key)
    query = REGISTRY[key].room == "queries"
    if found is None or found["laws"]["failed"]:
        return EVIDENCE[2] if query else EVIDENCE[1]
    if query and _ALONE not in (found["laws"]["held"] or ()):
        return EVIDENCE[2]
    if _is_of_other_code(key, found):
        return EVIDENCE[1]
    if query:
        return POST
    audits, twins = found["audits"], found["twins"]
    sound = bool(found["laws"]["held"]) and audits and audits["verdict"] == "not refuted"
    seen = twins is None or twins["caught"] == twins["of"]
    return EVIDENCE[0] if sound and seen else EVIDENCE[1]


def fallen(key: str) -> str | None:
    """Return the day of evidence for other code, or None."""
    found = record(key)
    if found is None or key not in REGISTRY or not _is_of_other_code(key, found):
        return None
    return str(found["laws"]["date"])


def weakest(tiers: Iterable[str]) -> str:
    """Return the weakest of several tiers; post-processing weakens nothing."""
    return max((t for t in tiers if t != POST), key=EVIDENCE.index, default=EVIDENCE[0])


def _is_of_other_code(key: str, found: Mapping[str, Any]) -> bool:
    module = REGISTRY[key].__module__
    if found["code"] is None or found["code"] != code_hash(module):
        return True
    return not all(map(runs_as_written, closure(module)))
