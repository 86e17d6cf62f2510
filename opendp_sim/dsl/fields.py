"""Reading a mapping of a program: known words, typed values, one finding for each that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opendp_sim.dsl.diagnostic import Notes, Path, nearest

__all__ = ["HOLE", "MISSING", "Fields", "Kind", "boolean", "choice", "integer", "listing", "mapping",
           "number", "text"]  # fmt: skip


class _Marker:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


HOLE = _Marker("a hole that was reported already")
MISSING = _Marker("nothing")

Kind = tuple[str, Callable[[Any], bool], str]
"""(what is expected, whether a value is it, advice)."""

text: Kind = ("text", lambda v: isinstance(v, str) and bool(v), "write a word, in quotes if needed")
integer: Kind = (
    "a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool),
    "write digits, without a point",
)  # fmt: skip
number: Kind = (
    "a number", lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "write for example 1.0 or 1.0e-6",
)  # fmt: skip
boolean: Kind = (
    "true or false", lambda v: isinstance(v, bool),
    "write true or false: in YAML 1.2 yes, no, on and off are plain words",
)  # fmt: skip
mapping: Kind = ("a mapping", lambda v: isinstance(v, dict), "write entries as `name: value`")
listing: Kind = ("a list", lambda v: isinstance(v, list), "write [a, b], or one `- item` a line")


def choice(*options: str) -> Kind:
    """A word out of ``options``."""
    listed = ", ".join(options)
    return f"one of {listed}", lambda v: v in options, f"use one of {listed}"


def shown(value: Any) -> str:
    """Describe a public value of a program, shortly."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    return repr(value) if len(repr(value)) < 60 else type(value).__name__


class Fields:
    """One mapping of the program."""

    def __init__(self, value: Any, path: Path, notes: Notes, known: Iterable[str]) -> None:
        self.path, self.notes, self.known = path, notes, tuple(known)
        self.usable = isinstance(value, dict)
        self.value: Mapping[str, Any] = value if isinstance(value, dict) else {}
        if not self.usable and value is not HOLE:
            expected, _, advice = mapping
            notes.error(
                "OS304", f"`{path[-1] if path else 'spec'}` must be {expected}", path,
                label=f"got {shown(value)}", help=advice,
            )  # fmt: skip
        for word in self.value:
            if word not in self.known:
                notes.unknown(word, self.known, (*path, word), "entry")

    def take(self, name: str, kind: Kind, default: Any = MISSING) -> Any:
        """Return the value, ``default`` when it is absent, or HOLE when it is wrong (reported)."""
        value = self.value.get(name, MISSING)
        if value is MISSING:
            if default is MISSING and self.usable:
                self.missing(name, kind[0])
            return HOLE if default is MISSING else default
        return self.typed(value, kind, (*self.path, name), name)

    def typed(self, value: Any, kind: Kind, path: Path, name: str) -> Any:
        """Return ``value`` if it is of ``kind``, else report it and return HOLE."""
        expected, fits, advice = kind
        if value is HOLE or fits(value):
            return value
        near = nearest(value, expected.removeprefix("one of ").split(", ")) if (
            isinstance(value, str) and expected.startswith("one of")
        ) else ""  # fmt: skip
        self.notes.error(
            "OS304", f"`{name}` must be {expected}", path, label=f"got {shown(value)}",
            help=near or advice,
        )  # fmt: skip
        return HOLE

    def missing(self, name: str, expected: str) -> None:
        """Report that ``name`` is not there, unless it is there misspelt (reported as unknown)."""
        strange = [word for word in self.value if word not in self.known]
        if any(nearest(str(word), [name]) for word in strange):
            return
        self.notes.error(
            "OS305", f"`{name}` is missing", (*self.path, f"?{name}"),
            label=f"no `{name}` here", part="key", help=f"add `{name}:` ({expected}).",
        )  # fmt: skip

    def entries(self) -> list[tuple[str, Any, Path]]:
        """Return (name, value, path) of every entry: for mappings whose keys are free names."""
        return [(name, value, (*self.path, name)) for name, value in self.value.items()]
