"""Questions for a queryable of an unknown kind: what it takes is found by asking synthetic releases.

A question of several parts is a tuple, or a mapping whose keys the queryable itself asks for. The
conversation is one analyst's, fixed before any dataset is seen: one cheap question many times, others
like it, dearer ones, and the first again. What is charged too little, once for a label, or not at all
when it is asked again, is then answered beyond the claim.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opendp_sim.audit.driver import REFUSED, SILENT, Driver
from opendp_sim.audit.neighbours import Pair
from opendp_sim.core import dp

__all__ = ["of_shapes"]

_PATTERNS = (
    "lh",
    "nc",
    "cn",
    "lhc",
    "clh",
    "tc",
    "ct",
    "tn",
    "nt",
    "tlh",
    "tlhc",
    "tt",
    "ttc",
    "nnn",
)
"""Parts of a tuple, in the order in which they are tried: see ``_VALUES``."""
_VALUES: dict[str, tuple[Any, ...]] = {
    "l": (0, 1, 2),
    "h": (10, 9, 8),
    "c": (0.12, 0.5, 3.0),
    "n": (1, 0, 2, 3),
    "t": ("a", "b", "c", ""),
}
"""A lower end, an upper end, a cost, another number, and a text; the first is the usual one."""
_NAMES = {
    "l": ("lo", "min", "start", "from", "begin", "left", "a"),
    "h": ("hi", "max", "end", "to", "stop", "upper", "right", "up", "b"),
    "c": ("eps", "rho", "cost", "price", "budget", "loss", "spend", "delta", "alpha"),
}
"""How the keys of a mapping begin that hold a number of that kind; the others are tried as numbers."""
_OFTEN, _HALF, _EACH, _CELLS = 12, 7, 2, 16
_TEXTS, _MOST_TEXTS, _TRIES, _MOST_KEYS = 12, 4, 60, 4
_INSIDE = 5
"""A record between all lower ends and all upper ends."""


@dataclass(frozen=True)
class _Shape:
    """Parts of a question: the values of each, and the keys of a mapping; without keys it is a tuple."""

    kinds: str
    values: tuple[tuple[Any, ...], ...]
    keys: tuple[Any, ...] | None = None

    def question(self, places: Sequence[int]) -> Any:
        """Return the question with that value of each part; a new one each time."""
        parts = [some[min(i, len(some) - 1)] for some, i in zip(self.values, places, strict=True)]
        return tuple(parts) if self.keys is None else _Asked(zip(self.keys, parts, strict=True))

    def conversation(self) -> list[list[int]]:
        """Return all questions, in order: for each part the place of its value."""
        usual = [0] * len(self.kinds)
        others = list(self._others())
        dear = [self._at(places, 1) for places in ([usual, *others] if "c" in self.kinds else [])]
        most = [self._at(usual, 2)] if dear else []
        each = [places for places in others for _ in range(_EACH)]
        again = [usual] * _HALF + (dear[:1] or [usual]) * _HALF
        return [usual, *most] + [usual] * _OFTEN + each + dear + most + again

    def _others(self) -> Iterator[list[int]]:
        for part, values in enumerate(self.values):
            if self.kinds[part] != "c":
                for i in range(1, len(values)):
                    yield [i if k == part else 0 for k in range(len(self.kinds))]

    def _at(self, places: Sequence[int], cost: int) -> list[int]:
        return [cost if kind == "c" else i for kind, i in zip(self.kinds, places, strict=True)]


class _Asked(dict[Any, Any]):
    """A mapping that is also read by attributes."""

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return self[name]


class _Curious(_Asked):
    """A mapping that notes which keys it is asked for; each has a number until another value is set."""

    def __missing__(self, key: Any) -> Any:
        self[key] = _VALUES[_kind_of(key)][0]
        return self[key]

    def get(self, key: Any, _: Any = None) -> Any:
        """Return a value, also where there was none."""
        return self[key]

    def pop(self, key: Any, _: Any = None) -> Any:
        """Return a value, and keep it."""
        return self[key]

    def __contains__(self, key: Any) -> bool:
        return bool(self[key]) or True


def of_shapes(
    release: Callable[[], Any],
    member: Callable[[Any], bool] = lambda _: False,
    distance: Any = 1,
    words: Sequence[str] = (),
) -> Driver | None:
    """Return a driver that asks questions of several parts; ``None`` where none is answered.

    Args:
        release: makes a queryable of a synthetic dataset.
        member: whether a dataset is in the domain; records that are asked about are what differs.
        distance: how many records differ.
        words: texts that may be a part of a question.
    """
    texts = tuple(dict.fromkeys((*_VALUES["t"], *words)))[:_TEXTS]
    shape = _of_keys(release, texts) or _of_tuples(release, texts)
    if shape is None:
        return None
    asked = [shape.question(places) for places in shape.conversation()]

    def drive(queryable: Any) -> tuple[Any, ...]:
        heard = [_heard(queryable, one) for one in asked]
        flat = tuple(itertools.chain.from_iterable(heard))
        return sum(cell for cell in flat if isinstance(cell, float) and cell > REFUSED), *flat

    told = (
        f"{asked[0]!r}, more than {_OFTEN} times, others like it, and it again: {len(asked)} in all"
    )
    return Driver(drive, f"the question {told}", _pairs(shape, member, distance))


def _of_tuples(release: Callable[[], Any], texts: tuple[str, ...]) -> _Shape | None:
    for kinds in _PATTERNS:
        found = _answered(release, _Shape(kinds, tuple(_VALUES[k] for k in kinds)), texts)
        if found is not None:
            return found
    return None


def _of_keys(release: Callable[[], Any], texts: tuple[str, ...]) -> _Shape | None:
    """Return a mapping that is answered: its keys are those that the queryable asks for."""
    asked = _Curious()
    _heard(release(), asked)
    tried: set[tuple[Any, ...]] = set()
    while (
        asked and (keys := tuple(asked)) not in tried
    ):  # a text may have to be there for more keys
        tried.add(keys)
        numbers = "".join(map(_kind_of, keys[:_MOST_KEYS]))
        for kinds in itertools.product(*((kind, "t") for kind in numbers)):
            made = _Shape("".join(kinds), tuple(_VALUES[k] for k in kinds), keys[: len(numbers)])
            found = _answered(release, made, texts)
            if found is not None:
                return found
            asked.update(made.question([0] * len(kinds)))
            _heard(release(), asked)
    return None


def _answered(release: Callable[[], Any], shape: _Shape, texts: tuple[str, ...]) -> _Shape | None:
    """Return a shape with texts that are answered; ``None`` where none is."""
    places = [i for i, kind in enumerate(shape.kinds) if kind == "t"]
    tries = itertools.islice(itertools.product(texts, repeat=len(places)), _TRIES)
    for chosen in tries:
        values = list(shape.values)
        for place, text in zip(places, chosen, strict=True):
            values[place] = (text, *(other for other in texts if other != text))[:_MOST_TEXTS]
        made = replace(shape, values=tuple(values))
        if _is_answer(_heard(release(), made.question([0] * len(values)))):
            return made
    return None


def _is_answer(heard: tuple[Any, ...]) -> bool:
    return any(isinstance(cell, float) and cell > REFUSED for cell in heard)


def _kind_of(key: Any) -> str:
    name = str(key).lower()
    for kind, starts in _NAMES.items():
        if any(name == start or (len(start) > 1 and name.startswith(start)) for start in starts):
            return kind
    return "n"


def _heard(queryable: Any, question: Any) -> tuple[Any, ...]:
    """Return the numbers and texts of an answer."""
    try:
        answer = queryable(_Asked(question) if type(question) is _Asked else question)
    except dp.OpenDPException:
        return (REFUSED,)
    except (TypeError, ValueError, AttributeError):  # no answer that OpenDP hands on
        return (REFUSED,)
    return tuple(itertools.islice(_cells(answer), _CELLS))


def _cells(answer: Any) -> Iterator[Any]:
    if answer is None:
        yield SILENT
    elif isinstance(answer, (bool, int, float, np.generic)):
        yield float(answer)
    elif isinstance(answer, (list, tuple, np.ndarray)):
        for part in answer:
            yield from _cells(part)
    else:
        yield str(answer)


def _pairs(shape: _Shape, member: Callable[[Any], bool], distance: Any) -> tuple[Pair, ...]:
    """Return neighbours that differ in records like the parts of the usual question, or between them."""
    if not isinstance(distance, int) or distance > _CELLS:
        return ()
    usual = [some[0] for some in shape.values]
    records = [
        kind(v) for v in (_INSIDE, *usual) for kind in (type(v), float, str) if _fits(kind, v)
    ]
    made = (Pair([], [record] * distance, distance) for record in dict.fromkeys(records))
    return tuple(pair for pair in made if member(pair.left) and member(pair.right))


def _fits(kind: type, value: Any) -> bool:
    return kind is str or isinstance(value, (int, float)) or kind is type(value)
