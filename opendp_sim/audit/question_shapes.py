"""Questions for a queryable of an unknown kind: what it takes is found by asking synthetic releases.

A question of several parts is a tuple, or a mapping whose keys the queryable itself asks for. The
conversation is one analyst's, fixed before any dataset is seen: one cheap question many times, others
like it, dearer ones, and the first again. What is charged too little, once for a label, or not at all
when it is asked again, is then answered beyond the claim.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.curious import VALUES, Curious, kind_of_key
from opendp_sim.audit.driver import REFUSED, Driver
from opendp_sim.audit.heard import heard_of, is_answer
from opendp_sim.audit.in_turns import Turns
from opendp_sim.audit.insistent import insistent
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.question_parts import Shape

__all__ = ["of_bare", "of_shapes"]

_PATTERNS = (
    "lh",
    "nc",
    "cn",
    "lhc",
    "lhn",
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
"""Parts of a tuple, in the order in which they are tried: see ``VALUES``."""
_OFTEN, _MOST_NAMES, _MOST_DISTANCE, _SECONDS = 10, 6, 16, 3.0
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
    """Return a driver that asks questions of several parts; ``None`` where none is answered.

    Args:
        releases: each makes a queryable of a synthetic dataset; the next one is for a queryable that
            answers nothing about the first.
        member: whether a dataset is in the domain; records that are asked about are what differs.
        distance: how many records differ.
        words: texts that may be a part of a question.
        numbers: what a question may cost, beside the usual costs.
        claim: the loss that is claimed, of which questions cost parts.
    """
    numbers = tuple(numbers)
    texts = tuple(dict.fromkeys((*VALUES["t"], *words)))[:_TEXTS]
    costs = _costs(numbers, claim)
    shape, end = None, cpu_seconds() + _SECONDS
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
    others = () if turns.bare else insistent(shape, texts, numbers)
    return Driver(
        drive, f"the question {told}", pairs, others=tuple(_told(one, pairs) for one in others)
    )


def of_bare(key: Any, pairs: tuple[Pair, ...]) -> tuple[Driver, ...]:
    """Return drivers that ask for a number or a text many times, or for many that may be one."""
    shape = Shape("t" if isinstance(key, str) else "n", ((key,),), bare=True)
    return tuple(_told(one, pairs) for one in insistent(shape, (), ()))


def _told(asked: list[Any], pairs: tuple[Pair, ...]) -> Driver:
    """Return a driver that asks these questions and no others."""

    def drive(queryable: Any) -> tuple[Any, ...]:
        flat = tuple(itertools.chain.from_iterable(heard_of(queryable, one) for one in asked))
        return sum(cell for cell in flat if isinstance(cell, float) and cell > REFUSED), *flat

    same = all(repr(one) == repr(asked[0]) for one in asked)
    more = f"{len(asked)} times" if same else f"{asked[1]!r} and others, {len(asked)} in all"
    return Driver(drive, f"the question {asked[0]!r}, {more}", pairs)


def _turns(shape: Shape, releases: Sequence[Callable[[], Any]]) -> Turns:
    """Return what asks the usual question and the first other one in turns."""
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
    """The CPU second after which nothing is asked any more."""

    def answered(self, question: Callable[[], Any]) -> bool:
        """Say whether an answer holds a number; of several datasets, whether answers differ.

        After some seconds of asking none does.
        """
        if cpu_seconds() > self.end:
            return False
        if len(self.releases) == 1:
            return is_answer(heard_of(self.releases[0](), question()))
        heard = [heard_of(one(), question()) for one in self.releases for _ in range(_SOME)]
        return len({cells for cells in heard if cells != (REFUSED,)}) > 1


def _costs(numbers: Iterable[float], claim: float) -> tuple[tuple[float, ...], ...]:
    """Return costs as in ``VALUES``: parts of the claim, the same of 1, and numbers of the code."""
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
    """Return a text of parts with a mark of the code between them."""
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
    """Return a mapping that is answered: its keys are those that the queryable asks for."""
    asked = Curious()
    heard_of(asking.releases[-1](), asked)
    tried: set[tuple[Any, ...]] = set()
    while (
        asked and (keys := tuple(asked)) not in tried and cpu_seconds() < asking.end
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
            heard_of(asking.releases[-1](), asked)
    return None


def _of_words(asking: _Asking, words: Sequence[str]) -> Shape | None:
    """Return a mapping of Python's own whose keys are words of the code: it may look at the type."""
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
    """Return a shape with texts and costs that are answered; ``None`` where none is."""
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
    """Return neighbours that differ in records like the parts of the usual question, between them, or as
    the code names: at a border of its own.
    """
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
