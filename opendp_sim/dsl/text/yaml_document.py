"""Read a YAML document with every key's place.

And every value's. Built from the parser's events, never from constructed objects: anchors, aliases,
merges, tags, duplicate keys, oversize and deep documents are refused here, before anything is made of
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from opendp_sim.core.system.file_kinds import FileKind, kind_of_file
from opendp_sim.core.system.regular_files import ZERO, decode_text, first_odd, no_text, regular
from opendp_sim.dsl.text.diagnostic import FORMER, Diagnostic, KeyOrValue, Notes, Path

# --------------------------------------------------------------------------------------------------
# Scalars of YAML 1.2's core schema: what a plain word of a spec means.
#
# ``yes``, ``no``, ``on``, ``off`` are words, ``012`` is twelve and ``1e-6`` is a number, as YAML 1.2
# says and YAML 1.1 did not.

_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE, _FALSE = {"true", "True", "TRUE"}, {"false", "False", "FALSE"}
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL, _HEX = re.compile(r"0o[0-7]+"), re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"([-+]?)\.(inf|Inf|INF)")
_NAN = {".nan", ".NaN", ".NAN"}
_LONGEST = 400
"""Digits of a number: longer ones are words, so that nothing is slow to read."""


def plain_scalar(text: str) -> Any:
    """Return an unquoted scalar as None, bool, int, float or text."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if len(text) <= _LONGEST:
        number = _number(text)
        if number is not None:
            return number
    return text


def _number(text: str) -> int | float | None:
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text, 0)
    if _HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if found := _INFINITE.fullmatch(text):
        return float(f"{found[1]}inf")
    return float("nan") if text in _NAN else None


# --------------------------------------------------------------------------------------------------

MAX_BYTES, MAX_DEPTH, MAX_NODES = 2**20, 40, 50_000
_HOLE, _STAND_IN = "???", "\ue000\ue000\ue000"
"""A hole is no YAML word inside brackets, so a word of equal length stands in for it."""


@dataclass(frozen=True, slots=True)
class Span:
    """Locate a piece of text by line, column and length, from 1."""

    line: int
    column: int
    length: int


@dataclass
class Document:
    """Plain data and the place of each of its pieces."""

    name: str
    lines: list[str]
    data: Any = None
    spans: dict[tuple[Path, KeyOrValue], Span] = field(default_factory=dict)

    def locate(self, path: Path, part: KeyOrValue = "value") -> Span:
        """Return the place of ``path`` or its nearest ancestor."""
        path = self._as_written(path)
        while True:
            for wanted in (part, "value", "key"):
                if span := self.spans.get((path, wanted)):
                    return span
            if not path:
                return Span(1, 1, 1)
            path, part = path[:-1], "key"

    def _as_written(self, path: Path) -> Path:
        """Return ``path`` with the former names that this document uses."""
        written: Path = ()
        for name in path:
            said = (name, *FORMER.get(name, ()))
            written += (next((n for n in said if ((*written, n), "key") in self.spans), name),)
        return written

    def order(self, finding: Diagnostic) -> tuple[int, int]:
        """Return a finding's sort key, its place."""
        span = self.locate(finding.path, finding.part)
        return span.line, span.column


_OTHERS = frozenset({"certificate", "audit", "plan", "table", "empty"})
"""Files that are text and no spec: a table's first lines may be private, so none of it is kept."""
_READ: dict[str, tuple[Event, ...]] = {}
_SHORT, _MOST_READ = 10_000, 16
"""The last short texts' events are kept: a spec is read again for each plan, session and `verify`."""


class _Stop(Exception):  # noqa: N818 - control flow inside this module
    """The document cannot be read further."""


def read_yaml(path: File, notes: Notes) -> Document:
    """Read a spec file, with failures as findings in ``notes``."""
    name = str(path)
    try:
        with regular(path).open("rb") as stream:
            raw = stream.read(4 * MAX_BYTES + 1)  # a character has four bytes at most
    except (OSError, ValueError):
        found = kind_of_file(path)
        then = f"{found.then}; " if found.then else "check the path; "
        notes.error(
            "OS601", f"cannot read `{name}`", (), label=found.said,
            help=f"{then}`opendp-sim init FILE` writes a template of a spec.",
        )  # fmt: skip
        return Document(name, [])
    if len(raw) > 4 * MAX_BYTES:
        document = Document(name, [])
        _too_large(notes)
        return document
    text, found = decode_text(raw), kind_of_file(path)
    if text is not None and found.name in _OTHERS:
        notes.error("OS304", f"`{name}` is no spec", (), label=found.said,
                    help=_instead(found))  # fmt: skip
        return Document(name, [])
    if text is None:  # it may be private: no line of it is kept, so that no message quotes one
        why = no_text(raw) if found.name == "bytes" else found.said
        zero = why == ZERO
        notes.error("OS302", "the spec is no text" if zero else "the spec is not UTF-8 text", (),
                    label=f"{why}, of which nothing is shown",
                    help="name a spec, or remove it." if zero else _instead(found))  # fmt: skip
        document = Document(name, [])
        line, column = first_odd(raw)
        document.spans[(), "value"] = Span(line, column, 1)
        return document
    return parse(text, name, notes)


def _instead(found: FileKind) -> str:
    """Return the file to name instead, and this file's purpose."""
    return f"name a spec{f'; {found.then}' if found.then else ', or save it as UTF-8'}."


def parse(text: str, name: str, notes: Notes) -> Document:
    """Read the text of a spec."""
    if len(text) > MAX_BYTES:
        _too_large(notes)
        return Document(name, [])
    document = Document(name, text.splitlines())
    try:
        _Builder(document, notes, _events(text)).build()
    except _Stop:
        pass
    except (YAMLError, ValueError) as error:
        _syntax(document, notes, error)
    return document


