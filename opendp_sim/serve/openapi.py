"""Describe a folder in OpenAPI 3.1, with each release's own columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opendp_sim import __version__
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.grammar.pydantic_schema import inlined
from opendp_sim.dsl.run.session import Served
from opendp_sim.serve.folder import Folder
from opendp_sim.serve.questions import CELLS, SESSION_ROWS, WORK, FreeQuestion

Schema = dict[str, Any]
KEY = "^[ -~]{8,128}$"
"""An Idempotency-Key: 8 to 128 printable characters."""
_REFUSALS = (400, 401, 403, 404, 405, 406, 408, 413, 415, 421, 422, 429, 500, 503, 504)
_PAID = (409, 410, 428)
ARROW = "application/vnd.apache.arrow.stream"


def document(folder: Folder, served: Mapping[str, Served]) -> Schema:
    """Return the OpenAPI document of releases and open sessions."""
    paths: dict[str, Any] = {
        "/v1/releases": {"get": _get("List releases.", "releases")},
        "/v1/sessions": {"get": _get("List sessions.", "sessions")},
        "/v1/ledgers": {"get": _get("List ledgers (officer, curator).", "ledgers")},
    }
    for name, saved in folder.releases.items():
        paths[f"/v1/releases/{name}"] = {"get": _get("Describe a release.", "name", "columns")}
        paths[f"/v1/releases/{name}/report"] = {"get": _page("Report of a release.")}
        for question in saved.questions.values():
            paths[f"/v1/releases/{name}/{question.name}"] = {"post": _asked(question)}
    for name in folder.ledgers:
        paths[f"/v1/ledgers/{name}/report"] = {"get": _page("Report of a ledger.")}
    for name in folder.sessions | folder.startable:
        paths[f"/v1/sessions/{name}"] = {"get": _get(_SESSION, "name", "open")}
        paths[f"/v1/sessions/{name}/start"] = {"post": _operated(_START, _HEAD)}
        paths[f"/v1/sessions/{name}/stop"] = {"post": _operated(_STOP, _object({}))}
    for name, session in served.items():
        paths[f"/v1/sessions/{name}/ask"] = {"post": _paid(session.features)}
    error = _object(
        {"error": _object({"code": {"type": "string"}, "expected": {"type": "string"}}, "code")},
        "error",
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "opendp-sim serve", "version": __version__},
        "paths": paths,
        "security": [{"bearer": []}],
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": error},
        },
    }


def _object(properties: Schema, *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _refusals(*more: int) -> Schema:
    error = {"description": "refused", "content": _json({"$ref": "#/components/schemas/Error"})}
    return {str(code): error for code in (*_REFUSALS, *more)}


def _get(summary: str, *required: str) -> Schema:
    answer = {"description": "found", "content": _json(_object({}, *required))}
    return {"summary": summary, "responses": {"200": answer, **_refusals()}}


def _page(summary: str) -> Schema:
    answer = {"description": "a page", "content": {"text/html": {"schema": {"type": "string"}}}}
    return {"summary": summary, "responses": {"200": answer, **_refusals()}}


def _question(question: FreeQuestion) -> Schema:
    """Return the body of a question to a release."""
    features, most = question.features, question.rows
    columns = {column.name: _array(_one(column), most) for column in features.columns}
    by_column = _object(columns, *columns) | {"additionalProperties": False}
    width = sum(column.width for column in features.columns)
    rows = _array(_numbers(width), most)
    own = inlined(REGISTRY[question.name].model_json_schema()).get("properties", {})
    own = {name: schema for name, schema in own.items() if name != "public"}
    queries = {"anyOf": [by_column, rows]}
    needs = [*question.needs, *(["queries"] if question.queries else [])]
    return _object({"queries": queries, **own}, *needs) | {"additionalProperties": False}


def _array(items: Schema, most: int) -> Schema:
    return {"type": "array", "minItems": 1, "maxItems": most, "items": items}


def _one(column: Column) -> Schema:
    if column.keys:
        return {"enum": list(column.keys)}
    return _numbers(column.width) if column.is_vector else {"type": "number"}


def _numbers(width: int) -> Schema:
    return {"type": "array", "items": {"type": "number"}, "minItems": width, "maxItems": width}


def _asked(question: FreeQuestion) -> Schema:
    answer = _object({"columns": {"type": "object"}}, "columns")
    content = {**_json(answer), ARROW: {"schema": {"type": "string", "format": "binary"}}}
    return {
        "summary": f"{question.name}: free, computed from the release alone.",
        "description": f"At most {WORK:,} products of points and released numbers and {CELLS:,} cells of "
        "an answer a request (422, `work`).",
        "requestBody": {"required": True, "content": _json(_question(question))},
        "responses": {
            "200": {"description": "a table, by column", "content": content},
            "304": {"description": "the answer that this ETag has"},
            **_refusals(),
        },
    }


_SESSION = "What a start takes, and where the ledger stands (operator, officer, curator)."
_START = "Open it (operator). The first start is charged, if the ledger's head is the one given."
_STOP = "Answer what waits, then close it (operator)."
_HEAD = {"type": "object", "properties": {"head": {"type": "string"}}}


def _operated(summary: str, body: Schema) -> Schema:
    answer = {"description": "the session", "content": _json(_object({}, "name", "open"))}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _json(body | {"additionalProperties": False})},
        "responses": {"200": answer, **_refusals(409, 428)},
    }


def _paid(features: Records) -> Schema:
    columns = {column.name: _one(column) for column in features.columns}
    named = _object(columns, *columns) | {"additionalProperties": False}
    width = sum(column.width for column in features.columns)
    rows = _array({"anyOf": [_numbers(width), named]}, SESSION_ROWS)
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": True,
        "description": "Another one for every question, the same one for every retry.",
        "schema": {"type": "string", "pattern": KEY},
    }
    answer = _object({"answers": {"type": "array"}, "answered": {"type": "integer"}}, "answers")
    return {
        "summary": "Charged, durably, before the answer leaves; a retry is free.",
        "parameters": [key],
        "requestBody": {
            "required": True,
            "content": _json(
                _object({"queries": rows}, "queries") | {"additionalProperties": False}
            ),
        },
        "responses": {
            "200": {"description": "answers in order", "content": _json(answer)},
            **_refusals(*_PAID),
        },
    }
