"""What an audit writes as SARIF has the form of the 2.1.0 schema, as far as its words are used."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from jsonschema import Draft7Validator

from opendp_sim.audit import audit
from opendp_sim.audit.findings import LayerResult
from opendp_sim.audit.report.sarif import failed_sarif, sarif_of, to_sarif
from tests.audit.test_reports import SHORT, broken, sound
from tests.report.audits import report


def _closed(required=(), **properties):
    bag = {"properties": {"type": "object"}}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties | bag,
    }


_TEXT = {"type": "string"}
_MESSAGE = _closed(["text"], text=_TEXT)
_RULE = _closed(["id"], id=_TEXT, name=_TEXT, shortDescription=_MESSAGE)
_DRIVER = _closed(
    ["name"], name=_TEXT, rules={"type": "array", "uniqueItems": True, "items": _RULE}
)
_ADDRESS = _closed(uri={"type": "string", "pattern": r"^[!-~]*$"})
_LINE = {"type": "integer", "minimum": 1}
_LOCATION = _closed(
    physicalLocation=_closed(
        ["artifactLocation", "region"],
        artifactLocation=_ADDRESS,
        region=_closed(["startLine"], startLine=_LINE),
    )
)
_RESULT = _closed(
    ["message"],
    ruleId=_TEXT,
    level={"enum": ["none", "note", "warning", "error"]},
    message=_MESSAGE,
    locations={"type": "array", "items": _LOCATION},
)
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_ENDED = _closed(
    ["executionSuccessful"],
    executionSuccessful={"type": "boolean"},
    toolExecutionNotifications={
        "type": "array",
        "items": _closed(["message"], level=_LEVEL, message=_MESSAGE),
    },
)
_RUN = _closed(
    ["tool"],
    tool=_closed(["driver"], driver=_DRIVER),
    automationDetails=_closed(id=_TEXT),
    invocations={"type": "array", "items": _ENDED},
    results={"type": "array", "items": _RESULT},
)
SARIF = _closed(
    ["version", "runs"],
    **{"$schema": _TEXT, "version": {"enum": ["2.1.0"]}, "runs": {"type": "array", "items": _RUN}},
)
"""The part of the SARIF 2.1.0 schema that is used, by hand: closed objects and their required members."""


@pytest.fixture(scope="module")
def reports():
    return audit(broken(), 2), audit(sound(), 1, SHORT)


@pytest.mark.parametrize("file", [None, "mechanism.py", "a b\x1b[2J%\ud800\n.py"])
def test_sarif_has_the_form_of_the_part_that_is_used(reports, file):
    for made in reports:
        sarif = json.loads(to_sarif(made, file))
        Draft7Validator(SARIF).validate(sarif)
        (run,) = sarif["runs"]
        known = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert all(result["ruleId"] in known for result in run["results"])
    sarif["runs"][0]["result"] = []
    assert not Draft7Validator(SARIF).is_valid(sarif)


def test_audits_of_a_module_are_one_run_that_names_each_of_them(reports):
    """A code host refuses a file with several runs of one tool and category."""
    places = [("m.py", 3), ("m.py", 9)]
    told = [replace(reports[0], origin="m:make_bad"), replace(reports[1], origin="m:make_good")]
    sarif = json.loads(sarif_of(told, places, "m"))
    Draft7Validator(SARIF).validate(sarif)
    (run,) = sarif["runs"]
    (result,) = run["results"]
    assert run["automationDetails"]["id"].endswith("/m/")
    assert result["message"]["text"].startswith("m:make_bad at d_in = 2: ")
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 3}
    audits = {a["subject"]: a["verdict"] for a in run["properties"]["audits"]}
    assert audits == {"m:make_bad": "refuted", "m:make_good": "not refuted"}


def test_what_is_priced_and_what_draws_nothing_are_warnings():
    """Only a refutation is an error: a price is for a person, and so is a release without noise."""
    dull = replace(
        report(), layers=(LayerResult("LT trace", "not refuted", facts={"warning": "!"}),)
    )
    told = [report(refuted=True), report(priced=True), report(), dull]
    sarif = json.loads(sarif_of(told, [("m.py", n) for n in (1, 2, 3, 4)], "m"))
    Draft7Validator(SARIF).validate(sarif)
    (run,) = sarif["runs"]
    assert [result["level"] for result in run["results"]] == ["error", "warning", "warning"]
    assert [
        r["locations"][0]["physicalLocation"]["region"]["startLine"] for r in run["results"]
    ] == [*(1, 2, 4)]
    assert "priced, not refuted" in run["results"][1]["message"]["text"]
    assert run["properties"]["verdict"] == "refuted"
    assert [audit["verdict"] for audit in run["properties"]["audits"]] == [
        *("refuted", "priced", "not refuted", "not refuted")
    ]
    assert json.loads(sarif_of(told[1:], [], "m"))["runs"][0]["properties"]["verdict"] == "priced"


def test_where_nothing_was_audited_a_file_still_has_the_form():
    sarif = json.loads(failed_sarif("OS501: none in it"))
    Draft7Validator(SARIF).validate(sarif)
    assert sarif["runs"][0]["invocations"][0]["executionSuccessful"] is False
