"""The JSON Schema of specs, derived from the records, for yaml-language-server and other editors."""

from __future__ import annotations

from typing import Any

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.accounting.budget import MEASURES
from opendp_sim.core.mechanism import REGISTRY, Mechanism
from opendp_sim.dsl.explain import first_sentence
from opendp_sim.dsl.ir import VERSION
from opendp_sim.dsl.read_data import SOURCE_KINDS
from opendp_sim.dsl.read_flow import FACES, SOLVABLE, noise_keys
from opendp_sim.sources.builtin import BUILTINS

__all__ = ["json_schema"]

Schema = dict[str, Any]
_SCALARS = ("number", "integer", "boolean")
_PARAMETER = {"type": "string", "pattern": r"^(\$\{[^}]+\}|\?\?\?)$"}
"""Wherever a value may stand, a ``${parameter}`` or a hole may."""


def json_schema() -> Schema:
    """Return the schema; equal code gives equal schemas."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "opendp_sim/1",
        "title": "opendp_sim spec",
        **_mapping({
            "spec": {"const": VERSION},
            "name": {"type": "string"},
            "params": _named(_params()),
            "data": _named(_data()),
            "privacy": _privacy(),
            "flow": _named(_stage()),
            "outputs": _named(_output()),
        }, ["spec", "name", "data", "flow", "outputs"]),
        "$defs": {
            "source": _source(),
            "budget": _budget(),
            "rows": _steps("rows", "sketches"),
            "queries": _steps("queries"),
        },
    }  # fmt: skip


def _mapping(properties: Schema, required: list[str] | None = None) -> Schema:
    out: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return out | ({"required": required} if required else {})


def _named(inner: Schema) -> Schema:
    return {"type": "object", "additionalProperties": inner, "minProperties": 1}


def _or_parameter(inner: Schema) -> Schema:
    return {"anyOf": [inner, _PARAMETER]}


def _open(inner: Schema) -> Schema:
    """Let a parameter stand for a whole argument, where the walk has not done so."""
    return inner if _PARAMETER in inner.get("anyOf", []) else _or_parameter(inner)


def _params() -> Schema:
    return _mapping({
        "type": {"enum": ["float", "int", "bool", "str"]},
        "default": {}, "keys": {"type": "array"},
        "range": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
    }, ["type"])  # fmt: skip


def _source() -> Schema:
    file = {"anyOf": [{"type": "string"}, {"type": "object"}]}
    kinds: Schema = dict.fromkeys(SOURCE_KINDS, file)
    kinds["builtin"] = _or_parameter({"enum": sorted(BUILTINS)})
    kinds["memory"] = {"type": "string"}
    return {"type": "object", "properties": kinds, "additionalProperties": False,
            "minProperties": 1, "maxProperties": 1}  # fmt: skip


def _budget() -> Schema:
    number = _or_parameter({"type": "number", "exclusiveMinimum": 0})
    return _mapping({
        "epsilon": number, "delta": number, "rho": number,
        "reserve": _mapping({"mechanisms": number, "conversion": number}, ["mechanisms"]),
    })  # fmt: skip


def _data() -> Schema:
    column = _mapping({
        "dtype": {"type": "string"},
        "bounds": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        "keys": {"type": "array", "items": {"type": ["string", "integer"]}},
        "role": {"const": "privacy_id"},
    }, ["dtype"])  # fmt: skip
    return _mapping({
        "source": {"$ref": "#/$defs/source"},
        "columns": _named({"anyOf": [{"type": "string"}, column]}),
        "ingest": {"enum": ["refuse", "enforce", "assume"]},
        "ledger": _mapping({"file": {"type": "string"}, "limit": {"$ref": "#/$defs/budget"}},
                           ["file", "limit"]),
        "public": {"type": "boolean"},
    }, ["source", "columns"])  # fmt: skip


def _privacy() -> Schema:
    whole = _or_parameter({"type": "integer", "minimum": 1})
    unit = _mapping({"add_remove": whole, "replace": whole, "of": {"type": "string"}})
    return _mapping({
        "unit": unit, "measure": {"enum": list(MEASURES)}, "budget": {"$ref": "#/$defs/budget"},
        "numerics": {"enum": ["exact", "idealized"]},
    }, ["unit", "measure", "budget"])  # fmt: skip


def _stage() -> Schema:
    number = _or_parameter({"type": "number"})
    expect = _mapping({"stability": {"type": "integer"},
                       "faces": _mapping(dict.fromkeys(FACES, number))})  # fmt: skip
    return _mapping({
        "from": {"type": "string"}, "steps": {"$ref": "#/$defs/rows"}, "release": _release(),
        "expect": expect,
    }, ["from"])  # fmt: skip


def _release() -> Schema:
    spend = {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {"type": "string"}]}
    noise = _mapping({
        "noise": {"enum": sorted(noise_keys())},
        "scale": {"anyOf": [{"const": "solve"}, _or_parameter({"type": "number"})]},
        "spend": spend, "sampler": {"enum": ["auto", "opendp", "bulk"]},
    }, ["noise"])  # fmt: skip
    mechanism = _mapping({
        "mechanism": {"anyOf": [
            _keyed(key, cls, solvable=True)
            for key, cls in sorted(REGISTRY.items())
            if cls.room == "measurements"
        ]},
        "spend": spend,
    }, ["mechanism"])  # fmt: skip
    return {"anyOf": [{"const": "none"}, noise, mechanism]}


def _output() -> Schema:
    source = {"$ref": "#/$defs/source"}
    return _mapping({
        "from": {"type": "string"}, "post": {"$ref": "#/$defs/queries"}, "query": source,
        "save": {"type": "string", "pattern": r"\.(npz|csv|json)$"},
        "serve": {"enum": ["queryable", "session"]}, "store": {"type": "string"},
        "public_queries": source,
    }, ["from"])  # fmt: skip


def _steps(*rooms: str) -> Schema:
    return {"type": "array", "items": {"anyOf": [
        step for key, cls in sorted(REGISTRY.items()) if cls.room in rooms
        for step in ({"const": key}, _keyed(key, cls))
    ]}}  # fmt: skip


def _keyed(key: str, cls: type[Mechanism], *, solvable: bool = False) -> Schema:
    own = _inline(cls.model_json_schema())
    required = list(own.get("required", []))
    properties = {name: _open(inner) for name, inner in own.get("properties", {}).items()}
    if solvable:
        for name in SOLVABLE:
            if name in properties:
                properties[name] = {"anyOf": [*properties[name]["anyOf"], {"const": "solve"}]}
        required = [name for name in required if name not in (*SOLVABLE, "delta")]
    inner = _mapping(properties, required) | {"description": first_sentence(cls)}
    if not required:
        inner = {"anyOf": [inner, {"type": "null"}]}
    return _mapping({key: inner}, [key])


def _inline(schema: Schema) -> Schema:
    """Put pydantic's ``$defs`` where they are used, so that steps stand alone."""
    definitions = schema.pop("$defs", {})

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                name = value["$ref"].rsplit("/", 1)[-1]
                return walk(definitions.get(name, {}))
            # Titles repeat the keys, and what is no schema word confuses strict editors.
            typed = bool({"type", "anyOf", "oneOf"} & set(value))
            hidden = ("title", "symbol", "unit", "hint") if typed else ("title",)
            kept = {k: walk(v) for k, v in value.items() if k not in hidden or isinstance(v, dict)}
            return _or_parameter(kept) if value.get("type") in _SCALARS else kept
        return [walk(v) for v in value] if isinstance(value, list | tuple) else value

    found: Schema = walk(schema)
    return found
