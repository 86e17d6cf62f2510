"""Search queries for a queryable of an unknown kind.

By asking synthetic releases. A question of several parts is a tuple, or a mapping whose keys the
queryable itself asks for. The conversation is one analyst's, fixed before any dataset is seen: one
cheap question many times, others like it, dearer ones, and the first again. What is charged too
little, once for a label, or not at all when it is asked again, is then answered beyond the claim.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from typing import Any

import numpy as np

from opendp_sim.audit.adversary.analyst import REFUSED, SILENT, Driver
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.work import charge, work_seconds
from opendp_sim.core import dp

# --------------------------------------------------------------------------------------------------
# A question whose keys the queryable itself asks for, and values that keys of such names may have.

VALUES: dict[str, tuple[Any, ...]] = {
    "l": (0, 1, 2),
    "h": (10, 9, 8),
    "c": (0.12, 0.5, 3.0, 1.0, -0.5),
    "n": (1, 0, 2, 3),
    "t": ("a", "b", "c", ""),
}
"""A lower end, an upper end, a cost, another number, and a text; the first is the usual one. Costs
are parts of the claim: eight of the first leave little of it, and the fourth is all of it. The last one
is below zero, which nobody means: it may give back what was spent."""
_MOST = 200
"""How often a mapping is asked before it raises."""
_NAMES = {
    "l": ("lo", "min", "start", "from", "begin", "left", "a"),
    "h": ("hi", "max", "end", "to", "stop", "upper", "right", "up", "b"),
    "c": ("eps", "rho", "cost", "price", "budget", "loss", "spend", "delta", "alpha"),
}
"""How the keys of a mapping begin that hold a number of that kind; the others are tried as numbers."""


class Asked(dict[Any, Any]):
    """A mapping that is also read by attributes."""

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return self[name]


class AttributeMapping(Asked):
    """Record the keys that a queryable reads of a mapping.

    Each key has a number until another value is set. It raises ``LookupError`` when it was asked too
    often: a loop that goes on as long as some key is there would never end.
    """

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "_asked", itertools.count(1))

    def __missing__(self, key: Any) -> Any:
        self[key] = VALUES[kind_of_key(key)][0]
        return self[key]

    def _one(self, key: Any) -> Any:
        if next(object.__getattribute__(self, "_asked")) > _MOST:
            raise LookupError
        return dict.get(self, key) if dict.__contains__(self, key) else self.__missing__(key)

    def __getitem__(self, key: Any) -> Any:
        return self._one(key)

    def get(self, key: Any, _: Any = None) -> Any:
        """Return a value, also where there was none."""
        return self._one(key)

    def pop(self, key: Any, _: Any = None) -> Any:
        """Return a value, and keep it."""
        return self._one(key)

    def __contains__(self, key: Any) -> bool:
        self._one(key)
        return True


def kind_of_key(key: Any) -> str:
    """Return the kind behind a key's name, end, cost or number."""
    name = str(key).lower()
    for kind, starts in _NAMES.items():
        if any(name == start or (len(start) > 1 and name.startswith(start)) for start in starts):
            return kind
    return "n"


# --------------------------------------------------------------------------------------------------
# What is heard of a queryable: the numbers and texts of an answer, whatever it is made of.

_CELLS, _PARTS, _LONGEST = 16, 400, 200
"""Numbers and texts of one answer that are kept, parts of it that are looked at, letters of a text."""


def is_answer(heard: tuple[Any, ...]) -> bool:
    """Say whether a number was heard."""
    return any(isinstance(cell, float) and cell > REFUSED for cell in heard)


def heard_of(queryable: Any, question: Any) -> tuple[Any, ...]:
    """Return the numbers and texts of an answer."""
    try:
        answer = queryable(Asked(question) if type(question) is Asked else question)
    except dp.OpenDPException:
        return (REFUSED,)
    except (TypeError, ValueError, AttributeError):  # no answer that OpenDP hands on
        return (REFUSED,)
    try:
        return tuple(itertools.islice(_cells(answer, itertools.count()), _CELLS))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - objects of the user's that cannot be read, or hold themselves
        name = type.__dict__["__name__"].__get__(type(answer))  # a metaclass may have its own
        return (str(name),)


