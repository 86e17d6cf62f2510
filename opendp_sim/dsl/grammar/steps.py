"""Read steps and mechanisms inside a section, with their JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opendp_sim.core.mechanism import REGISTRY, Mechanism
from opendp_sim.dsl.grammar.error_goal import SOLVED
from opendp_sim.dsl.grammar.parse import wrong
from opendp_sim.dsl.grammar.parse_steps import read_steps
from opendp_sim.dsl.grammar.pydantic_schema import Schema, inlined
from opendp_sim.dsl.grammar.section import ValueReader
from opendp_sim.dsl.text.diagnostic import Notes, Path

SOLVABLE = ("scale", "rho", "epsilon")
"""A mechanism's parameter that the language may solve from the budget, in order of preference."""


def steps_reader(*rooms: str) -> ValueReader:
    """Declare a list of steps out of ``rooms``."""

    def read(value: Any, path: Path, notes: Notes) -> tuple[Mechanism, ...] | None:
        if not isinstance(value, list):
            wrong(value, "list", path, notes)
            return None
        return read_steps(value, path, notes, rooms)

    def schema() -> Schema:
        return {
            "type": "array",
            "items": {"anyOf": [form for key, cls in _of(rooms) for form in _forms(key, cls)]},
        }

    return ValueReader(read, schema, expected="list")


def mechanisms_schema() -> Schema:
    """Return the schema of what stands under ``mechanism:``."""
    return {
        "anyOf": [
            form for key, cls in _of(("measurements",)) for form in _forms(key, cls, solvable=True)
        ]
    }


def _of(rooms: tuple[str, ...]) -> Iterator[tuple[str, type[Mechanism]]]:
    """Yield the mechanisms of ``rooms`` by name, under former names too."""
    for key, cls in sorted(REGISTRY.items()):
        if cls.room in rooms:
            yield from ((name, cls) for name in (key, *cls.formerly))


def _one(about: Schema) -> Schema:
    """Return the schema of a number that may be left out."""
    return next((form for form in about.get("anyOf", ()) if form.get("type") == "integer"), about)


def _forms(key: str, cls: type[Mechanism], *, solvable: bool = False) -> list[Schema]:
    """Return ``{key: {parameters}}``, and the bare key where no parameter is needed."""
    from opendp_sim.dsl.text.plain_text import first_sentence  # noqa: PLC0415 - its reader of formulas is heavy

    own = inlined(cls.model_json_schema())
    properties, needed = own.get("properties", {}), list(own.get("required", []))
    if solvable:
        for name in {*SOLVABLE} & {*properties}:
            properties[name] = {"anyOf": [properties[name], {"const": "solve"}]}
        # The first of them is solved where it is left out; so is a delta.
        left_out = [name for name in SOLVABLE if name in needed][:1]
        needed = [name for name in needed if name not in (*left_out, "delta")]
    for name, about in properties.items():
        if name != "seed" and {"type": "integer"}.items() <= _one(about).items():
            properties[name] = about | {SOLVED: True}
    inner: Schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "description": first_sentence(cls),
    }
    inner |= {"required": needed} if needed else {}
    old = {} if key == cls.key else {"deprecated": True}
    if not needed:
        inner = {"anyOf": [inner, {"type": "null"}]}
    form: Schema = {
        "type": "object",
        "properties": {key: inner},
        "required": [key],
        "additionalProperties": False,
    }
    return [form | old] if needed else [{"const": key} | old, form | old]
