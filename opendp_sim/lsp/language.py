"""Describe a spec's text for an editor, without data or writing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import getitem
from typing import Any

from opendp_sim.accounting.claim_text import claim_sentence
from opendp_sim.core.errors import SimError
from opendp_sim.dsl.explain.explain import explain, explain_stage
from opendp_sim.dsl.grammar.outputs import stage_of
from opendp_sim.dsl.grammar.schema import json_schema
from opendp_sim.dsl.reading import CheckedText
from opendp_sim.lsp.cursor import cursor_at, word_at


@dataclass(frozen=True)
class Completion:
    """Hold a completion with its meaning and text."""

    word: str
    about: str
    written: str


def hover(seen: CheckedText, line: int, column: int) -> str | None:
    """Return the page of the stage, mechanism or word at the cursor."""
    if line >= len(seen.document.lines):
        return None
    word = word_at(seen.document.lines[line], column)
    if not word:
        return None
    pages = []
    if seen.plan is not None and word in seen.plan.types:
        pages.append(explain_stage(seen.plan, word))
    else:
        try:
            pages.append(explain(word))
        except SimError:
            return None
        stage = _stage_of(seen, line, column)
        if stage is not None:
            pages.append(stage)
    return "\n\n".join(f"```text\n{page}\n```" for page in pages)


def _stage_of(seen: CheckedText, line: int, column: int) -> str | None:
    """Return the line about the type after the step at the cursor."""
    path = cursor_at(seen.document.lines, line, column).path
    if seen.plan is None or len(path) < 4 or path[2] != "steps" or not isinstance(path[3], int):
        return None
    stage = stage_of(str(path[1])) if path[0] == "outputs" else str(path[1])
    written = seen.plan.program.stage(stage)
    if written is None or path[3] >= len(written.steps):
        return None
    pages = explain_stage(seen.plan, stage).splitlines()
    steps = [page for page in pages if " -> " in page]  # those of the stages before it come first
    return steps[path[3] - len(written.steps)].strip()


# --- completion -----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _schema() -> Any:
    return json_schema()


def choices(seen: CheckedText, line: int, column: int) -> list[Completion]:
    """Return the words and names allowed at the cursor."""
    at = cursor_at(seen.document.lines, line, column)
    found: dict[str, Completion] = {}
    for schema in _under(_schema(), at.path):
        if at.value:
            for value in _values(schema):
                found.setdefault(
                    value, Completion(value, str(schema.get("description", "")), value)
                )
        if not at.value or not at.begun:
            for word, inner in (schema.get("properties") or {}).items():
                written = f"{word}: " if not at.value else f"{{{word}: "
                found.setdefault(word, Completion(word, _about(inner), written))
    if at.value and at.path and at.path[-1] == "from":
        for name in _names(seen):
            found.setdefault(name, Completion(name, "a dataset or stage of this spec", name))
    return [choice for word, choice in found.items() if word.startswith(at.begun)]


def _under(schema: Any, path: tuple[str | int, ...]) -> Iterator[Any]:
    """Yield every form that the grammar gives to what stands at ``path``."""
    for form in _forms(schema):
        if not path:
            yield form
            continue
        first, rest = path[0], path[1:]
        if isinstance(first, int):
            inner = form.get("items")
        else:
            inner = (form.get("properties") or {}).get(first, form.get("additionalProperties"))
        if isinstance(inner, dict):
            yield from _under(inner, rest)


def _forms(schema: Any) -> Iterator[Any]:
    yield schema
    if "$ref" in schema:
        yield from _forms(reduce(getitem, schema["$ref"].split("/")[1:], _schema()))
    for word in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(word) or ():
            yield from _forms(inner)


def _values(schema: Any) -> list[str]:
    listed = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return [value for value in listed if isinstance(value, str)]


def _about(schema: Any) -> str:
    return next((str(f["description"]) for f in _forms(schema) if f.get("description")), "")


def _names(seen: CheckedText) -> list[str]:
    """Return the readable names of datasets and stages."""
    if seen.plan is not None:
        return [*(entry.name for entry in seen.plan.program.data), *seen.plan.types]
    keys = (path for path, part in seen.document.spans if part == "key" and len(path) == 2)
    return [str(path[1]) for path in keys if path[0] in ("data", "flow")]


# --- the lens -------------------------------------------------------------------------------------


def lens(seen: CheckedText) -> tuple[int, str] | None:
    """Return the plan's cost and error at ``privacy:``."""
    if seen.plan is None or seen.plan.privacy is None:
        return None
    plain = seen.plan.plain()
    told = claim_sentence(plain["privacy"] | {"total": plain["total"], "claim": plain["claim"]})
    errors = (
        f"{name}: {error.replace('_', ' ')} {value:.4g}"
        for name, output in seen.plan.outputs.items()
        for error, value in list(output.expected.items())[:1]
    )
    line = seen.document.locate(("privacy",), "key").line - 1
    return line, "; ".join(["plan: " + told, *errors])
