"""Define mechanisms, public parameters with a proved claim on a space."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from opendp_sim.core.about import errors_of, parameters_of
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.claims import Accuracy, Claim
from opendp_sim.core.errors import Given, InternalError, ParameterError, array_like
from opendp_sim.core.space import Domain, Metric


@dataclass(frozen=True, slots=True)
class Proof:
    """Where the claim is proved."""

    key: str
    """A short reference to the literature, or ``own`` for a proof beside the code."""
    where: str
    """Theorem, lemma or algorithm number."""


def param(
    text: str, *, symbol: str, unit: str, hint: str, default: Any = ..., **bounds: Any
) -> FieldInfo:
    """Declare a parameter's meaning, proof symbol, unit, advice, range and default."""
    extra: JsonDict = {"symbol": symbol, "unit": unit, "hint": hint}
    return Field(default, description=text, json_schema_extra=extra, **bounds)


LATER = object()
"""Marks a parameter that came after its mechanism's first form: ``spec()`` leaves it out at its default.

So a program, its hash, and the ledgers, stores and streams that name it stay those of before. The default
means what the mechanism did without it, and never changes.
"""

MISSING, TOO_FEW = "nothing", "too few entries"
"""What came where a parameter, or an entry of a list, is missing: words of ours, which are not quoted."""


_QUOTED = 4
"""Entries of a list that a message repeats at most."""


class _Record(BaseModel):
    """An immutable, serialisable record whose refusals are coded and name the parameter."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)
    key: ClassVar[str]

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**{name: frozen(value) for name, value in data.items()})
        except ValidationError as error:
            # An unknown name first: a misspelt one is also missing under its right name.
            found = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
            raise self._explain(found[0], data) from None

    @classmethod
    def problems(cls, params: dict[str, Any]) -> list[ParameterError]:
        """Return every refusal of ``params``, where constructing would raise the first only."""
        try:
            found = errors_of(cls, {name: frozen(value) for name, value in params.items()})
        except ParameterError as error:
            return [error]
        return [cls._explain(each, params) for each in found]

    @classmethod
    def _explain(cls, first: Any, given: Mapping[str, Any]) -> ParameterError:
        name = str(first["loc"][0]) if first["loc"] else ""
        if name and name not in cls.model_fields:
            return cls.unknown(name, cls.model_fields)
        if not name:
            return ParameterError(
                "OS102", cls.key, expected="parameters that go together", got=first["msg"],
                hint=f"see `opendp-sim explain {cls.key}`.",
            )  # fmt: skip
        got = Given(first["input"]) if isinstance(first["input"], str) else first["input"]
        several = isinstance(got, list | tuple)
        if array_like(given.get(name)) or (several and len(got) > _QUOTED):
            got = f"a {type(given.get(name, got)).__name__}"  # which may be of private rows
        if first["type"] == "missing":
            got = MISSING if len(first["loc"]) == 1 else TOO_FEW
        about = parameters_of(cls)[name]
        found = ParameterError(
            "OS101", f"{cls.key}.{name}", expected=about.range, got=got, hint=about.hint
        )
        found.inside = first["loc"][1:]
        return found

    @classmethod
    def unknown(cls, name: str, words: Iterable[str]) -> ParameterError:
        """Return the refusal of a parameter that is none of ``words``."""
        known = list(words)
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"see `opendp-sim explain {cls.key}`."
        expected = f"one of {', '.join(known)}" if known else "no parameters"
        return ParameterError("OS101", cls.key, expected=expected, got=name, hint=hint)

    def spec(self) -> dict[str, Any]:
        """Return the canonical JSON form, defaults included but those of ``LATER`` parameters.

        Its bandwidths are of language 1, and marked, so that no door of language 2 converts them again.
        JSON keeps no mark: read it by ``from_spec``, whose record a builder takes as it is.
        """
        found = _marked(self.model_dump(mode="json"))
        for name, default in _later(type(self)):
            if repr(getattr(self, name)) == repr(default):  # -0.0 is another number
                del found[name]
        return found

    @classmethod
    def from_spec(cls, params: dict[str, Any]) -> Any:
        """Build a record from ``spec()``, of a JSON file too."""
        return cls(**params)


@cache
def _later(cls: type[_Record]) -> list[tuple[str, Any]]:
    """Return the names and defaults of a record's ``LATER`` parameters."""
    fields = cls.model_fields.items()
    return [(name, info.default) for name, info in fields if LATER in info.metadata]


class CanonicalBandwidth(float):
    """Mark a bandwidth of language 1 in a record's own form."""


