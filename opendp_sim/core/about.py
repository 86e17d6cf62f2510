"""Read parameters from their declaration, for docs, errors, schema and commands."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

_MANY = {float: "numbers", int: "whole numbers", str: "names"}
_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """One parameter, as docs, errors, schema and CLI all show it."""

    text: str
    symbol: str
    unit: str
    hint: str
    range: str
    default: str


def parameters_of(cls: type[BaseModel]) -> dict[str, ParameterInfo]:
    """Read every parameter of ``cls`` back from its single declaration."""
    return {name: _about(info) for name, info in cls.model_fields.items()}


def errors_of(cls: type[BaseModel], values: Mapping[str, Any]) -> list[Any]:
    """Return every error of pydantic in a record's values."""
    try:
        cls.__pydantic_validator__.validate_python(dict(values), self_instance=cls.__new__(cls))
    except ValidationError as error:
        return list(error.errors())
    return []


def keyword_of(name: str, info: FieldInfo) -> Parameter:
    """Return a field as a parameter by name of a function."""
    default = Parameter.empty if info.is_required() else info.default
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=info.annotation, default=default)


def options_of(info: FieldInfo) -> dict[str, type[BaseModel]]:
    """Return the records to choose a parameter from, by word, or none."""
    return {key: cls for m in info.metadata for key, cls in _options(m).items()}


def _about(info: FieldInfo) -> ParameterInfo:
    extra = cast("dict[str, str]", info.json_schema_extra)
    limits = {k: getattr(m, k) for m in info.metadata for k in _SIGNS if hasattr(m, k)}
    bounds = " and ".join(f"{_SIGNS[k]} {limits[k]}" for k in _SIGNS if k in limits)
    choices = [f"{{{key}: ...}}" for m in info.metadata for key in _options(m)]
    kind = "one of " + ", ".join(choices) if choices else _kind(info.annotation)
    default = "required" if info.is_required() else repr(info.default)
    text = info.description or ""
    return ParameterInfo(text, range=f"{kind} {bounds}".strip(), default=default, **extra)


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
        for m in metadata:
            if options := _options(m):
                return "one of " + ", ".join(f"{{{key}: ...}}" for key in options)
    if get_origin(annotation) is tuple:
        parts = get_args(annotation)
        if parts[-1] is Ellipsis:
            return f"a list of {_MANY.get(parts[0]) or _kind(parts[0])}"
        return f"[{', '.join(map(_kind, parts))}]"
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(repr, get_args(annotation)))
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join("nothing" if a is type(None) else _kind(a) for a in get_args(annotation))
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation.__name__
    return str(annotation)


def _options(constraint: Any) -> dict[str, Any]:
    return getattr(constraint, "known", {})