def _too_large(notes: Notes) -> None:
    notes.error("OS302", "the spec is too large", (), label=f"over {MAX_BYTES} characters",
                help="a spec holds public parameters only; put data in files.")  # fmt: skip


def _events(text: str) -> Iterator[Event]:
    """Return the parser's events; the pure parser, whose marks are exact."""
    if (kept := _READ.get(text)) is not None:  # one look: another thread may drop it
        yield from kept
        return
    seen: list[Event] = []
    for event in YAML(typ="safe", pure=True).parse(text.replace(_HOLE, _STAND_IN)):
        seen.append(event)
        yield event
    if len(text) <= _SHORT:  # it was read to its end, without a fault
        _READ[text] = tuple(seen)
        for oldest in list(_READ)[:-_MOST_READ]:
            _READ.pop(oldest, None)


def _syntax(document: Document, notes: Notes, error: Exception) -> None:
    problem, mark = "not YAML", None
    if isinstance(error, MarkedYAMLError):
        problem, mark = str(error.problem or problem), error.problem_mark or error.context_mark
    where: Path = ("?syntax",)
    if mark is not None:
        line, length = mark.line + 1, 1
        document.spans[where, "value"] = Span(
            min(line, max(len(document.lines), 1)), mark.column + 1, length
        )
    notes.error("OS302", "the spec is not valid YAML 1.2", where, label=problem.splitlines()[0],
                help="check indentation, brackets, quotes and colons near this place.")  # fmt: skip


class _Builder:
    """Turns events into plain data, one recursive descent."""

    def __init__(self, document: Document, notes: Notes, events: Iterator[Event]) -> None:
        self.document, self.notes, self.events = document, notes, iter(events)
        self.nodes = 0

    def build(self) -> None:
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                if event.tags or event.version not in (None, (1, 2), "1.2"):
                    self._refuse(event, (), "a YAML directive", "leave `%` directives out.")
                self.document.data = self._value(next(self.events), (), 0)
                break
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                self._refuse(
                    event, ("?second",), "a second document in one file", "keep one spec a file."
                )

    def _value(self, event: Event, path: Path, depth: int) -> Any:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            self._refuse(
                event,
                path,
                "a document this deep or this long",
                f"at most {MAX_DEPTH} levels and {MAX_NODES:,} values.",
            )
            raise _Stop
        self._mark(event, path, "value")
        self._no_magic(event, path)
        if isinstance(event, ScalarEvent):
            value = event.value.replace(_STAND_IN, _HOLE)
            return plain_scalar(value) if event.style in (None, "") else value
        if isinstance(event, MappingStartEvent):
            return self._mapping(path, depth)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(path, depth)
        return None

    def _mapping(self, path: Path, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            if not isinstance(event, ScalarEvent):
                self._refuse(
                    event,
                    (*path, "?key"),
                    "a key that is not a word",
                    "keys are words; values may be lists and mappings.",
                )
                raise _Stop
            key = str(event.value)
            inside = (*path, key)
            if key == "<<" and event.style in (None, ""):
                self._refuse(event, (*path, "?merge"), "a merge key", "write the entries out.")
            first = self.document.spans.get((inside, "key"))
            if key in out:
                self._duplicate(event, (*path, f"?again {key}"), key, first)
                inside = (*path, f"?again {key}")
            self._mark(event, inside, "key")
            self._no_magic(event, inside)
            following = next(self.events)
            value = self._value(following, inside, depth + 1)
            if (
                isinstance(following, ScalarEvent)
                and following.value + (following.style or "") == ""
            ):
                # The parser's place of nothing is the next word, lines below.
                self.document.spans[inside, "value"] = self.document.spans[inside, "key"]
            if key != "<<":
                out.setdefault(key, value)
        self._close(path, event)
        return out

    def _sequence(self, path: Path, depth: int) -> list[Any]:
        out: list[Any] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            out.append(self._value(event, (*path, len(out)), depth + 1))
        self._close(path, event)
        return out

    def _duplicate(self, event: Event, path: Path, key: str, first: Span | None) -> None:
        self._mark(event, path, "key")
        seen = f"; the first is on line {first.line}" if first else ""
        self.notes.error("OS302", f"the key `{key}` is written twice", path, part="key",
                         label=f"again here{seen}", help="keep one of the two.")  # fmt: skip

    def _no_magic(self, event: Event, path: Path) -> None:
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
            self._refuse(
                event,
                path,
                "an anchor or alias",
                "write the value twice, or declare it under `params:`.",
            )
        if str(getattr(event, "tag", None)) not in ("None", "!"):
            self._refuse(event, path, "a tag", "leave `!tag` out; types come from the schema.")

    def _refuse(self, event: Event, path: Path, what: str, advice: str) -> None:
        self._mark(event, path, "value")
        self.notes.error(
            "OS302", f"specs refuse {what}", path, label="not allowed in a spec", help=advice
        )

    def _mark(self, event: Event, path: Path, part: KeyOrValue) -> None:
        start, end = event.start_mark, event.end_mark
        same = end.line == start.line
        length = end.column - start.column if same else self._rest(start.line, start.column)
        self.document.spans[path, part] = Span(start.line + 1, start.column + 1, max(length, 1))

    def _close(self, path: Path, event: Event) -> None:
        """Widen a flow collection's span to its closing bracket."""
        span, end = self.document.spans[path, "value"], event.end_mark
        if end.line + 1 == span.line and end.column + 1 > span.column:
            width = end.column + 1 - span.column
            self.document.spans[path, "value"] = Span(span.line, span.column, width)

    def _rest(self, line: int, column: int) -> int:
        text = self.document.lines[line] if line < len(self.document.lines) else ""
        return max(len(text.rstrip()) - column, 1)
