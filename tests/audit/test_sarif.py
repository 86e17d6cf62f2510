"""What an audit writes as SARIF has the form of the 2.1.0 schema, as far as its words are used."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft7Validator

from opendp_sim.audit import audit
from opendp_sim.audit.sarif import to_sarif
from tests.audit.test_reports import SHORT, broken, sound


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
_LOCATION = _closed(physicalLocation=_closed(["artifactLocation"], artifactLocation=_ADDRESS))
_RESULT = _closed(
    ["message"],
    ruleId=_TEXT,
    level={"enum": ["none", "note", "warning", "error"]},
    message=_MESSAGE,
    locations={"type": "array", "items": _LOCATION},
)
_RUN = _closed(
    ["tool"], tool=_closed(["driver"], driver=_DRIVER), results={"type": "array", "items": _RESULT}
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
    for report in reports:
        sarif = json.loads(to_sarif(report, file))
        Draft7Validator(SARIF).validate(sarif)
        (run,) = sarif["runs"]
        known = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert all(result["ruleId"] in known for result in run["results"])
    sarif["runs"][0]["result"] = []
    assert not Draft7Validator(SARIF).is_valid(sarif)
