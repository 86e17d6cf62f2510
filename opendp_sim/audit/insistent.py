"""Conversations of one kind of question, many times over: what is charged too little, or not, adds up.

A budget in Python that rounds a price, or ends only where exactly nothing is left, answers one question
for ever; one that keeps answers may keep them under names of which one question has many; one that gives
back what a failed batch would have cost may have answered a part of it. Which of these a queryable lets
pass is seen along its tape (``dearest.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Any

from opendp_sim.audit.question_parts import Shape

__all__ = ["insistent"]

_TIMES, _FEW = 24, 12
_BELOW, _SMALL = 0.96, (0.04, 0.01)
"""How far below a number of the code a cost is that may be rounded down; costs that round to nothing."""
_MOST_COSTS, _MOST_TEXTS, _BLANKS = 14, 8, 8
_UNKNOWN = "?"


def insistent(shape: Shape, texts: Sequence[str], numbers: Iterable[float]) -> Iterator[list[Any]]:
    """Yield conversations, as lists of questions.

    Args:
        shape: a question that is answered.
        texts: what may be a part of one.
        numbers: of the code; questions cost as much, or a little less.
    """
    usual = [values[0] for values in shape.values]
    for cost in _costs(shape, numbers):
        yield [shape.of(_costing(shape, usual, cost))] * _TIMES
    if "c" not in shape.kinds:
        yield [shape.of(usual)] * _TIMES
    for part, kind in enumerate(shape.kinds):
        if kind == "t":
            for text in texts[:_MOST_TEXTS]:
                yield [shape.of(_with(usual, part, text))] * _TIMES
            yield [shape.of(_with(usual, part, text)) for text in _alike(str(usual[part]))]
        elif kind != "c":
            yield [shape.of(_with(usual, part, number)) for number in range(_TIMES)]
    yield from _partly(shape, usual)


def _costs(shape: Shape, numbers: Iterable[float]) -> list[float]:
    """Return costs from the shape, from the code, and a little below those."""
    if "c" not in shape.kinds:
        return []
    usual = [float(cost) for cost in shape.values[shape.kinds.index("c")] if cost > 0]
    named = sorted({float(n) for n in numbers if 0 < n <= 1})[:_MOST_COSTS]
    below = [_BELOW * n for n in named]
    return list(dict.fromkeys((*usual, *below, *named, *_SMALL)))[: 2 * _MOST_COSTS]


def _costing(shape: Shape, parts: Sequence[Any], cost: float) -> list[Any]:
    return [cost if kind == "c" else part for kind, part in zip(shape.kinds, parts, strict=True)]


def _with(parts: Sequence[Any], place: int, value: Any) -> list[Any]:
    return [*parts[:place], value, *parts[place + 1 :]]


def _alike(text: str) -> list[str]:
    """Return spellings that may count as one text: with blanks around it, and in capitals."""
    blanks = product(range(_BLANKS), repeat=2)
    every = (f"{' ' * i}{one}{' ' * j}" for i, j in blanks for one in (text, text.upper()))
    return list(islice(dict.fromkeys(every), _TIMES))


def _partly(shape: Shape, usual: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield questions of several parts of which one text is known and the next is not."""
    if shape.keys is not None or shape.bare or "t" not in shape.kinds:
        return
    place = shape.kinds.index("t") + 1
    costs = shape.values[shape.kinds.index("c")][:2] if "c" in shape.kinds else (None,)
    for cost in reversed(costs):
        parts = list(usual if cost is None else _costing(shape, usual, cost))
        yield [shape.of([*parts[:place], _UNKNOWN, *parts[place:]])] * _FEW