def _cells(answer: Any, parts: Iterator[int]) -> Iterator[Any]:
    """Yield numbers and texts of an answer, up to a limit."""
    if next(parts) > _PARTS:
        raise ValueError
    if answer is None:
        yield SILENT
    elif isinstance(answer, (bool, int, float, np.integer, np.floating, np.bool_)):
        yield float(answer)
    elif isinstance(answer, (list, tuple, np.ndarray)):
        for part in answer:
            yield from _cells(part, parts)
    elif isinstance(answer, Mapping):
        for _, part in sorted(itertools.islice(answer.items(), _PARTS), key=repr):
            yield from _cells(part, parts)
    else:
        yield _shortened(str(answer))


def _shortened(text: str) -> str:
    """Return a short text that is unique to a text."""
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{text[:_LONGEST]}... {digest}"


# --------------------------------------------------------------------------------------------------
# Two questions in turns, many times: for answers that say one of two things, and never end.
#
# A sparse vector that goes on after its positive answers hides each comparison behind noise of its own,
# and all of them behind one more noise, of the bar. The latter is the same for both questions, so the
# difference of how often each was answered one way has none of it.

Heard = Callable[[Any], tuple[Any, ...]]
_TURNS, _ENDED = 100, 7
"""Turns in all; and the one by which another answer has to come: else the queryable has ended."""
_LAST = 4
"""Answers at the end of a conversation, of which some must not be refusals."""


class Turns:
    """Asks two questions in turns, if answers are bare yes or no."""

    def __init__(self, first: Any, second: Any, known: list[tuple[Any, ...]]) -> None:
        self.first, self.second = first, second
        self._one = min((c for cells in known for c in cells if isinstance(c, str)), default="")
        self.bare = _are_bare(known)
        """Whether answers are bare yes or no. Then the second question is asked before all others: counts
        without noise of their own are answered by no there, and by yes to the first, on one side only."""

    def __call__(self, heard: list[tuple[Any, ...]], ask: Heard) -> tuple[float, float, float]:
        """Return the numbers of ones for each query, after their difference."""
        if not _yes_or_no(heard):
            return 0.0, 0.0, 0.0
        sums, met = [0.0, 0.0], set[tuple[Any, ...]]()
        for turn in range(_TURNS):
            for place, question in enumerate((self.first, self.second)):
                cells = ask(question)
                met.add(cells)
                sums[place] += sum(map(self._value, cells))
            if turn == _ENDED and len(met) == 1:
                break
        return sums[0] - sums[1], sums[0], sums[1]

    def _value(self, cell: Any) -> float:
        return float(cell == self._one) if isinstance(cell, str) else float(cell == 1)


def _yes_or_no(heard: list[tuple[Any, ...]]) -> bool:
    """Say whether a conversation goes on, and its answers were bare."""
    lasting = any(cells not in ((REFUSED,), (SILENT,)) for cells in heard[-_LAST:])
    return lasting and _are_bare(heard)


def _are_bare(heard: list[tuple[Any, ...]]) -> bool:
    """Return whether all answers are single texts, or 0 and 1."""
    answers = [cells for cells in heard if cells != (REFUSED,)]
    return any(cells != (SILENT,) for cells in answers) and all(
        len(cells) == 1 and (isinstance(cells[0], str) or cells[0] in (0.0, 1.0, SILENT))
        for cells in answers
    )


# --------------------------------------------------------------------------------------------------
# What a question of a queryable is made of, and the conversation that is held of it.

_QUESTION_PARTS_OFTEN, _EIGHT, _HALF, _EACH, _ODD = 10, 7, 4, 2, 2
"""How often questions are asked; one that nobody means comes between others, for what an exception leaves
behind may be more than there was."""


