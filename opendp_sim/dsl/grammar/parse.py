"""Read a section's words into typed values, or one finding each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opendp_sim.core.about import errors_of
from opendp_sim.core.mechanism import frozen
from opendp_sim.dsl.grammar.pydantic_schema import Schema
from opendp_sim.dsl.grammar.section import (
    HOLE,
    VALUE_KINDS,
    Refusal,
    Section,
    ValueReader,
    Word,
    hole_in,
    value_text,
)
from opendp_sim.dsl.text.diagnostic import Notes, Path, misspelt, suggest

_SHORT = 4
"""Letters up to which another word is no misspelling: `rdp` is not meant to be `gdp`."""
_HOMES = {
    "ledger": "a ledger belongs to a dataset: write it under `data`, beside `source`, as `ledger: "
    "{file: records.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}` (`opendp-sim explain ledger`)."
}
"""Words that people write in another place, and where they belong."""


def read_section(cls: type[Section], value: Any, path: Path, notes: Notes, **given: Any) -> Any:
    """Return the section, or None if anything is wrong or open."""
    values, whole = read_words(cls, value, path, notes)
    if not whole:
        return None
    before = notes.objections
    record = cls(**values, **given)
    record.rules(notes, path)
    return record if notes.objections == before else None


def read_words(
    cls: type[Section], value: Any, path: Path, notes: Notes
) -> tuple[dict[str, Any], bool]:
    """Return the words that are fine, by field, and whether all are."""
    if isinstance(value, str) and cls.short is not None:
        value = {cls.short: value}
    if not isinstance(value, dict):
        wrong(value, "mapping", path, notes)
        return {}, False
    before, words = notes.objections, cls.words()
    known = {said for w in words.values() for said in (w.spelled, *w.formerly)}
    for strange in value:
        if strange not in known:
            notes.unknown(strange, words, (*path, strange), "entry", _HOMES.get(strange, ""))
    values: dict[str, Any] = {}
    whole = True
    for w in words.values():
        written = w.written(value)
        for again in written[1:]:
            notes.error("OS303", f"`{again}` is a former name of `{w.spelled}`", (*path, again),
                        part="key", label="written twice", help=f"keep `{written[0]}`.")  # fmt: skip
        if written:
            found = _read_word(w, value[written[0]], (*path, written[0]), notes)
            whole = whole and found is not HOLE
            values |= {} if found is HOLE else {w.field: found}
        elif w.info.is_required():
            missing(w, value, words, path, notes)
    _some_of(cls, value, path, notes)
    values = {name: found for name, found in values.items() if found is not HOLE}
    for error in [e for e in errors_of(cls, values) if e["loc"][0] in values]:
        _refuse(cls, error, value, path, notes)
        values.pop(error["loc"][0], None)
    return values, whole and notes.objections == before


def _read_word(w: Word, value: Any, path: Path, notes: Notes) -> Any:
    """Return a word's value for pydantic's check."""
    if value is HOLE:
        return HOLE
    if w.reader is not None or w.section is not None:
        read = w.reader.read if w.reader else lambda *a: read_section(w.section, *a)  # type: ignore[arg-type]
        found = read(value, path, notes)
        return HOLE if found is None else found
    if w.info.annotation is Any:
        return value
    if value is None:
        wrong(value, w.kind, path, notes)
    return HOLE if value is None or hole_in(value) else frozen(value)


def wrong(value: Any, kind: str | tuple[str, str], path: Path, notes: Notes) -> None:
    """Report a value of another kind than what is expected."""
    expected, advice = VALUE_KINDS[kind] if isinstance(kind, str) else kind
    if value is HOLE:
        return
    one_of = expected.removeprefix("one of ")
    near = isinstance(value, str) and expected != one_of and _meant(value, one_of.split(", "))
    notes.error("OS304", f"`{path[-1] if path else 'spec'}` must be {expected}", path,
                label=f"got {value_text(value)}", help=near or advice)  # fmt: skip


def _meant(value: str, words: list[str]) -> str:
    """Return advice to write the nearest word."""
    if len(value) <= _SHORT:
        words = [one for one in words if sorted(one) == sorted(value) or len(one) > _SHORT]
    return suggest(value, words)


def missing(w: Word, value: Any, words: Mapping[str, Word], path: Path, notes: Notes) -> None:
    """Report a missing word, unless a misspelt one was reported."""
    if not misspelt(w.spelled, (strange for strange in value if strange not in words)):
        notes.error("OS305", f"`{w.spelled}` is missing", (*path, f"?{w.spelled}"), part="key",
                    label=f"no `{w.spelled}` here",
                    help=f"add `{w.spelled}:` ({w.kind[0]}).")  # fmt: skip


def _some_of(cls: type[Section], value: Mapping[str, Any], path: Path, notes: Notes) -> None:
    if cls.some_of is None:
        return
    how, names, refusal = cls.some_of
    there = len([name for name in names if name in value])
    if there == 0 or (how == "oneOf" and there > 1):
        refusal.report(path, notes, "none of them")


def _refuse(
    cls: type[Section], error: Any, value: Mapping[str, Any], path: Path, notes: Notes
) -> None:
    """Report an error of pydantic in the words of the declaration."""
    w = next(w for w in cls.words().values() if w.field == error["loc"][0])
    spelled = w.written(value)[0]
    place, given = (*path, spelled), value[spelled]
    kinds = ("tuple_type", "string_type", "int_type", "float_type", "bool_type", "literal_error")
    inside = len(error["loc"]) > 1 and isinstance(given, list)
    if w.refusal is None or (error["type"] in kinds and not inside):
        wrong(given, w.kind, place, notes)
        return
    if w.refusal.within and inside:
        place, given = (*place, error["loc"][1]), error["input"]
    w.refusal.report(place, notes, f"got {value_text(given)}")


def named_sections(section: type[Section], empty: Refusal | None) -> ValueReader:
    """Declare named sections, and the refusal of an empty mapping."""

    def read(value: Any, path: Path, notes: Notes) -> dict[str, Any] | None:
        """Return the sections by name, None for a wrong one."""
        if not isinstance(value, dict):
            wrong(value, "mapping", path, notes)
            return None
        if not value and empty is not None:
            empty.report(path, notes, f"got {value_text(value)}")
        given = {"name": ""} if "name" in section.model_fields else {}
        return {
            name: read_section(section, inner, (*path, name), notes, **dict.fromkeys(given, name))
            for name, inner in value.items()
        }

    def schema() -> Schema:
        size: Schema = {"type": ["object", "null"]} if empty is None else {"minProperties": 1}
        return {"type": "object", "additionalProperties": section.schema_of()} | size

    return ValueReader(read, schema, section)
