"""Read steps, mappings of one key in the catalogue."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from opendp_sim.core.about import options_of
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import MISSING, REGISTRY, TOO_FEW, Mechanism, current_key
from opendp_sim.dsl.grammar.section import HOLE, hole_in, value_text
from opendp_sim.dsl.text.diagnostic import Notes, Path, misspelt, suggest


def read_steps(
    value: list[Any], path: Path, notes: Notes, rooms: Collection[str]
) -> tuple[Mechanism, ...] | None:
    """Return the mechanisms of steps, or None."""
    steps = [_step(item, (*path, place), notes, rooms) for place, item in enumerate(value)]
    found = tuple(step for step in steps if step is not None)
    return found if len(found) == len(steps) else None


def _step(item: Any, path: Path, notes: Notes, rooms: Collection[str]) -> Mechanism | None:
    named = split_step(item, path, notes)
    if named is None:
        return None
    key, params = named
    if not known_key(key, (*path, key) if isinstance(item, dict) else path, notes, rooms):
        return None
    return read_record(REGISTRY[current_key(key)], params, (*path, key), notes)


def split_step(item: Any, path: Path, notes: Notes) -> tuple[str, dict[str, Any]] | None:
    """Return (key, params) of ``key``, ``{key: {...}}`` or ``{key: null}``."""
    if item is HOLE:
        return None
    if isinstance(item, str):
        return item, {}
    if isinstance(item, dict) and len(item) == 1:
        ((key, params),) = item.items()
        if params is None:
            params = {}
        if isinstance(params, dict):
            return str(key), params
        if params is not HOLE:
            notes.error("OS304", f"`{key}` takes a mapping of parameters", (*path, key),
                        label=f"got {value_text(params)}",
                        help=f"write `{key}: {{name: value}}`.")  # fmt: skip
        return None
    notes.error("OS304", "a step is a name, or a name with its parameters", path,
                label=f"got {value_text(item)}", help="write `- quantize: {bits: 12}`.")  # fmt: skip
    return None


def known_key(key: str, path: Path, notes: Notes, rooms: Collection[str]) -> bool:
    """Return whether ``key`` is a mechanism of ``rooms``."""
    cls = REGISTRY.get(current_key(key))
    if cls is not None and cls.room in rooms:
        return True
    here = [name for name, known in REGISTRY.items() if known.room in rooms]
    if cls is None:
        notes.unknown(key, here, path, "step")
        return False
    notes.error("OS306", f"`{key}` cannot stand here", path, part="key",
                label=f"a mechanism of {cls.room}", help=_PLACE[cls.room])  # fmt: skip
    return False


_PLACE = {
    "rows": "row maps go under `steps:` of a flow stage.",
    "sketches": "sketches go under `steps:` of a flow stage.",
    "measurements": "write it under `release:` as {noise: ...} or {mechanism: {...}}.",
    "queries": "queries go under `post:` of an output.",
}


def read_record(
    cls: type[Mechanism],
    params: dict[str, Any],
    path: Path,
    notes: Notes,
    solved: Iterable[str] = (),
) -> Mechanism | None:
    """Return the record, or None with a finding for every wrong parameter.

    Without a parameter in ``solved``, which the language fills in, the result is None as well.
    """
    before = notes.objections
    known: dict[str, Any] = {}
    hole = False
    strange = [name for name in params if name not in cls.model_fields]
    near = {field for field in cls.model_fields if strange and misspelt(field, strange)}
    for name, value in params.items():
        if name not in cls.model_fields:
            notes.unknown(name, cls.model_fields, (*path, name), f"argument of `{cls.key}`")
        elif hole_in(value):
            hole = True
        else:
            known[name] = value
    skipped = {name for name in params if hole_in(params[name])} | set(solved) | near
    for error in cls.problems(known):
        _report(error, cls, known, path, notes, skipped)
    if notes.objections == before:
        _refuse_infinite(known, path, notes)
    if hole or notes.objections > before or set(solved) - set(known):
        return None
    return cls(**known)


def _refuse_infinite(value: Any, path: Path, notes: Notes) -> None:
    """Refuse infinite numbers, which the canonical JSON cannot write."""
    value = dict(value) if isinstance(value, BaseModel) else python_value(value)
    if isinstance(value, dict | list | tuple):
        for part, inner in value.items() if isinstance(value, dict) else enumerate(value):
            _refuse_infinite(inner, (*path, part), notes)
        return
    try:
        finite = isinstance(value, str | int | None) or math.isfinite(value)
    except (TypeError, ValueError, OverflowError):
        return  # no number
    if not finite:
        notes.error("OS101", f"`{path[-1]}` must be a finite number", path,
                    label=f"got {value_text(value)}", help="write a finite one.")  # fmt: skip


def _report(
    error: ParameterError,
    cls: type[Mechanism],
    params: dict[str, Any],
    path: Path,
    notes: Notes,
    skipped: set[str],
) -> None:
    owner, _, name = error.where.rpartition(".")
    if owner == cls.key and name in skipped:
        return
    if owner == cls.key and name not in params:
        notes.error("OS101", f"`{cls.key}` needs `{name}`", (*path, f"?{name}"), part="key",
                    label=f"no `{name}`: expected {error.expected}", help=error.hint)  # fmt: skip
        return
    where = locate(error, cls.key, params, path)
    if (
        owner != cls.key
        and where != path
        and _option_words(cls, owner or name, where, params, path, notes)
    ):
        return
    if error.expected.startswith("one of ") and isinstance(error.got, str):
        advice = suggest(error.got, [w.strip(" '") for w in error.expected[7:].split(",")])
    elif error.expected.startswith("one of {") and isinstance(error.got, dict) and error.got:
        advice = suggest(str(next(iter(error.got))), [option.key for option in _options(cls)])
    elif error.expected.startswith("str") and (plain := _unquoted(error.got)):
        advice = f"YAML reads it as a number or a truth: write it in quotes, {plain}"
    elif error.expected.startswith("bool"):
        advice = "write true or false: in YAML 1.2 yes, no, on and off are plain words"
    else:
        advice = ""
    notes.error(
        error.code,
        f"`{error.where}` must be {error.expected}",
        where,
        label=f"got {error.got if error.got in (MISSING, TOO_FEW) else value_text(error.got)}",
        help=advice or error.hint,
    )


def _unquoted(got: object) -> str:
    """Return, in quotes, a word that YAML reads as no text."""
    for value in got if isinstance(got, list | tuple) else [got]:
        if isinstance(value, bool | int | float):
            return f'"{str(value).lower()}"'
    return ""


def _option_words(
    cls: type[Mechanism], option: str, where: Path, params: dict[str, Any], path: Path, notes: Notes
) -> bool:
    """Report unknown words inside ``{option: {...}}``; say whether there were any."""
    inside: Any = params
    for part in where[len(path) :]:
        inside = inside[part]
    known = next((o.model_fields for o in _options(cls) if o.key == option), None)
    if known is None or where[-1] != option or not isinstance(inside, dict):
        return False
    strange = [word for word in inside if word not in known]
    for word in strange:
        notes.unknown(word, known, (*where, word), f"argument of `{option}`")
    return bool(strange)


def _options(cls: type[Mechanism]) -> Iterator[Any]:
    """Yield every alternative of every parameter that is a choice between records."""
    for info in cls.model_fields.values():
        yield from options_of(info).values()


def locate(error: Any, key: str, params: dict[str, Any], path: Path) -> Path:
    """Return the place of the parameter in an error.

    An error names ``key.parameter`` or, for a choice, ``option.parameter``, and where inside that;
    or the word it objects to is itself the value of a parameter.
    """
    owner, _, name = error.where.rpartition(".")
    if owner == key and name in params:
        return _within((*path, name), params[name], error)
    options = [found for p, v in params.items() for found in _named(v, owner or name, (*path, p))]
    # Several terms can use one option: the one with the refused value is meant.
    options.sort(key=lambda found: not _objects_to(found[1], name, error.got))
    for where, inside in options[:1]:
        deeper = isinstance(inside, dict) and name in inside
        return _within((*where, name), inside[name], error) if deeper else where
    for parameter, value in params.items():
        if isinstance(error.got, str) and value == error.got:
            return (*path, parameter)
        if isinstance(error.got, str) and isinstance(value, list) and error.got in value:
            return (*path, parameter, value.index(error.got))
    return path


def _named(value: Any, word: str, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the places of the option ``word`` inside ``value``."""
    if value == word:
        yield path, value
    within: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        within = value.items()
        if word in value:
            yield (*path, word), value[word]
    elif isinstance(value, list):
        within = enumerate(value)
    for part, inner in within:
        if isinstance(inner, dict | list) or isinstance(value, list):
            yield from _named(inner, word, (*path, part))


def _objects_to(option: Any, name: str, got: object) -> bool:
    """Return whether an error is about this option."""
    if not isinstance(option, dict):
        return True
    return (option[name] == got) if name in option else (got == MISSING or got in option)


def _within(path: Path, value: Any, error: Any) -> Path:
    """Follow the error's place through the document."""
    for part in getattr(error, "inside", ()):
        try:
            value = value[part]
        except (LookupError, TypeError):
            break
        path = (*path, part)
    return path