@dataclass(frozen=True)
class Shape:
    """Describe the parts of a query and their values."""

    kinds: str
    values: tuple[tuple[Any, ...], ...]
    keys: tuple[Any, ...] | None = None
    mark: str | None = None
    bare: bool = False
    """Whether the only part is the question itself."""
    plain: bool = False
    """Whether a mapping is Python's own: some code looks at the type."""

    def question(self, places: Sequence[int]) -> Any:
        """Return a new query with the given value of each part.

        Without places it is one that nobody means: the usual parts in the other order.
        """
        spots = places or [0] * len(self.values)
        parts = [some[min(i, len(some) - 1)] for some, i in zip(self.values, spots, strict=True)]
        return self.of(parts if places else parts[::-1])

    def of(self, parts: Sequence[Any]) -> Any:
        """Return the question with these parts."""
        if self.bare:
            return parts[0]
        if self.mark is not None:
            return self.mark.join(map(str, parts))
        if self.keys is None:
            return tuple(parts)
        kind = dict if self.plain else Asked
        return kind(zip(self.keys, parts, strict=True))

    def conversation(self) -> list[list[int]]:
        """Return all queries in order, each part by its value's index."""
        usual = [0] * len(self.kinds)
        others = list(self.others())
        dear = [self._at(places, 1) for places in ([usual, *others] if "c" in self.kinds else [])]
        most, whole = ([self._at(usual, cost)] if dear else [] for cost in (2, 3))
        each = [places for places in others for _ in range(_EACH)]
        again = [usual] * _HALF + (dear[:1] or [usual]) * _HALF
        odd: list[list[int]] = [[], usual, usual] * _ODD if len(self.kinds) > 1 else []
        odd += [self._at(usual, -1), *dear[:1]] * _ODD if dear else []
        begin = (
            [usual, *most] + [usual] * _EIGHT + whole + [usual] * (_QUESTION_PARTS_OFTEN - _EIGHT)
        )
        return begin + each + dear + most + again + odd

    def others(self) -> Iterator[list[int]]:
        """Yield the queries that change one part, as indices of values."""
        for part, values in enumerate(self.values):
            if self.kinds[part] != "c":
                for i in range(1, len(values)):
                    yield [i if k == part else 0 for k in range(len(self.kinds))]

    def _at(self, places: Sequence[int], cost: int) -> list[int]:
        return [cost if kind == "c" else i for kind, i in zip(self.kinds, places, strict=True)]


# --------------------------------------------------------------------------------------------------
# Conversations of one kind of question, many times over: what is charged too little, or not, adds up.
#
# A budget in Python that rounds a price, or ends only where exactly nothing is left, answers one question
# for ever; one that keeps answers may keep them under names of which one question has many; one
# that gives
# back what a failed batch would have cost may have answered a part of it. Which of these a queryable lets
# pass is seen along its tape (``costliest_analyst``).

_TIMES, _FEW = 24, 12
_BELOW, _SMALL = 0.96, (0.04, 0.01)
"""How far below a number of the code a cost is that may be rounded down; costs that round to nothing."""
_INSISTENT_MOST_COSTS, _INSISTENT_MOST_TEXTS, _BLANKS = 14, 8, 8
_UNKNOWN = "?"


def repeated_queries(
    shape: Shape, texts: Sequence[str], numbers: Iterable[float]
) -> Iterator[list[Any]]:
    """Yield conversations, as lists of questions."""
    usual = [values[0] for values in shape.values]
    for cost in _costs_insistent(shape, numbers):
        yield [shape.of(_costing(shape, usual, cost))] * _TIMES
    if "c" not in shape.kinds:
        yield [shape.of(usual)] * _TIMES
    for part, kind in enumerate(shape.kinds):
        if kind == "t":
            for text in texts[:_INSISTENT_MOST_TEXTS]:
                yield [shape.of(_with(usual, part, text))] * _TIMES
            yield [shape.of(_with(usual, part, text)) for text in _alike(str(usual[part]))]
        elif kind != "c":
            yield [shape.of(_with(usual, part, number)) for number in range(_TIMES)]
    yield from _partly(shape, usual)


