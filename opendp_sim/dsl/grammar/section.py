"""Define sections of a spec.

A section is a record whose fields are its words, declared once. From the declaration follow reading
(every finding in one go, at its place), defaults, refusals with the nearest word, the JSON Schema, the
canonical form, the signatures of the builder and the pages of ``explain``. What pydantic can check of
a value, pydantic checks; the sentences are ours.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from opendp_sim.core.errors import repr_text
from opendp_sim.dsl.grammar.pydantic_schema import Schema, inlined, without_null
from opendp_sim.dsl.text.diagnostic import FORMER, KeyOrValue, Notes, Path


class _Hole:
    def __repr__(self) -> str:
        return "a hole that was reported already"


HOLE = _Hole()


def hole_in(value: Any) -> bool:
    """Say whether a hole is left anywhere inside ``value``."""
    if isinstance(value, dict):
        return any(map(hole_in, value.values()))
    return any(map(hole_in, value)) if isinstance(value, list) else value is HOLE


def value_text(value: Any) -> str:
    """Describe a public value of a program, shortly."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    text = repr_text(value)
    return text if len(text) < 60 else type(value).__name__


# --- declaring ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refuse a value of the right type."""

    title: str
    help: str
    code: str = "OS304"
    label: str | None = None
    within: bool = False
    """Whether the entry of a list is pointed at, not the list."""
    part: KeyOrValue = "value"

    def report(self, path: Path, notes: Notes, got: str) -> None:
        """Add it to the findings, labelled ``got`` unless otherwise."""
        title = self.title.replace("{name}", str(path[-1]))
        label = self.label or got
        notes.error(self.code, title, path, part=self.part, label=label, help=self.help)


@dataclass(frozen=True)
class ValueReader:
    """Read a value that is not plain, None if wrong and reported."""

    read: Callable[[Any, Path, Notes], Any]
    schema: Callable[[], Schema]
    about: type | None = None
    """What its docstring explains."""
    expected: str = "mapping"

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        """Accept the value, already a record of ours."""
        del source, handler
        return core_schema.any_schema()

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Schema:
        """The declared schema."""
        del schema, handler
        return self.schema()


@dataclass(frozen=True)
class _About:
    spelled: str | None = None
    formerly: tuple[str, ...] = ()
    refusal: Refusal | None = None

    def __call__(self, schema: Schema) -> None:
        """Add nothing to the JSON Schema, where pydantic calls an extra."""


def word(
    text: str,
    default: Any = ...,
    *,
    spelled: str | None = None,
    formerly: tuple[str, ...] = (),
    refusal: Refusal | None = None,
    **bounds: Any,
) -> Any:
    """Declare a word.

    Args:
        text: what it means.
        default: its value where it is left out; required without one.
        spelled: the word, where Python needs another name.
        formerly: older spellings, which still read.
        refusal: what is said of a value of the right type that ``bounds`` refuse.
        bounds: pydantic's constraints.
    """
    about: Any = _About(spelled, formerly, refusal)
    return Field(default, description=text, json_schema_extra=about, **bounds)


def not_a_word() -> Any:
    """Declare a field that is no word of the section."""
    return Field(exclude=True)


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a section, as everything that shows it needs it."""

    spelled: str
    field: str
    info: FieldInfo
    reader: ValueReader | None
    section: type[Section] | None
    formerly: tuple[str, ...]
    refusal: Refusal | None

    def written(self, value: Mapping[str, Any]) -> list[str]:
        """Return the spellings of this word that stand in ``value``."""
        return [said for said in (self.spelled, *self.formerly) if said in value]

    @property
    def kind(self) -> tuple[str, str]:
        """(what is expected, advice)."""
        if self.reader is not None:
            return VALUE_KINDS[self.reader.expected]
        return expected_of(self.info.annotation)


VALUE_KINDS = {
    "str": ("text", "write a word, in quotes if needed"),
    "int": ("a whole number", "write digits, without a point"),
    "float": ("a number", "write for example 1.0 or 1.0e-6"),
    "bool": (
        "true or false",
        "write true or false: in YAML 1.2 yes, no, on and off are plain words",
    ),
    "mapping": ("a mapping", "write entries as `name: value`"),
    "list": ("a list", "write [a, b], or one `- item` a line"),
}


def expected_of(annotation: Any) -> tuple[str, str]:
    """Return what a type expects in words, and how to write it."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return expected_of(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return expected_of(get_args(annotation)[0])
    if origin is Literal:
        listed = ", ".join(map(str, get_args(annotation)))
        return f"one of {listed}", f"use one of {listed}"
    if origin in (tuple, list):
        return VALUE_KINDS["list"]
    return VALUE_KINDS.get(getattr(annotation, "__name__", ""), VALUE_KINDS["mapping"])


