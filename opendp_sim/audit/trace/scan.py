"""Scan pairs along their tapes, without draws, for costly ones."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opendp_sim.audit.generators.copies import on_its_own
from opendp_sim.audit.generators.domain_filter import quiet_member
from opendp_sim.audit.generators.neighbours import Pair, PairSpace
from opendp_sim.audit.instrument.compare_tapes import Claim, View, alike, look, numbers
from opendp_sim.audit.instrument.decompose_chain import has_maps, taken_apart
from opendp_sim.audit.instrument.python_queryable import asked_directly
from opendp_sim.audit.instrument.tape import Tape, TapeEndError
from opendp_sim.audit.outputs.encoding import Raised
from opendp_sim.audit.outputs.reading import Reader
from opendp_sim.audit.statistics.sampling import differ
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.work import work_seconds

_KEPT, _KEPT_OF_A_FINDING = 200, 400
_PROBES = 6
_FIRST_ASKED = 0.2
"""Part of the seconds, or of the pairs, between two looks at whether the best pair decides already."""


@dataclass(frozen=True)
class Found:
    """A pair and what its tapes say."""

    loss: float
    number: int
    pair: Pair
    view: View


@dataclass
class Scan:
    """What a scan has seen."""

    pairs: int = 0
    best: list[Found] = field(default_factory=list)
    odd: dict[str, list[Found]] = field(default_factory=dict)
    sizes: set[int] = field(default_factory=set)

    def keep(self, found: Found) -> None:
        """Remember a pair by its loss, and by its finding."""
        self.best.append(found)
        if len(self.best) > 2 * _KEPT:
            self.sort()
        if found.view.finding:
            odd = self.odd.setdefault(found.view.finding, [])
            if len(odd) < _KEPT_OF_A_FINDING:
                odd.append(found)

    def sort(self) -> None:
        """Put the costliest first."""
        self.best.sort(key=lambda f: (-f.loss, f.number))
        del self.best[_KEPT:]


def scan(
    tape: Tape,
    function: Callable[[Any], Any],
    space: PairSpace,
    given: Iterable[Pair],
    claim: Claim,
    rng: np.random.Generator,
    most: tuple[float, int],
    domain: Any,
    enough: Callable[[Found], bool] = lambda _: False,
) -> Scan:
    """Scan given, corner, fresh and mutated pairs.

    ``most`` is how many seconds and how many pairs. ``enough`` says of the best pair so far whether it
    decides the matter; it is asked a few times.
    """
    out, begin, member = Scan(), work_seconds(), quiet_member(domain)
    seconds, count = max(most[0], 1e-9), most[1]
    asked = _FIRST_ASKED
    for pair in _pairs(space, given, rng, out, begin, seconds):
        spent = max((work_seconds() - begin) / seconds, out.pairs / count)
        if spent >= 1:
            break
        if spent > asked and out.best:
            asked = spent + _FIRST_ASKED
            if enough(max(out.best, key=lambda f: f.loss)):
                break
        if not differ(pair.left, pair.right):
            continue
        out.pairs += 1
        out.sizes.update(n for n in map(_records, (pair.left, pair.right)) if n is not None)
        for side in (pair, pair.flipped()):
            with contextlib.suppress(TapeEndError, Exception):
                view = look(tape, function, side, claim)
                interesting = bool(view.finding) or view.loss > 1
                if interesting and not _inside(member, side):
                    break
                out.keep(Found(view.loss, out.pairs, pair, view))
    out.sort()
    return out


def _records(data: Any) -> int | None:
    """Return how many records a dataset has, if it has records."""
    if hasattr(data, "collect_schema"):
        return int(data.collect().height)
    many = isinstance(data, list) or (isinstance(data, np.ndarray) and data.ndim)
    return len(data) if many else None


def _inside(member: Callable[[Any], bool], pair: Pair) -> bool:
    try:
        return member(pair.left) and member(pair.right)
    except Exception:  # noqa: BLE001 - a domain that cannot say
        return True


def _pairs(
    space: PairSpace,
    given: Iterable[Pair],
    rng: np.random.Generator,
    out: Scan,
    begin: float,
    seconds: float,
) -> Iterator[Pair]:
    yield from given
    structured = list(space.corners(rng))
    head, rest = structured[:24], structured[24:]
    rng.shuffle(rest)
    for pair in head + rest:
        if work_seconds() - begin > 0.6 * seconds:
            break
        yield pair
    while True:
        tops = [found for found in out.best[-_KEPT:] if found.pair.genome is not None]
        if tops and rng.random() < 0.6:
            out.sort()
            top = out.best[int(rng.integers(min(4, len(out.best))))].pair
            yield space.mutate(top, rng) if top.genome is not None else space.draw(rng)
        else:
            yield space.draw(rng)


def direct_function(
    tape: Tape,
    obj: Any,
    functions: list[types.FunctionType],
    space: PairSpace,
    rng: np.random.Generator,
    given: list[Any] | None = None,
) -> Callable[[Any], Any] | None:
    """Return the audited Python function itself; ``None`` unless it is surely that.

    The first of the user's functions that a run enters, the only one with its code, and equal in
    outputs to the object on equal tapes of several datasets. Of a ``partial`` among what OpenDP's
    constructors were ``given`` it is the partial.
    """
    if sys.getprofile() is not None or has_maps(tape.outer or obj):
        return None  # OpenDP hands its function a mapping in another order at every call
    codes = {function.__code__ for function in functions}
    entered: list[Any] = []

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call" and not entered and frame.f_code in codes:
            entered.append(frame.f_code)

    probe = space.draw(rng).left
    sys.setprofile(watch)
    try:
        with contextlib.suppress(Exception):
            obj(probe)
    finally:
        sys.setprofile(None)
    same = [f for f in functions if entered and f.__code__ is entered[0]]
    if len(same) != 1:
        return None
    own = Reader().reading(on_its_own(_as_given(given, entered[0]) or same[0]))
    pairs = [space.draw(rng) for _ in range(_PROBES)]
    return own if all(equal_runs(tape, obj, own, pair.left) for pair in pairs) else None


def _as_given(given: list[Any] | None, code: types.CodeType) -> Callable[[Any], Any] | None:
    """Return the only ``partial`` of the code, or None."""
    found = []
    for value in given or []:
        inner = value
        while isinstance(inner, functools.partial):
            inner = inner.func
        if inner is not value and getattr(inner, "__code__", None) is code:
            found.append(value)
    return found[0] if len(found) == 1 else None


def chained_function(
    tape: Tape, subject: Subject, space: PairSpace, rng: np.random.Generator
) -> Callable[[Any], Any] | None:
    """Return a chain as a function.

    ``None`` unless its parts do the same. What is called instead of a transformation must equal it, on
    equal tapes of several datasets.
    """
    raw: Any = subject.run
    while hasattr(raw, "raw"):
        raw = raw.raw
    if raw is not subject.outer:
        return _conversation(tape, subject, getattr(raw, "drive", None), space, rng)
    found = taken_apart(subject.outer)
    if found is None:
        return None
    run, parts = found
    for whole, mine in parts.stages:
        data = [space.draw(rng).left for _ in range(_PROBES)]
        if whole.input_domain == subject.input_domain and not all(
            equal_runs(tape, whole, mine, d, ordered=True) for d in data
        ):
            return None
    return Reader().reading(run)


def _conversation(
    tape: Tape, subject: Subject, drive: Any, space: PairSpace, rng: np.random.Generator
) -> Callable[[Any], Any] | None:
    """Return the Python conversation of an interactive release, or None."""

    def end() -> None:
        tape.ended = True

    run = None if drive is None else asked_directly(subject.outer, drive, end)
    if run is None:
        return None
    own = Reader().reading(run)
    pairs = [space.draw(rng) for _ in range(_PROBES)]
    same = all(equal_runs(tape, subject.run, own, pair.left) for pair in pairs)
    return own if same else None


def equal_runs(
    tape: Tape, obj: Any, function: Callable[[Any], Any], data: Any, *, ordered: bool = False
) -> bool:
    """Return whether object and function agree on one tape, perhaps ordered."""
    try:
        out, draws = tape.run(obj, data, "record")
        mine, again = tape.run(function, data, "force", [d.value for d in draws])
    except TapeEndError:
        return False
    if isinstance(out, Raised) and isinstance(mine, Raised):
        return True
    if ordered and repr(out) != repr(mine):
        return False
    same = alike(out, mine) or (numbers(out) is not None and numbers(out) == numbers(mine))
    return same and [d.told for d in draws] == [d.told for d in again]