def _costs_insistent(shape: Shape, numbers: Iterable[float]) -> list[float]:
    """Return costs of the shape, of the code and below them."""
    if "c" not in shape.kinds:
        return []
    usual = [float(cost) for cost in shape.values[shape.kinds.index("c")] if cost > 0]
    named = sorted({float(n) for n in numbers if 0 < n <= 1})[:_INSISTENT_MOST_COSTS]
    below = [_BELOW * n for n in named]
    return list(dict.fromkeys((*usual, *below, *named, *_SMALL)))[: 2 * _INSISTENT_MOST_COSTS]


def _costing(shape: Shape, parts: Sequence[Any], cost: float) -> list[Any]:
    return [cost if kind == "c" else part for kind, part in zip(shape.kinds, parts, strict=True)]


def _with(parts: Sequence[Any], place: int, value: Any) -> list[Any]:
    return [*parts[:place], value, *parts[place + 1 :]]


def _alike(text: str) -> list[str]:
    """Return spellings that may count as one text."""
    blanks = product(range(_BLANKS), repeat=2)
    every = (f"{' ' * i}{one}{' ' * j}" for i, j in blanks for one in (text, text.upper()))
    return list(islice(dict.fromkeys(every), _TIMES))


def _partly(shape: Shape, usual: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield queries with a known text followed by an unknown one."""
    if shape.keys is not None or shape.bare or "t" not in shape.kinds:
        return
    place = shape.kinds.index("t") + 1
    costs = shape.values[shape.kinds.index("c")][:2] if "c" in shape.kinds else (None,)
    for cost in reversed(costs):
        parts = list(usual if cost is None else _costing(shape, usual, cost))
        yield [shape.of([*parts[:place], _UNKNOWN, *parts[place:]])] * _FEW


# --------------------------------------------------------------------------------------------------

_PATTERNS = (
    *("lh", "nc", "cn", "lhc", "lhn", "clh", "tc", "ct", "tn", "nt", "tlh", "tlhc", "tt"),
    *("ttc", "nnn"),
)
"""Parts of a tuple, in the order in which they are tried: see ``VALUES``."""
_OFTEN, _MOST_NAMES, _MOST_DISTANCE, _SECONDS = 10, 6, 16, 3.0
_QUESTION = 1e-3  # nominal seconds of a queryable that is made and asked
_TEXTS, _MOST_TEXTS, _TRIES, _MOST_KEYS = 12, 4, 60, 4
_DEAREST, _MOST_COSTS, _LONGEST_MARK, _SOME, _ALONE = 16.0, 8, 3, 6, "cnt"
_BORDER, _BORDERS = 100, 2
_INSIDE = 5
"""A record between all lower ends and all upper ends."""


def of_shapes(
    releases: Sequence[Callable[[], Any]],
    member: Callable[[Any], bool] = lambda _: False,
    distance: Any = 1,
    words: Sequence[str] = (),
    numbers: Iterable[float] = (),
    claim: float = 1.0,
) -> Driver | None:
    """Return a driver with queries of several parts, or None."""
    numbers = tuple(numbers)
    texts = tuple(dict.fromkeys((*VALUES["t"], *words)))[:_TEXTS]
    costs = _costs(numbers, claim)
    shape, end = None, work_seconds() + _SECONDS
    for some in (
        *((one,) for one in releases),
        releases,
    ):  # at last it is enough that answers differ
        asking = _Asking(some, texts, costs, end)
        shape = shape or _of_keys(asking) or _of_tuples(asking)
        shape = shape or _of_marks(asking, words) or _bare(asking) or _of_words(asking, words)
    if shape is None:
        return None
    turns = _turns(shape, releases)
    asked = [shape.question(places) for places in shape.conversation()]
    asked = [turns.second, *asked] if turns.bare else asked

    def drive(queryable: Any) -> tuple[Any, ...]:
        heard = [heard_of(queryable, one) for one in asked]
        more = turns(heard, partial(heard_of, queryable))
        flat = tuple(itertools.chain.from_iterable(heard))
        total = sum(cell for cell in flat if isinstance(cell, float) and cell > REFUSED)
        return total, *more, *(map(str, flat) if turns.bare else flat)  # of one kind each

    told = (
        f"{asked[0]!r}, more than {_OFTEN} times, others like it, and it again: {len(asked)} in all"
    )
    pairs = _pairs(shape, member, distance, numbers)
    others = () if turns.bare else repeated_queries(shape, texts, numbers)
    return Driver(
        drive, f"the question {told}", pairs, others=tuple(_driver_of(one, pairs) for one in others)
    )


def of_bare(key: Any, pairs: tuple[Pair, ...]) -> tuple[Driver, ...]:
    """Return drivers that repeat or vary a number or a text."""
    shape = Shape("t" if isinstance(key, str) else "n", ((key,),), bare=True)
    return tuple(_driver_of(one, pairs) for one in repeated_queries(shape, (), ()))


def _driver_of(asked: list[Any], pairs: tuple[Pair, ...]) -> Driver:
    """Return a driver that asks these questions and no others."""

    def drive(queryable: Any) -> tuple[Any, ...]:
        flat = tuple(itertools.chain.from_iterable(heard_of(queryable, one) for one in asked))
        return sum(cell for cell in flat if isinstance(cell, float) and cell > REFUSED), *flat

    same = all(repr(one) == repr(asked[0]) for one in asked)
    more = f"{len(asked)} times" if same else f"{asked[1]!r} and others, {len(asked)} in all"
    return Driver(drive, f"the question {asked[0]!r}, {more}", pairs)


def _turns(shape: Shape, releases: Sequence[Callable[[], Any]]) -> Turns:
    """Return the alternation of the usual and the next query."""
    usual = [0] * len(shape.kinds)
    first, second = (shape.question(p) for p in (usual, next(iter(shape.others()), usual)))
    heard = [heard_of(one(), first) for one in releases for _ in range(_SOME)]
    return Turns(first, second, heard)


@dataclass(frozen=True)
class _Asking:
    """What is asked for a shape."""

    releases: Sequence[Callable[[], Any]]
    texts: tuple[str, ...]
    costs: tuple[tuple[float, ...], ...]
    end: float
    """The nominal second after which nothing is asked any more."""

    def answered(self, question: Callable[[], Any]) -> bool:
        """Return whether an answer within some seconds has a number."""
        if work_seconds() > self.end:
            return False
        charge(_QUESTION * (1 if len(self.releases) == 1 else _SOME * len(self.releases)))
        if len(self.releases) == 1:
            return is_answer(heard_of(self.releases[0](), question()))
        heard = [heard_of(one(), question()) for one in self.releases for _ in range(_SOME)]
        return len({cells for cells in heard if cells != (REFUSED,)}) > 1


def _costs(numbers: Iterable[float], claim: float) -> tuple[tuple[float, ...], ...]:
    """Return candidate costs."""
    parts = [tuple(scale * cost for cost in VALUES["c"]) for scale in (claim, 1.0)]
    named = sorted({float(n) for n in numbers if 0 < n <= _DEAREST})[:_MOST_COSTS]
    own = [(n, named[len(named) // 2], named[-1], named[-1], -n) for n in named]
    return tuple(dict.fromkeys((*parts, *own)))


def _of_tuples(asking: _Asking) -> Shape | None:
    for kinds in _PATTERNS:
        found = _answered(asking, Shape(kinds, tuple(VALUES[k] for k in kinds)))
        if found is not None:
            return found
    return None


def _of_marks(asking: _Asking, words: Sequence[str]) -> Shape | None:
    """Return a text query with a separator of the code, or None."""
    marks = [w for w in words if 0 < len(w) <= _LONGEST_MARK and not any(map(str.isalnum, w))]
    for mark, kinds in itertools.product(marks[:_MOST_KEYS], _PATTERNS):
        values = tuple(VALUES[k] for k in kinds)
        found = _answered(asking, Shape(kinds, values, mark=mark))
        if found is not None:
            return found
    return None


def _bare(asking: _Asking) -> Shape | None:
    """Return a question that is one cost, number or text."""
    for kind in _ALONE:
        found = _answered(asking, Shape(kind, (VALUES[kind],), bare=True))
        if found is not None:
            return found
    return None


def _of_keys(asking: _Asking) -> Shape | None:
    """Return a mapping of recorded keys that is answered, or None."""
    asked = AttributeMapping()
    heard_of(asking.releases[-1](), asked)
    tried: set[tuple[Any, ...]] = set()
    while (
        asked and (keys := tuple(asked)) not in tried and work_seconds() < asking.end
    ):  # a text may have to be there for more keys
        if all(isinstance(key, int) for key in keys):
            return None  # these are the places of a tuple
        tried.add(keys)
        numbers = "".join(map(kind_of_key, keys[:_MOST_KEYS]))
        for kinds in itertools.product(*((kind, "t") for kind in numbers)):
            made = Shape("".join(kinds), tuple(VALUES[k] for k in kinds), keys[: len(numbers)])
            found = _answered(asking, made)
            if found is not None:
                return found
            asked.update(made.question([0] * len(kinds)))
            charge(_QUESTION)
            heard_of(asking.releases[-1](), asked)
    return None


def _of_words(asking: _Asking, words: Sequence[str]) -> Shape | None:
    """Return a dict with words of the code as keys, or None."""
    names = [word for word in words if word.isidentifier()][:_MOST_NAMES]
    for count in range(1, _MOST_KEYS):
        for keys in itertools.combinations(names, count):
            kinds = "".join(map(kind_of_key, keys))
            values = tuple(VALUES[kind] for kind in kinds)
            found = _answered(asking, Shape(kinds, values, keys, plain=True))
            if found is not None:
                return found
    return None


def _answered(asking: _Asking, shape: Shape) -> Shape | None:
    """Return a shape with answered texts and costs, or None."""
    places = [i for i, kind in enumerate(shape.kinds) if kind == "t"]
    costs = asking.costs if "c" in shape.kinds else asking.costs[:1]
    chosen = itertools.product(costs, itertools.product(asking.texts, repeat=len(places)))
    for cost, some in itertools.islice(chosen, _TRIES):
        values = [
            cost if kind == "c" else known
            for kind, known in zip(shape.kinds, shape.values, strict=True)
        ]
        for place, text in zip(places, some, strict=True):
            values[place] = (text, *(other for other in asking.texts if other != text))[
                :_MOST_TEXTS
            ]
        made = replace(shape, values=tuple(values))
        if asking.answered(partial(made.question, [0] * len(values))):
            return made
    return None


def _pairs(
    shape: Shape, member: Callable[[Any], bool], distance: Any, numbers: Iterable[float]
) -> tuple[Pair, ...]:
    """Return neighbours with records from the usual query's values."""
    if not isinstance(distance, int) or distance > _MOST_DISTANCE:
        return ()
    usual = [some[0] for some in shape.values]
    named = sorted(int(n) for n in numbers if n == int(n) and 1 < n <= _BORDER)[-_BORDERS:]
    records = [
        kind(v)
        for v in (_INSIDE, *usual, *named)
        for kind in (type(v), float, str)
        if _fits(kind, v)
    ]
    made = (Pair([], [record] * distance, distance) for record in dict.fromkeys(records))
    return tuple(pair for pair in made if member(pair.left) and member(pair.right))


def _fits(kind: type, value: Any) -> bool:
    return kind is str or isinstance(value, (int, float)) or kind is type(value)
