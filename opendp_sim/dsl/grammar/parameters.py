"""Read public ``${name}`` parameters and holes (``???``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from opendp_sim.dsl.grammar.parse import read_section
from opendp_sim.dsl.grammar.section import HOLE, Refusal, Section, value_text, word
from opendp_sim.dsl.text.diagnostic import Notes, Path, suggest
from opendp_sim.dsl.text.yaml_document import plain_scalar

_USE = re.compile(r"\$\{([^}]*)\}")
_MISSING = object()
_RANGE = Refusal("`range` must be [lowest, highest]", "write for example range: [0.5, 50.0]")


class Parameter(Section):
    """Public numbers that a command line can change.

    Write "${width}" where the number goes, and ``--param width=2.0`` to change it.
    """

    template: ClassVar[str] = """\
params:                                   # public numbers that `--param width=2.0` can change
  width: {type: float, default: 1.0, range: [0.001, 1000.0]}
"""
    type: Literal["float", "int", "bool", "str"] = word("What its values are.")
    default: Any = word("Its value where nobody changes it.", None)
    range: tuple[int | float, int | float] | None = word(
        "[lowest, highest] that it may take.", None, refusal=_RANGE
    )
    keys: tuple[Any, ...] | None = word("The values that it may take.", None)

    def rules(self, notes: Notes, path: Path) -> None:
        """A range is not empty."""
        if self.range is not None and not self.range[0] <= self.range[1]:
            notes.error(
                _RANGE.code, _RANGE.title, (*path, "range"), label="got a list", help=_RANGE.help
            )


def resolve_parameters(
    data: dict[str, Any], given: Mapping[str, Any], notes: Notes
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the program with every ``${name}`` replaced, and the values in force.

    ``given`` overrides defaults: text (from a command line) is read by the declared type.
    """
    values = _values(data.get("params") or {}, given, notes)
    if isinstance(data.get("params"), dict) is False and data.get("params") is not None:
        notes.error("OS304", "`params` must be a mapping", ("params",),
                    label=f"got {value_text(data['params'])}",
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
        parameter = read_section(Parameter, entry, path, notes)
        if parameter is None:
            values[name] = HOLE
            continue
        value = given.get(
            name, parameter.default if "default" in parameter.model_fields_set else _MISSING
        )
        where = (*path, "default") if name not in given else path
        values[name] = _typed(value, name, parameter, where, notes)
    for name in given:
        if name not in declared:
            notes.error("OS308", f"no parameter is called `{name}`", ("params",), part="key",
                        label="declared here",
                        help=suggest(name, declared) or "declare it under `params:`.")  # fmt: skip
    return values


def _typed(value: Any, name: str, declared: Parameter, path: Path, notes: Notes) -> Any:
    if value is _MISSING:
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
                    label=f"got {value_text(value)}",
                    help=f"give a value of type {declared.type}.")  # fmt: skip
        return HOLE
    low_high = declared.range
    if low_high is not None and not (low_high[0] <= value <= low_high[1]):
        notes.error("OS308", f"parameter `{name}` leaves its range", path, label=f"got {value!r}",
                    help=f"choose a value from {low_high[0]!r} to {low_high[1]!r}.")  # fmt: skip
        return HOLE
    if declared.keys is not None and value not in declared.keys:
        notes.error("OS308", f"parameter `{name}` is not one of its keys", path,
                    label=f"got {value!r}",
                    help=f"choose one of {', '.join(map(repr, declared.keys))}.")  # fmt: skip
        return HOLE
    return value


def _last(path: Path) -> str:
    """Return a path's last name, with following list indices."""
    at = next((i for i in range(len(path) - 1, -1, -1) if isinstance(path[i], str)), 0)
    return str(path[at]) + "".join(f"[{place}]" for place in path[at + 1 :])


def _replace(value: Any, path: Path, values: Mapping[str, Any], notes: Notes) -> Any:
    if isinstance(value, dict):
        return {k: _replace(v, (*path, k), values, notes) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_replace(v, (*path, i), values, notes) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value
    if value == "???":
        notes.error("OS310", f"`{_last(path)}` is still a hole", path, label="not filled in",
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
                help=suggest(name, values) or f"declare `{name}` under `params:`.")  # fmt: skip
    return HOLE
