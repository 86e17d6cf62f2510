"""Convert pydantic's JSON Schema to the published form."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def inlined(schema: Schema) -> Schema:
    """Put pydantic's ``$defs`` where they are used; drop titles."""
    definitions = schema.pop("$defs", {})

    def walk(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [walk(v) for v in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value and value["$ref"].rsplit("/", 1)[-1] in definitions:
            return walk(definitions[value["$ref"].rsplit("/", 1)[-1]])
        if (
            "minLength" in value and "anyOf" in value
        ):  # pydantic says a text's word of a list as well
            lists = [form | {"minItems": value["minLength"]} for form in value["anyOf"]]
            value = value | {"anyOf": lists}
        return {k: walk(v) for k, v in value.items() if k != "title" or isinstance(v, dict)}

    return walk(schema)


def without_null(schema: Schema) -> Schema:
    """A word may be absent, which JSON's null does not say."""
    kept = [form for form in schema.get("anyOf", []) if form != {"type": "null"}]
    rest = {k: v for k, v in schema.items() if k != "anyOf" and (k, v) != ("default", None)}
    return rest | (kept[0] if len(kept) == 1 else {"anyOf": kept} if kept else {})