class Section(BaseModel):
    """Define the base of sections.

    The docstring of each is its page of ``explain``.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True, defer_build=True
    )
    short: ClassVar[str | None] = None
    """The word that a bare text stands for."""
    some_of: ClassVar[tuple[Literal["anyOf", "oneOf"], tuple[str, ...], Refusal] | None] = None
    """Words of which there is at least one, or exactly one, and what is said otherwise."""
    template: ClassVar[str] = ""
    """What ``init`` writes of this section, which its page shows as the example."""

    @classmethod
    def words(cls) -> dict[str, Word]:
        """Return the words by their spelling."""
        if "_words" not in cls.__dict__:
            cls._words = {w.spelled: w for w in _declared(cls)}
            FORMER.update({w.spelled: w.formerly for w in cls._words.values() if w.formerly})
        return cls._words

    _words: ClassVar[dict[str, Word]]

    def rules(self, notes: Notes, path: Path) -> None:
        """Report what is wrong between words that are fine by themselves."""

    def plain(self) -> Any:
        """Return the canonical form, every word with a value, defaults included."""
        values = {w.spelled: getattr(self, w.field) for w in self.words().values()}
        return {name: plain_of(v) for name, v in values.items() if v is not None and v != ()}

    @classmethod
    def schema_of(cls) -> Schema:
        """Return the JSON Schema."""
        found = inlined(cls.model_json_schema())
        properties: Schema = {}
        twice: list[Schema] = []
        for w in cls.words().values():
            inner = without_null(found["properties"][w.field])
            if w.section is not None:
                inner = w.section.schema_of() | {"description": w.info.description}
            properties[w.spelled] = inner
            properties |= {old: inner | {"deprecated": True} for old in w.formerly}
            twice += [{"required": list(two)} for two in combinations((w.spelled, *w.formerly), 2)]
        needed = [w.spelled for w in cls.words().values() if w.info.is_required()]
        out: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
        out |= {"required": needed} if needed else {}
        out |= {"not": {"anyOf": twice}} if twice else {}
        if cls.some_of is not None:
            out[cls.some_of[0]] = [{"required": [name]} for name in cls.some_of[1]]
        return out if cls.short is None else {"anyOf": [properties[cls.short], out]}


def _declared(cls: type[Section]) -> Iterator[Word]:
    for field, info in cls.model_fields.items():
        if info.exclude:
            continue
        about: Any = info.json_schema_extra or _About()
        readers = [m for m in info.metadata if isinstance(m, ValueReader)]
        kinds = [a for a in (info.annotation, *get_args(info.annotation)) if isinstance(a, type)]
        inner = next((a for a in kinds if not readers and issubclass(a, Section)), None)
        yield Word(
            about.spelled or field,
            field,
            info,
            next(iter(readers), None),
            inner,
            about.formerly,
            about.refusal,
        )


def plain_of(value: Any) -> Any:
    """Return plain data of a value, by ``plain`` where it has one."""
    if hasattr(value, "plain"):
        return value.plain()
    if hasattr(value, "spec"):  # a mechanism
        return {value.key: value.spec()}
    if isinstance(value, Mapping):
        return {name: plain_of(inner) for name, inner in value.items()}
    return [plain_of(inner) for inner in value] if isinstance(value, list | tuple) else value
