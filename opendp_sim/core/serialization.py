"""Serialize mechanisms, partials, domains and metrics for OpenDP.

The texts of ``dp.serialize``. An object carries a *note*: the record that it was made of and the space
that it was bound to, not its functions. ``core/constructors.py`` makes the object again from the note,
by names that are looked up among registered mechanisms and known descriptors; nothing else in a note
is imported or called. What would not come back equal is refused when it is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import Any, Protocol, get_type_hints

from pydantic import ConfigDict, TypeAdapter

from opendp_sim.core.claims import SketchBlock
from opendp_sim.core.errors import ParameterError, SimError
from opendp_sim.core.mechanism import Mechanism, lookup
from opendp_sim.core.space import Descriptor, Domain, Metric

DOOR = "opendp_sim"
"""The name under which OpenDP's reader, which looks in its own package, finds our constructors."""
_CLASS = "class"
_FRACTION = "fraction"
_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)


class Note(Protocol):
    """What an object was made of."""

    def call(self) -> tuple[str, dict[str, Any]]:
        """Return the constructor's name and arguments."""


def as_call(note: Note) -> dict[str, Any]:
    """Return a note in OpenDP's form of constructor calls."""
    function, arguments = note.call()
    return {"__function__": function, "__module__": DOOR, "__kwargs__": arguments}


@dataclass(frozen=True)
class BoundNote:
    """A mechanism on a space."""

    mechanism: Mechanism
    domain: Domain
    metric: Metric
    norm: str | None

    def call(self) -> tuple[str, dict[str, Any]]:
        """Return the constructor, and the record and space as plain data."""
        space = {"input_domain": to_plain(self.domain), "input_metric": to_plain(self.metric)}
        return "make", _record(self.mechanism, self.norm) | space


@dataclass(frozen=True)
class CastNote:
    """Name a space of OpenDP's that is read as ours.

    Its domain is ours where there is an equal one.
    """

    domain: Any
    metric: Any
    reads: frozenset[str] | None

    def call(self) -> tuple[str, dict[str, Any]]:
        """Return the constructor, the space, and the columns in it."""
        domain = to_plain(self.domain) if isinstance(self.domain, Domain) else self.domain
        space = {"input_domain": domain, "input_metric": self.metric}
        return "cast", {**space, "reads": None if self.reads is None else sorted(self.reads)}


@dataclass(frozen=True)
class Unbound:
    """A mechanism without a space, as ``then_<key>`` returns it."""

    mechanism: Mechanism
    norm: str | None

    def call(self) -> tuple[str, dict[str, Any]]:
        """Return the partial constructor, and the record as plain data."""
        return "then", _record(self.mechanism, self.norm)


@dataclass(frozen=True)
class Unwritten:
    """Refuse to write a mechanism out of its range."""

    where: str

    def call(self) -> tuple[str, dict[str, Any]]:
        """Refuse to be written (OS101)."""
        raise cannot_write(f"`{self.where}` at the end of its range")


@dataclass(frozen=True)
class Chained:
    """Two partial constructors, or one and what follows it."""

    first: Any
    second: Any

    def call(self) -> tuple[str, dict[str, Any]]:
        """Return the function that chains, and both parts, which OpenDP writes."""
        return "chain", {"first": self.first, "second": self.second}


@dataclass(frozen=True)
class SpaceNote:
    """A domain or a metric that OpenDP knows by our identifier alone."""

    descriptor: Descriptor

    def call(self) -> tuple[str, dict[str, Any]]:
        """Return the function that makes it, and the descriptor as plain data."""
        return "space", {"descriptor": to_plain(self.descriptor)}


def _record(mechanism: Mechanism, norm: str | None) -> dict[str, Any]:
    """Return key and parameters of a record as plain data."""
    try:
        params = json.loads(json.dumps(mechanism.spec()))
        same = bool(lookup(mechanism.key).from_spec(params) == mechanism)
    except (SimError, TypeError, ValueError):
        same = False
    if not same:
        raise cannot_write(f"the record of `{mechanism.key}`")
    return {"key": mechanism.key, "params": params, "norm": norm}


def cannot_write(what: str) -> ParameterError:
    """Return the refusal of an object without an exact text."""
    return ParameterError(
        "OS101", "serialize", expected="an object that comes back from its text as it is", got=what,
        hint="serialize its parts, or write the program as a spec: `opendp-sim explain spec`.",
    )  # fmt: skip


# --- descriptors ----------------------------------------------------------------------------------


def to_plain(value: Any) -> Any:
    """Return a descriptor as plain data that reads back to it."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is tuple:
        return [to_plain(one) for one in value]
    if type(value) is Fraction:
        return {_FRACTION: str(value)}
    if is_dataclass(value) and _known().get(type(value).__name__) is type(value):
        held = {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
        return {_CLASS: type(value).__name__, **held}
    raise cannot_write(f"a {type(value).__name__}")


def from_plain(value: Any) -> Any:
    """Return what ``to_plain`` wrote.

    Raises:
        ParameterError (OS101): a class that this process does not know, fields that are not its own, or
            values of another type than the field's; no number that is none.
    """
    if isinstance(value, list):
        return tuple(map(from_plain, value))
    if not isinstance(value, dict) and value == value:  # noqa: PLR0124 - NaN
        return value
    with suppress(KeyError, TypeError, ValueError, ArithmeticError):
        if set(value) == {_FRACTION}:
            return Fraction(value[_FRACTION])
        cls = _known()[value[_CLASS]]
        held = {name: from_plain(one) for name, one in value.items() if name != _CLASS}
        types = get_type_hints(cls)
        for name, one in held.items():
            TypeAdapter(types[name], config=_STRICT).validate_python(one)
        return cls(**held)
    raise ParameterError(
        "OS101", "deserialize", expected="a domain or metric of this package or of a loaded plugin",
        got="another",
        hint="install the plugin that made it, and the version of opendp_sim that wrote it.",
    )  # fmt: skip


def _known() -> dict[str, type]:
    """Return the classes of descriptors by unique name."""
    found: dict[str, type] = {SketchBlock.__name__: SketchBlock}
    twice: set[str] = set()
    for cls in _below(Descriptor):
        if found.setdefault(cls.__name__, cls) is not cls:
            twice.add(cls.__name__)
    return {name: cls for name, cls in found.items() if name not in twice}


def _below(cls: type) -> Iterator[type]:
    each: type
    for each in cls.__subclasses__():
        yield each
        yield from _below(each)
