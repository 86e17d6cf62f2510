"""Generate blocks of equal records, and neighbours by edits at their borders.

Records come from the domain's corners, from the grammar, and from the costliest records of every path
that the audited code has taken (``explore``).
"""

from __future__ import annotations

import contextlib
import math
import sys
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from opendp_sim.audit.generators.atoms import ValueSource
from opendp_sim.audit.generators.datasets import atom_of
from opendp_sim.audit.generators.domain_filter import quiet_member
from opendp_sim.audit.generators.neighbours import Edit, Pair, RecordSpace, _Genome
from opendp_sim.audit.generators.vectors import MapSpace, VectorSpace
from opendp_sim.audit.seeds.constants import LARGEST_SIZE, MOST_SIZES, Mined
from opendp_sim.audit.seeds.grammar import Grammar
from opendp_sim.core.randomness import public_generator

_SIZES, _WIDE, _MOST_ROWS = (1, 2, 3, 5, 8, 20, 40), (300, 3000), 64
"""Usual numbers of records, large ones, and most of records that are asked one by one."""
_DRAWN, _NEAR, _FIRST, _TRIES, _ELITES = 240, 80, 24, 3, 40
"""Values drawn at first, kept, tried alone; draws for a member; records kept of an exploration."""
_MOST_LETTERS = 20_000
_SHARES = (0.5, 0.5, 0.0, 1.0, 0.1, 0.9)
_LIMITS = (2**7, 2**8, 2**15, 2**16)


