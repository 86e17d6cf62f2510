"""A report as SARIF 2.1.0, so that a code host shows a refutation beside the code."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from opendp_sim.audit.report import Report, plain
from opendp_sim.core.shown import shown

__all__ = ["to_sarif"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_RULES = {
    "L0 structure": "Shapes, types, exceptions and inner releases do not depend on the data.",
    "LT trace": "The noise that a Python function draws covers what it hides, on every path tried.",
    "L1 stability": "Outputs of neighbours are no further apart than the map says.",
    "L2 noise law": "What is added is the declared noise.",
    "L3 distribution": "No event is likelier than the claimed curve allows.",
    "L4 enumeration": "The exact distribution is within the claimed curve.",
    "L5 accountants": "The claimed number is not below what the declared noise attains.",
}


def to_sarif(report: Report, file: str | None = None) -> str:
    """Return one SARIF run with at most one result, at level error.

    Args:
        report: the audit.
        file: the file to attach the result to, when there is one.
    """
    rules = [
        {"id": name.split()[0], "name": name.split(" ", 1)[1], "shortDescription": {"text": text}}
        for name, text in _RULES.items()
    ]
    run = {
        "tool": {"driver": {"name": "opendp-sim audit", "rules": rules}},
        "results": [] if report.evidence is None else [_result(report, file)],
        "properties": {"verdict": report.verdict, "seed": report.seed, "beta": report.beta},
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _result(report: Report, file: str | None) -> dict[str, Any]:
    evidence = report.evidence
    if evidence is None:
        return {}
    text = f"{evidence.detail}: claimed {evidence.claimed}, measured {evidence.measured}"
    result: dict[str, Any] = {
        "ruleId": report.layer.split()[0],
        "level": "error",
        "message": {"text": shown(text)},
        "properties": {"evidence": plain(evidence), "replay": report.replay},
    }
    if file:
        place = {"physicalLocation": {"artifactLocation": {"uri": quote(file, errors="replace")}}}
        result["locations"] = [place]
    return result