def _marked(value: Any, name: str = "") -> Any:
    """Return a JSON form with its bandwidths marked."""
    if isinstance(value, dict):
        return {key: _marked(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_marked(inner) for inner in value]
    return CanonicalBandwidth(value) if name == "bandwidth" and type(value) is float else value


def frozen(value: Any) -> Any:
    """Return numbers as Python's and lists as tuples."""
    value = python_value(value)
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


class Option(_Record):
    """Describe one record to choose for a parameter, written ``{key: {params}}``."""


class one_of:  # noqa: N801 - reads as a constraint, like pydantic's own
    """Metadata of a parameter that is exactly one of several ``Option`` records.

    Used as ``family: Annotated[Family, one_of(*FAMILIES), param(...)]``. In a spec it is written
    ``{key: {parameters}}``, or just ``key`` when all parameters have defaults.
    """

    def __init__(self, *options: type[Option]) -> None:
        self.known = {option.key: option for option in options}

    def parse(self, value: Any, name: str | None = None) -> Option:
        """Return the record for ``value`` of the parameter ``name``."""
        if isinstance(value, tuple(self.known.values())):
            return cast("Option", value)
        if isinstance(value, str):
            self._refuse_bare(value, name or "it")
            value = {value: {}}
        if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in self.known:
            raise ValueError(f"expected one of {', '.join(self.known)}")
        key, params = next(iter(value.items()))
        if not isinstance(params, dict | None):
            raise ValueError("parameters are a mapping")  # noqa: TRY004 - pydantic's protocol
        return self.known[key](**(params or {}))

    def _refuse_bare(self, key: str, name: str) -> None:
        """Refuse a bare name whose option needs parameters."""
        fields = self.known[key].model_fields if key in self.known else {}
        needed = [each for each, info in fields.items() if info.is_required()]
        if needed:
            inside = ", ".join(f"{each}: ..." for each in needed)
            raise ParameterError(
                "OS101", key, expected=f"a name with its parameters ({', '.join(needed)})", got=key,
                hint=f"write {name}: {{{key}: {{{inside}}}}}",
            )  # fmt: skip

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Parse with ``parse``; dump as ``{key: {parameters}}``."""
        del source, handler
        return core_schema.with_info_plain_validator_function(
            lambda value, info: self.parse(value, info.field_name),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: {value.key: value.spec()}
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema of an object with one key."""
        del schema, handler
        forms: list[dict[str, Any]] = []
        for key, option in self.known.items():
            inner = option.model_json_schema()
            forms.append(
                {
                    "type": "object",
                    "properties": {key: inner},
                    "required": [key],
                    "additionalProperties": False,
                }
            )
            if not inner.get("required"):
                forms.append({"const": key})
        return {"oneOf": forms}


class Mechanism(_Record):
    """Base of every mechanism."""

    in_short: ClassVar[str] = ""
    """What it does, for readers of a report; left out where the docstring's first sentence is plain."""
    source: ClassVar[Proof]
    room: ClassVar[Literal["rows", "sketches", "measurements", "queries"]]
    offers: ClassVar[tuple[str, ...]] = ()
    """What can be asked of a release of this sketch, with some parameters: see ``capabilities.py``."""
    formerly: ClassVar[tuple[str, ...]] = ()
    """Keys under which older specs name this mechanism; they still read."""
    asks_for: ClassVar[tuple[str, ...]] = ()
    """Which of these this query asks a release for: the parameters or the release decide which one."""
    by_class: ClassVar[bool] = False
    """Whether this query chooses among the classes of a release."""

    stated_errors: ClassVar[Mapping[str, Accuracy]] = {}
    """How facts of a release's claim (``expected``) state its error, the most telling first."""

    any_units: ClassVar[bool] = False
    """Whether it takes every column by its own bounds, so that the units of columns do not matter."""

    @abstractmethod
    def bind(self, domain: Domain, metric: Metric) -> Claim:
        """Check the space, then state the claim; refuse with a ``SpaceError``."""


M = TypeVar("M", bound=type[Mechanism])
REGISTRY: dict[str, type[Mechanism]] = {}
ENTRY_POINTS = "opendp_sim.mechanisms"
"""Entry-point group for third parties: each entry loads a module that calls ``register``."""


def register(cls: M) -> M:
    """Enter a mechanism in the catalogue; a key can be taken once."""
    if cls.key in REGISTRY:
        raise InternalError(
            "OS903", cls.key, expected="a free key", got=f"a key taken by {REGISTRY[cls.key]!r}",
            hint="choose another key for the plugin's mechanism.",
        )  # fmt: skip
    REGISTRY[cls.key] = cls
    return cls


def current_key(key: str) -> str:
    """Return today's key for a former one, any other unchanged."""
    if key in REGISTRY:
        return key
    return next((name for name, cls in REGISTRY.items() if key in cls.formerly), key)


def lookup(key: str) -> Any:
    """Return the mechanism of a present or former ``key``, or refuse."""
    key = current_key(key)
    if key in REGISTRY:
        return REGISTRY[key]
    near = get_close_matches(key, REGISTRY, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "see `opendp-sim ops`."
    raise ParameterError("OS101", "mechanism", expected="a known mechanism", got=key, hint=hint)


def load_plugins() -> None:
    """Load third parties' mechanisms.

    Names in a spec are only ever looked up in the registry.

    Raises:
        InternalError (OS903): a plugin cannot be imported, or takes a key that is taken. Nothing runs
            then: a program would mean something else without it.
    """
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:
            raise InternalError(
                "OS903", f"plugin {entry.name}", expected=f"a module {entry.value} that can be imported",
                got=f"{type(error).__name__}: {error}".removesuffix("."),
                hint="repair the package that brings this plugin, or uninstall it.",
            ) from error  # fmt: skip


@cache
def page_beside(cls: type[Mechanism]) -> Traversable | None:
    """Return the proof page beside a mechanism's module, or None."""
    package, _, module = cls.__module__.rpartition(".")
    name = f"{cls.key}.md"
    if package:
        found = files(package).joinpath(name)
    else:  # a plugin of a single module
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None:
            return None
        found = Path(file).with_name(name)
    return found if found.is_file() else None
