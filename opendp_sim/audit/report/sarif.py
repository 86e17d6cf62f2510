"""Write a report as SARIF 2.1.0 for code hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.report.report import Report, json_ready, worst_of
from opendp_sim.core.system.escape_text import escape

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_RULES = {
    "L0 structure": "Shapes, types, exceptions and inner releases do not depend on the data.",
    "LT trace": "The noise that a Python function draws covers what it hides, on every path tried.",
    "L1 stability": "Outputs of neighbours are no further apart than the map says.",
    "L2 noise law": "What is added is the declared noise.",
    "L3 distribution": "No event is likelier than the claimed curve allows.",
    "L4 enumeration": "The exact distribution is within the claimed curve.",
}


def to_sarif(report: Report, file: str | None = None) -> str:
    """Return one SARIF run.

    A refutation has level error; a priced finding, or a measurement without noise, is a warning.

    Args:
        report: the audit.
        file: the file to attach the result to, when there is one.
    """
    place = [] if file is None else [(file, 1)]
    return sarif_of([report], place, report.origin or report.subject)


def sarif_of(
    reports: Sequence[Report],
    places: Sequence[tuple[str, int]],
    target: str,
    left_out: Sequence[tuple[str, str]] = (),
) -> str:
    """Return one SARIF run of several audits.

    A code host takes one run of a tool and category.

    Args:
        reports: the audits.
        places: file and line of each; none, where no file is known.
        target: what was asked for; it names the run's category.
        left_out: names of what was not audited, and why; notifications of the run.
    """
    results = [
        result
        for number, report in enumerate(reports)
        for result in _results(report, places[number] if places else None)
    ]
    audits = [
        {
            "subject": report.origin or report.subject,
            "verdict": report.verdict,
            "layers": [f"{layer.layer}: {layer.status}" for layer in report.layers],
            "seed": report.seed,
            "beta": report.beta,
        }
        for report in reports
    ]
    verdict = worst_of(reports)
    notes = [
        {"level": "warning", "message": {"text": escape(f"left out: {name}: {why}")}}
        for name, why in left_out
    ]
    ran = {"executionSuccessful": True, "toolExecutionNotifications": notes}
    properties = {"verdict": verdict, "audits": audits}
    return _document(target, results, properties, invocations=[ran])


def failed_sarif(told: str) -> str:
    """Return a run without a result, which says why nothing was audited."""
    note = {"level": "error", "message": {"text": told}}
    ended = {"executionSuccessful": False, "toolExecutionNotifications": [note]}
    return _document("nothing", [], {"verdict": None}, invocations=[ended])


def _document(
    target: str, results: list[dict[str, Any]], properties: dict[str, Any], **more: Any
) -> str:
    rules = [
        {"id": name.split()[0], "name": name.split(" ", 1)[1], "shortDescription": {"text": text}}
        for name, text in _RULES.items()
    ]
    run = {
        "tool": {"driver": {"name": "opendp-sim audit", "rules": rules}},
        "automationDetails": {"id": f"opendp-sim audit/{escape(target)}/"},
        "results": results,
        "properties": properties,
        **more,
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _results(report: Report, place: tuple[str, int] | None) -> Iterator[dict[str, Any]]:
    """Yield SARIF results of a report, errors and warnings."""
    if report.evidence is not None:
        yield _result(report, report.layer, "error", _told(report.evidence), report.evidence, place)
    if report.priced is not None:
        told = f"priced, not refuted ({report.priced.confidence}): {_told(report.priced)}"
        yield _result(report, "LT", "warning", told, report.priced, place)
    for text in report.warnings:
        yield _result(report, "LT", "warning", text, None, place)


def _told(evidence: Evidence) -> str:
    return f"{evidence.detail}: claimed {evidence.claimed}, measured {evidence.measured}"


def _result(
    report: Report,
    layer: str,
    level: str,
    told: str,
    evidence: Evidence | None,
    place: tuple[str, int] | None,
) -> dict[str, Any]:
    subject = report.origin or report.subject
    result: dict[str, Any] = {
        "ruleId": layer.split(maxsplit=1)[0],
        "level": level,
        "message": {"text": escape(f"{subject} at d_in = {report.d_in}: {told}{_seen(report)}")},
        "properties": {
            "subject": subject,
            "evidence": json_ready(evidence),
            "witness": json_ready(report.witness),
            "replay": report.replay,
        },
    }
    if place is not None:
        where: dict[str, Any] = {
            "artifactLocation": {"uri": quote(place[0], errors="replace")},
            "region": {"startLine": place[1]},
        }
        result["locations"] = [{"physicalLocation": where}]
    return result


def _seen(report: Report) -> str:
    """Say the plain event and how often it was seen."""
    witness = report.witness
    if witness is None:
        return ""
    (p, q), n = witness.hits, witness.runs
    said = f"; event `{witness.event}`: {p} of {n} on one dataset, {q} of {n} on the other"
    bound = f", so epsilon >= {witness.epsilon:.4g} at delta {witness.delta:.3g}"
    return said + (bound if witness.certified else "")