@dataclass(frozen=True)
class BlockSpace(RecordSpace):
    """Draw blocks of records with an edit at a border."""

    fresh: Callable[[np.random.Generator], Any] = lambda _: None
    varied: Callable[[Any, np.random.Generator], Any] = lambda value, _: value
    member: Callable[[Any], bool] = lambda _: True
    near: tuple[Any, ...] = ()
    """Values of the grammar that are members."""
    sizes: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    """Numbers of the code between 0 and 1: parts of the records, where they are quantiles."""
    elites: list[Any] = field(default_factory=list)
    """The costliest record of every path."""

    def draw(self, rng: np.random.Generator, distance: int | None = None) -> Pair:
        """Return two blocks with an edit at a border, or any pair."""
        distance = self.d_in if distance is None else distance
        if rng.random() < 0.35 or distance == 0:
            return super().draw(rng, distance)
        first, size = self._record(rng), self._size(rng)
        second = self._varied(first, rng) if rng.random() < 0.3 else self._record(rng)
        if self.records.size is None and isinstance(first, str):
            size = min(size, max(_MOST_LETTERS // max(len(first), len(second), 1), 2))
        share = _of(rng, self.shares if self.shares and rng.random() < 0.6 else _SHARES)
        cut = min(max(round(share * size) + int(rng.integers(-1, 2)), 0), size)
        base = (first,) * cut + (second,) * (size - cut)
        record = _of(rng, (first, second, self._record(rng), self._varied(first, rng)))
        at = int(_of(rng, (0, cut, max(cut - 1, 0), max(size - self._sized, 0))))
        kind = "replace" if self._sized else _of(rng, ("insert", "insert", "delete"))
        edits = [Edit(kind, at, record)] * self._operations(distance)
        if kind == "replace":
            edits = [Edit(kind, at + i, record) for i in range(len(edits))]
        if self.metric in ("SymmetricDistance", "ChangeOneDistance") and rng.random() < 0.1:
            edits.append(Edit("shuffle", int(rng.integers(2**31))))
        return self._pair(_Genome(base, tuple(edits)), distance)

    def corners(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield records alone, then the usual corners and blocks by turns."""
        usual = super().corners(rng)
        alone = [*self.elites[:10], *self.records.source.corners[:14], *self.near[:_FIRST]]
        yield from map(self.alone, alone)
        for value in (*self.elites[10:], *self.near[_FIRST:]):
            yield self.alone(value)
            yield self.draw(rng)
        yield from self._reversed(rng)
        for pair in usual:
            yield pair
            yield self.draw(rng)

    def _reversed(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield blocks of similar records and their reverse, at distance zero."""
        if self.metric not in ("SymmetricDistance", "ChangeOneDistance") or self.records.size:
            return
        for _ in range(_FIRST):
            one, many = self._record(rng), int(_of(rng, _SIZES))
            base = (one,) * many + (self._varied(one, rng),) * many
            yield self._pair(_Genome(base, (Edit("reverse", 0),)), 0)

    def alone(self, value: Any) -> Pair:
        """Return the pair of one record against none or the simplest."""
        size = self.records.size or (self.d_in if self._sized else 0)
        base = (self.records.source.simplest,) * size
        return self._pair(_Genome(base, self._all_edits(value)), self.d_in)

    def _size(self, rng: np.random.Generator) -> int:
        k = rng.random()
        if self.records.size is not None:
            return self.records.size
        if k < 0.45 and self.sizes:
            return int(_of(rng, self.sizes))
        return int(_of(rng, _WIDE if 0.45 <= k < 0.53 and self._plain else _SIZES))

    @property
    def _plain(self) -> bool:
        return not isinstance(self.records.source.simplest, (tuple, list))

    def _record(self, rng: np.random.Generator) -> Any:
        """Return an extreme, an elite, or any record."""
        k, source = rng.random(), self.records.source
        if k < 0.3:
            return _of(rng, extremes(source))
        if self.elites and k < 0.65:
            return _of(rng, self.elites)
        return source.pick(rng)

    def _varied(self, record: Any, rng: np.random.Generator) -> Any:
        other = self.varied(record, rng)
        return other if self.member(other) else record


def extremes(source: ValueSource) -> list[Any]:
    """Return the simplest value, with the least and the greatest of numbers."""
    known = [c for c in source.corners if c is not None]
    if not all(isinstance(c, (int, float)) and not isinstance(c, bool) for c in known):
        return [source.simplest, *known[:3]]
    finite = [c for c in known if math.isfinite(c)]
    return [source.simplest, min(finite), max(finite)] if finite else [source.simplest]


def widened(
    source: ValueSource, grammar: Grammar, member: Callable[[Any], bool]
) -> tuple[ValueSource, tuple[Any, ...], Callable[[np.random.Generator], Any]]:
    """Return the source widened by a grammar, its values, their maker."""
    examples = [c for c in (source.simplest, *source.corners) if c is not None][:_FIRST]

    def fresh(rng: np.random.Generator) -> Any:
        for _ in range(_TRIES):
            value = grammar.like(_of(rng, examples), rng)
            if member(value):
                return value
        return source.draw(rng)

    if not examples or not isinstance(examples[0], (str, int, float, tuple, list)):
        return source, (), source.draw
    rng, found = public_generator(0, "audit", "grammar"), dict[str, Any]()
    for _ in range(_DRAWN):
        value = grammar.like(_of(rng, examples), rng)
        found.setdefault(repr(value), value)
    known = set(map(repr, source.corners))
    near = [v for key, v in found.items() if key not in known and member(v)][:_NEAR]

    def draw(rng: np.random.Generator) -> Any:
        k = rng.random()
        if near and k < 0.3:
            return _of(rng, near)
        return fresh(rng) if k < 0.6 else source.draw(rng)

    return ValueSource((*source.corners, *near), draw, source.simplest), tuple(near), fresh


def sizes_of(found: Mined, top: int) -> list[int]:
    """Return numbers of records near constants, limits of sums and thresholds.

    A sum of records ``top``, or of a clamp in the code, passes the limit of a narrow type, or a constant.
    A threshold of keys is about ``log(1 / delta) / epsilon``.
    """
    whole = [int(c) for c in found.numbers if c == int(c) and c > 1]
    clamps = [top, *sorted(c for c in whole if 10 <= c < top)[-3:]]
    limits = [*_LIMITS, *(c for c in whole if c > top > 0)]
    sums = [limit // c + k for limit in limits for c in clamps if c > 0 for k in (0, 1)]
    rates = sorted({1.0, *(float(c) for c in found.numbers if 0.05 <= c <= 10)})[:6]
    deltas = sorted(c for c in found.numbers if 0 < c <= 0.1)[:6]
    keys = [math.floor(-math.log(d) / r) + k for d in deltas for r in rates for k in (0, 1, 2)]
    kinds = [sorted(n for n in kind if 2 <= n <= LARGEST_SIZE) for kind in (sums, keys)]
    return [*found.sizes, *(n for kind in kinds for n in dict.fromkeys(kind[:MOST_SIZES]))]


def guided(space: Any, domain: Any, found: Mined) -> Any:
    """Return the space of records extended by the grammar of the code."""
    grammar = Grammar(found)
    if isinstance(space, VectorSpace):
        element = domain if space.scalar else domain.element_domain
        return replace(space, source=widened(atom_of(element), grammar, quiet_member(element))[0])
    if isinstance(space, MapSpace):
        keys, values = (widened(s, grammar, lambda _: True)[0] for s in (space.keys, space.values))
        return replace(space, keys=keys, values=values)
    if type(space) is not RecordSpace or not space.records.plain:
        return space
    atoms, build = True, space.records.build
    member: Callable[[Any], bool]
    try:
        member = quiet_member(domain.element_domain)
    except Exception:  # noqa: BLE001 - records are not atoms, and asked one by one
        whole, atoms = quiet_member(domain), False

        def member(value: Any) -> bool:
            try:
                return whole(build([value]))
            except Exception:  # noqa: BLE001 - a value of the code that fits no column
                return False

    plain = space.records.source
    source, near, fresh = widened(plain, grammar, member)
    tops = (abs(c) for c in plain.corners if isinstance(c, int) and not isinstance(c, bool))
    sizes = sizes_of(found, max(tops, default=0))
    return BlockSpace(
        replace(space.records, source=source),
        space.metric,
        space.d_in,
        space.longest,
        fresh,
        grammar.varied,
        member,
        near,
        tuple(dict.fromkeys(n for n in sizes if atoms or n <= _MOST_ROWS)),
        tuple(sorted({float(c) for c in found.numbers if 0.0 < c < 1.0}, reverse=True)),
    )


# --------------------------------------------------------------------------------------------------
# The costliest record of every path: found by running the code on one record beside none.


def block_space(space: Any) -> BlockSpace | None:
    """Return the space of blocks inside filters of pairs, or None."""
    while space is not None and not isinstance(space, BlockSpace):
        space = getattr(space, "space", None)
    return space


def explore(
    space: BlockSpace,
    price: Callable[[Pair], tuple[float, str]],
    functions: Collection[types.FunctionType],
    rng: np.random.Generator,
    go_on: Callable[[int], bool],
) -> None:
    """Keep the costliest record of every path of a run."""
    files = {function.__code__.co_filename for function in functions}
    niches: dict[Any, tuple[float, Any]] = {}
    runs = 0
    queue = [*space.records.source.corners]
    while go_on(runs):
        if runs < len(queue):
            value = queue[runs]
        elif niches and rng.random() < 0.5:
            value = space.varied(_of(rng, [*niches.values()])[1], rng)
        else:
            value = space.fresh(rng)
        runs += 1
        if not space.member(value):
            continue
        with lines_of(files) as lines, contextlib.suppress(Exception):
            loss, finding = price(space.alone(value))
            niche = frozenset(lines), finding
            if niche not in niches or loss > niches[niche][0] + 1e-9:
                niches[niche] = loss, value
    ranked = sorted(niches.values(), key=lambda found: -found[0])
    space.elites[:] = [value for _, value in ranked][:_ELITES]


@contextlib.contextmanager
def lines_of(files: Collection[str]) -> Iterator[set[tuple[str, int]]]:
    """Collect the lines that run in some files, exceptions apart."""
    lines: set[tuple[str, int]] = set()

    def line(frame: Any, event: str, _: Any) -> Any:
        sign = -1 if event == "exception" else 1
        lines.add((frame.f_code.co_name, sign * frame.f_lineno))
        return line

    def call(frame: Any, _event: str, _: Any) -> Any:
        return line if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield lines
    finally:
        sys.settrace(before)


def _of(rng: np.random.Generator, items: Sequence[Any]) -> Any:
    return items[int(rng.integers(len(items)))]
