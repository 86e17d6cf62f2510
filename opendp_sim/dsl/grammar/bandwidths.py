"""Read the bandwidth h of a Gaussian kernel ``exp(-r**2 / (2 h**2))``.

Language 2 and Python write h, as scikit-learn does. Language 1, and with it every canonical program,
hash, certificate and proof, writes ``s = h sqrt(2)``, of ``exp(-(r / s)**2)``. A program is converted
once, where it is read, and back where it is printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel

from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.mechanism import REGISTRY, CanonicalBandwidth, current_key

CANONICAL, VERSION = "opendp_sim/1", "opendp_sim/2"
"""The language of canonical programs, which still reads, and the language that people write."""
GAUSSIAN = frozenset({"gaussian", "rbf", "gauss_transform_sketch", "fourier_features"})
"""Mechanisms and options whose ``bandwidth`` is that of a Gaussian kernel."""
_ROOT = math.sqrt(2.0)
_WORD = "bandwidth"
Change = Callable[[Any], Any]
Options = Mapping[str, type[BaseModel]]


def canonical_program(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a program of either language with canonical bandwidths."""
    return _program(body, _canonical) if body.get("spec") == VERSION else dict(body)


def canonical_stage(stage: Any) -> Any:
    """Return a stage, or an output with one, with canonical bandwidths."""
    return _stage(stage, _canonical)


def written_program(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a canonical program in language 2, or as it is.

    It stays in language 1 where no float times sqrt(2) is a bandwidth that it states.
    """
    lost: list[float] = []

    def change(value: Any) -> Any:
        found = exact_bandwidth(value)
        lost.extend([value] if found is None else [])
        return found

    found = _program(body, change)
    return dict(body) if lost else found | {"spec": VERSION}


def shown_step(step: Any) -> Any:
    """Return a canonical step with the bandwidths that people write."""
    return _choice(step, REGISTRY, shown_bandwidth)


def shown_bandwidth(value: float) -> float:
    """Return the bandwidth in language 2, to the last digit but one."""
    found = exact_bandwidth(value)
    return value / _ROOT if found is None else found


def exact_bandwidth(value: Any) -> float | None:
    """Return the shortest h that reads back as ``value``, or None."""
    if not isinstance(value, int | float) or not 0.0 < value < math.inf:
        return None
    near = value / _ROOT
    shorter = (float(f"{near:.{digits}g}") for digits in range(1, 17))
    beside = (near, math.nextafter(near, 0.0), math.nextafter(near, math.inf))
    return next((h for h in (*shorter, *beside) if h * _ROOT == value), None)


def canonical_bandwidths(body: Any) -> list[float]:
    """Return every Gaussian bandwidth of a canonical program."""
    found: list[float] = []

    def change(value: Any) -> Any:
        found.extend([value] if isinstance(value, int | float) else [])
        return value

    _program(body, change)
    return found


# --- one bandwidth --------------------------------------------------------------------------------


def _canonical(value: Any) -> Any:
    """Return ``h sqrt(2)`` of a number above 0, to refuse others as written.

    A number is what a field of floats takes: anything that ``float`` takes, but texts and truths.
    """
    value = python_value(value)
    if isinstance(value, CanonicalBandwidth):
        return float(value)
    if isinstance(value, bool | str | bytes | bytearray):
        return value
    try:
        h = float(value)
    except (TypeError, ValueError, OverflowError):
        return value
    if h * _ROOT == math.inf > h:
        return f"{h!r}, too large: h sqrt(2) is no float"  # a text, which every field refuses
    return h * _ROOT if h > 0 else value


# --- where they stand -----------------------------------------------------------------------------


def _program(body: Mapping[str, Any], change: Change) -> dict[str, Any]:
    return dict(body) | {
        part: {name: _stage(stage, change) for name, stage in body[part].items()}
        for part in ("flow", "outputs")
        if isinstance(body.get(part), Mapping)
    }


def _stage(stage: Any, change: Change) -> Any:
    if not isinstance(stage, Mapping):
        return stage
    found = dict(stage)
    if isinstance(steps := found.get("steps"), list | tuple):
        found["steps"] = _choice(steps, REGISTRY, change)
    if isinstance(release := found.get("release"), Mapping) and "mechanism" in release:
        step = _choice(release["mechanism"], REGISTRY, change)
        found["release"] = {**release, "mechanism": step}
    return found


def _choice(value: Any, options: Options, change: Change) -> Any:
    """Change ``key`` or ``{key: parameters}`` of the options, or each of a list."""
    if isinstance(value, list | tuple):
        return [_choice(one, options, change) for one in value]
    if isinstance(value, str):
        key, given = value, None
    elif isinstance(value, Mapping) and len(value) == 1:
        ((key, given),) = value.items()
    else:
        return value
    cls = options.get(current_key(str(key)))
    if cls is None or not isinstance(given, Mapping | None):
        return value
    found = _parameters(cls, given or {}, change)
    return value if found == dict(given or {}) else {key: found}


def _parameters(cls: type[BaseModel], given: Mapping[str, Any], change: Change) -> dict[str, Any]:
    own, choices = _places(cls)
    found = dict(given)
    if own and (_WORD in given or not cls.model_fields[_WORD].is_required()):
        found[_WORD] = change(given.get(_WORD, cls.model_fields[_WORD].default))
    for name in choices.keys() & given.keys():
        found[name] = _choice(given[name], choices[name], change)
    return found


@cache
def _places(cls: type[BaseModel]) -> tuple[bool, dict[str, Options]]:
    """Return whether a Gaussian bandwidth is here, and parameters of choice."""
    found: dict[str, Options] = {
        name: options
        for name, info in cls.model_fields.items()
        if (options := _options(info.annotation, tuple(info.metadata)))
    }
    return getattr(cls, "key", "") in GAUSSIAN and _WORD in cls.model_fields, found


def _options(annotation: Any, metadata: tuple[Any, ...] = ()) -> dict[str, type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}
    for one in metadata:
        found |= getattr(one, "known", {})
    inside = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return found | _options(inside[0], inside[1:])
    for one in inside:
        found |= _options(one)
    return found
