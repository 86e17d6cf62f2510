"""Small files of audits, as `opendp-sim audit --format json` prints them."""

from __future__ import annotations

import json
from pathlib import Path

from opendp_sim.audit.findings import Evidence, LayerResult
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.report.report import Report


def report(*, refuted: bool = False, priced: bool = False, text: str = "plain") -> Report:
    pair = Pair([1, 2], [1], 1)
    evidence = (
        Evidence("event", f"one sentence {text}", "epsilon 0.5", f"1.25 {text}", pair)
        if refuted or priced
        else None
    )
    facts = {"priced": evidence} if priced else {}
    evidence = None if priced else evidence
    layers = (
        LayerResult("L0 structure", "not refuted", runs=10, power=f"24 pairs {text}"),
        LayerResult("L1 stability", "skipped", reason=f"no noiseless part declared {text}"),
        LayerResult(
            "L3 distribution",
            "refuted" if refuted else "not refuted",
            runs=500,
            evidence=evidence,
            facts=facts,
        ),
    )
    return Report(
        f"subject {text}", 1, "quick", 0, 1e-3, layers, 1.5, {"opendp": "0.16.0"}, cpu_seconds=1.0
    )


def audit_file(
    path: Path, *, refuted: bool = False, priced: bool = False, text: str = "plain"
) -> Path:
    made = report(refuted=refuted, priced=priced, text=text)
    path.write_text(json.dumps({"verdict": made.verdict, "audits": [made.to_dict()]}))
    return path
