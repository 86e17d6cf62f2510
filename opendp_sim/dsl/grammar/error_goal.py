"""Read a number that the plan solves from an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from opendp_sim.core.mechanism import REGISTRY, current_key
from opendp_sim.dsl.grammar.parse import read_section
from opendp_sim.dsl.grammar.section import HOLE, Refusal, Section, word
from opendp_sim.dsl.text.diagnostic import Notes, Path

SOLVED = "solved from an error"
"""Marks numbers in a schema that a goal may stand for."""
_EPSILON: Path = ("privacy", "budget", "epsilon")


class ErrorGoal(Section):
    """State an error in place of a step's size, or of `epsilon`.

    The plan solves the least number (to three digits) whose predicted error is at most this one: that
    which 95 % of answers are within, as the plan states it. Only public facts are used, and the number
    stands in the program that is charged and certified. One number of a program is solved.
    """

    template: ClassVar[str] = """\
- fourier_sketch: {frequencies: {error: 60, size: 20000}, kernel: ..., seed: 1}
budget: {epsilon: {error: 60, size: 20000}, delta: 1.0e-6}
"""
    error: float = word(
        "What 95 % of answers are to be within, in the unit of the plan's errors.",
        gt=0,
        allow_inf_nan=False,
        refusal=Refusal("`error` must be a number above 0", "write for example 40.0."),
    )
    size: int = word(
        "About how many records, from public knowledge.",
        ge=1,
        le=2**53,
        refusal=Refusal("`size` must be a whole number from 1", "write for example 20000."),
    )
    of: str | None = word(
        "Which error, where a plan has several: an output's name, or a question such as `density`.",
        None,
        min_length=1,
    )


@dataclass(frozen=True)
class Solvable:
    """Hold the place and goal of a number that is solved."""

    path: Path
    goal: ErrorGoal
    at: Callable[[int | float], Any]

    @property
    def name(self) -> str:
        """The parameter that is solved."""
        return str(self.path[-1])

    @property
    def whole(self) -> bool:
        """Whether it is a whole number."""
        return self.path != _EPSILON


def is_goal(value: Any) -> bool:
    """Return whether a value states an error in place of a number."""
    return isinstance(value, Mapping) and "error" in value and {*value} <= {*ErrorGoal.words()}


def read_goals(body: dict[str, Any], notes: Notes) -> tuple[dict[str, Any], list[Any]]:
    """Return a program with holes for its goals, and the goals."""
    found: list[tuple[Path, Any]] = []
    for path, value in [*_in_stages(body), *_budget(body)]:
        goal = read_section(ErrorGoal, dict(value), path, notes)
        if not _is_whole(path):
            notes.error("OS304", f"`{path[-1]}` is not solved from an error", path, part="key",
                        label="no whole number that lowers an error",
                        help="state it of `epsilon`, or of a size such as `frequencies`.")  # fmt: skip
        elif found:
            notes.error("OS304", "one number of a program is solved from an error", path, part="key",
                        label=f"`{found[0][0][-1]}` is solved already",
                        help="write one of them as a number.")  # fmt: skip
        found.append((path, goal))
        body = put(body, path, HOLE)
    return body, [one for one in found if one[1] is not None]


def put(value: Any, path: Path, new: Any) -> Any:
    """Return plain data with another value in one place."""
    if not path:
        return new
    if isinstance(value, Mapping):
        return {**value, path[0]: put(value[path[0]], path[1:], new)}
    return [put(one, path[1:], new) if at == path[0] else one for at, one in enumerate(value)]


def _in_stages(body: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield goals of stages and outputs, whose names are any words."""
    for section in ("flow", "outputs"):
        named = body.get(section)
        for name, stage in named.items() if isinstance(named, Mapping) else ():
            for part, value in stage.items() if isinstance(stage, Mapping) else ():
                if part in ("steps", "release"):
                    yield from _goals(value, (section, name, part))


def _goals(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if is_goal(value):
        yield path, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _goals(inner, (*path, name))
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _goals(inner, (*path, place))


def _budget(body: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    value: Any = body
    for name in _EPSILON:
        value = value.get(name) if isinstance(value, Mapping) else None
    if is_goal(value):
        yield _EPSILON, value


def _is_whole(path: Path) -> bool:
    """Return whether a place takes a size, or is that of epsilon."""
    if path == _EPSILON:
        return True
    cls = REGISTRY.get(current_key(str(path[-2])))
    info = None if cls is None else cls.model_fields.get(str(path[-1]))
    kinds = () if info is None else (info.annotation, *getattr(info.annotation, "__args__", ()))
    return path[-1] != "seed" and int in kinds
