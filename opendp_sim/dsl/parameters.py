"""``${name}``: public parameters with a declared type and range, and holes (``???``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opendp_sim.dsl.diagnostic import Notes, Path, nearest
from opendp_sim.dsl.fields import HOLE, MISSING, Fields, choice, listing, shown
from opendp_sim.dsl.scalars import plain_scalar

__all__ = ["resolve_parameters"]

_USE = re.compile(r"\$\{([^}]*)\}")
_TYPES = ("float", "int", "bool", "str")


@dataclass(frozen=True, slots=True)
class _Parameter:
    type: str
    range: tuple[float, float] | None
    options: tuple[Any, ...] | None


def resolve_parameters(
    data: dict[str, Any], given: Mapping[str, Any], notes: Notes
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the program with every ``${name}`` replaced, and the values in force.

    ``given`` overrides defaults: text (from a command line) is read by the declared type.
    """
    values = _values(data.get("params") or {}, given, notes)
    if isinstance(data.get("params"), dict) is False and data.get("params") is not None:
        notes.error("OS304", "`params` must be a mapping", ("params",),
                    label=f"got {shown(data['params'])}",
                    help="write `name: {type: float, default: 1.0}`")  # fmt: skip
    body = {
        key: _replace(value, (key,), values, notes)
        for key, value in data.items()
        if key != "params"
    }
    return body, {name: value for name, value in values.items() if value is not HOLE}


def _values(declared: Any, given: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    if not isinstance(declared, dict):
        return {}
    values: dict[str, Any] = {}
    for name, entry in declared.items():
        path = ("params", name)
        fields = Fields(entry, path, notes, ("type", "default", "range", "keys"))
        kind = fields.take("type", choice(*_TYPES))
        limits = fields.take("range", listing, None)
        options = fields.take("keys", listing, None)
        default = fields.value.get("default", MISSING)
        if HOLE in (kind, limits, options):
            values[name] = HOLE
            continue
        declared_as = _Parameter(kind, _limits(limits, path, notes),
                                 tuple(options) if options else None)  # fmt: skip
        value = given.get(name, default)
        where = (*path, "default") if name not in given else path
        values[name] = _typed(value, name, declared_as, where, notes)
    for name in given:
        if name not in declared:
            notes.error("OS308", f"no parameter is called `{name}`", ("params",), part="key",
                        label="declared here",
                        help=nearest(name, declared) or "declare it under `params:`.")  # fmt: skip
    return values


def _limits(limits: Any, path: Path, notes: Notes) -> tuple[float, float] | None:
    if limits is None:
        return None
    numbers = [v for v in limits if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) != 2 or len(limits) != 2 or not numbers[0] <= numbers[1]:
        notes.error("OS304", "`range` must be [lowest, highest]", (*path, "range"),
                    label=f"got {shown(limits)}",
                    help="write for example range: [0.5, 50.0]")  # fmt: skip
        return None
    return numbers[0], numbers[1]


def _typed(value: Any, name: str, declared: _Parameter, path: Path, notes: Notes) -> Any:
    if value is MISSING:
        notes.error("OS308", f"parameter `{name}` has no value", ("params", name), part="key",
                    label="no default", help=f"give `--param {name}=...`, or a default.")  # fmt: skip
        return HOLE
    if value == "???":
        notes.error("OS310", "a hole was not filled in", path, label="`???`",
                    help=f"give `--param {name}=...`, or write a value.")  # fmt: skip
        return HOLE
    if isinstance(value, str) and declared.type != "str":
        value = plain_scalar(value)
    if declared.type == "float" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value).__name__ != declared.type:
        notes.error("OS308", f"parameter `{name}` must be {declared.type}", path,
                    label=f"got {shown(value)}",
                    help=f"give a value of type {declared.type}.")  # fmt: skip
        return HOLE
    low_high = declared.range
    if low_high is not None and not (low_high[0] <= value <= low_high[1]):
        notes.error("OS308", f"parameter `{name}` leaves its range", path, label=f"got {value!r}",
                    help=f"choose a value from {low_high[0]!r} to {low_high[1]!r}.")  # fmt: skip
        return HOLE
    if declared.options is not None and value not in declared.options:
        notes.error("OS308", f"parameter `{name}` is not one of its keys", path,
                    label=f"got {value!r}",
                    help=f"choose one of {', '.join(map(repr, declared.options))}.")  # fmt: skip
        return HOLE
    return value


def _replace(value: Any, path: Path, values: Mapping[str, Any], notes: Notes) -> Any:
    if isinstance(value, dict):
        return {k: _replace(v, (*path, k), values, notes) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_replace(v, (*path, i), values, notes) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value
    if value == "???":
        notes.error("OS310", f"`{path[-1]}` is still a hole", path, label="not filled in",
                    help="write a value instead of `???`.")  # fmt: skip
        return HOLE
    names = _USE.findall(value)
    if not names:
        return value
    found = [_lookup(name.strip(), path, values, notes) for name in names]
    if HOLE in found:
        return HOLE
    if _USE.fullmatch(value):
        return found[0]
    texts = iter(found)
    return _USE.sub(lambda _: str(next(texts)), value)


def _lookup(name: str, path: Path, values: Mapping[str, Any], notes: Notes) -> Any:
    if name in values:
        return values[name]
    notes.error("OS308", f"no parameter is called `{name}`", path, label="cannot be resolved",
                help=nearest(name, values) or f"declare `{name}` under `params:`.")  # fmt: skip
    return HOLE
