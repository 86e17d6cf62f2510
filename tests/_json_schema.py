"""The part of JSON Schema that ``specs/schema.json`` uses, as a validator for tests."""

from __future__ import annotations

import re
from typing import Any

_TYPES = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int,
    "number": (int, float), "null": type(None),
}  # fmt: skip
_KNOWN = {
    "type", "enum", "const", "properties", "required", "additionalProperties", "anyOf", "oneOf",
    "allOf", "$ref", "items", "prefixItems", "pattern", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "minItems", "maxItems", "minLength", "maxLength", "minProperties",
    "maxProperties", "default", "description", "title", "$schema", "$id", "$defs", "examples",
    "symbol", "unit", "hint", "uniqueItems",
}  # fmt: skip


def valid(value: Any, schema: Any, root: Any) -> bool:
    """Say whether ``value`` fits; refuse schema words that this does not know."""
    if isinstance(schema, bool):
        return schema
    assert set(schema) <= _KNOWN, set(schema) - _KNOWN
    if "$ref" in schema:
        found = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return valid(value, found, root)
    checks = (_type, _values, _combined, _object, _array, _limits)
    return all(check(value, schema, root) for check in checks)


def _type(value, schema, root):
    if "type" not in schema:
        return True
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    boolean = isinstance(value, bool)
    return any(
        isinstance(value, _TYPES[kind]) and (not boolean or kind == "boolean") for kind in kinds
    )


def _values(value, schema, root):
    return value in schema.get("enum", [value]) and value == schema.get("const", value)


def _combined(value, schema, root):
    some = [valid(value, s, root) for s in schema.get("anyOf", [])]
    one = [valid(value, s, root) for s in schema.get("oneOf", [])]
    every = all(valid(value, s, root) for s in schema.get("allOf", []))
    return (not some or any(some)) and (not one or sum(one) == 1) and every


def _object(value, schema, root):
    if not isinstance(value, dict):
        return True
    known = schema.get("properties", {})
    more = schema.get("additionalProperties", True)
    inside = all(valid(v, known.get(k, more), root) for k, v in value.items())
    enough = set(schema.get("required", [])) <= set(value)
    return inside and enough and schema.get("minProperties", 0) <= len(value) <= schema.get(
        "maxProperties", len(value)
    )  # fmt: skip


def _array(value, schema, root):
    if not isinstance(value, list):
        return True
    first = schema.get("prefixItems", [])
    rest = schema.get("items", True)
    sizes = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
    return sizes and all(
        valid(v, first[i] if i < len(first) else rest, root) for i, v in enumerate(value)
    )


def _limits(value, schema, root):
    if isinstance(value, str):
        return re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    low, high = schema.get("minimum", value), schema.get("maximum", value)
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    inside = low <= value <= high
    return inside and (above is None or value > above) and (below is None or value < below)
