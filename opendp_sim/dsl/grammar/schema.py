"""Make the specs' JSON Schema from the grammar, for editors."""

from __future__ import annotations

from typing import Any

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.dsl.grammar.error_goal import SOLVED, ErrorGoal
from opendp_sim.dsl.grammar.outputs import OWN_STAGE
from opendp_sim.dsl.grammar.program import VERSION, Spec
from opendp_sim.dsl.grammar.pydantic_schema import Schema

_HOLE = r"\?\?\?"
_WHOLE = {"type": "string", "pattern": rf"^(\$\{{[^}}]*\}}|{_HOLE})$"}
_INSIDE = {"type": "string", "pattern": rf"\$\{{[^}}]*\}}|^{_HOLE}$"}
"""Wherever a value may stand, a ``${parameter}`` or a hole may; within a text, a parameter too."""
_STAGE = "#/properties/flow/additionalProperties/properties"
_SCALARS = {"number", "integer", "boolean"}


def json_schema() -> Schema:
    """Return the schema; equal code gives equal schemas."""
    found = Spec.schema_of()
    words: Schema = found["properties"]
    public = {"properties": {"public": {"const": True}}, "required": ["public"]}
    needless = {"properties": {"data": {"additionalProperties": public}}}
    found["anyOf"] = [{"required": ["privacy"]}, needless]
    none = {"not": {"anyOf": [{"required": [word]} for word in OWN_STAGE]}}
    own_stage = {"properties": {"outputs": {"not": {"additionalProperties": none}}}}
    found["allOf"] = [{"anyOf": [{"required": ["flow"]}, own_stage]}]
    budget: Schema = words["privacy"]["properties"]["budget"]["properties"]
    budget["epsilon"] |= {SOLVED: True}
    for word in words.keys() - {"params"}:
        words[word] = _open(words[word])
    own = words["outputs"]["additionalProperties"]["properties"]
    for word in OWN_STAGE:  # thousands of lines, which stand once
        own[word] = {"description": own[word]["description"], "$ref": f"{_STAGE}/{word}"}
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": VERSION,
        "title": "opendp_sim spec",
    }
    return about | found | {"$defs": {"error_goal": _open(ErrorGoal.schema_of())}}


def _open(schema: Any) -> Any:
    """Let a parameter stand for every number, word and truth value."""
    if isinstance(schema, list | tuple):
        return [_open(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    if SOLVED in schema:
        plain = {word: about for word, about in schema.items() if word != SOLVED}
        return {"anyOf": [_open(plain), {"$ref": "#/$defs/error_goal"}]}
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values or schema.get("type") in _SCALARS or "pattern" in schema:
        texts = "pattern" in schema or any(isinstance(value, str) for value in values)
        return {"anyOf": [schema, _INSIDE if texts else _WHOLE]}
    return {k: _map(k, v) for k, v in schema.items()}


def _map(keyword: str, value: Any) -> Any:
    if keyword == "properties":
        return {name: _open(inner) for name, inner in value.items()}
    return value if keyword in ("default", "required", "examples") else _open(value)
