"""Generate datasets from the audited code's constants, as sizes and borders."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opendp_sim.audit.generators.atoms import ValueSource
from opendp_sim.audit.generators.datasets import atom_of
from opendp_sim.audit.generators.domain_filter import quiet_member
from opendp_sim.audit.generators.neighbours import Edit, Pair, RecordSpace, _Genome
from opendp_sim.audit.generators.vectors import VectorSpace
from opendp_sim.audit.seeds.constants import (
    LARGEST_SIZE,
    MOST_SIZES,
    Mined,
    counted,
    joined,
    repeated,
)
from opendp_sim.audit.seeds.missing_values import imputed
from opendp_sim.audit.seeds.text import Texts, ranked, texts_of

# --------------------------------------------------------------------------------------------------
# Numbers that lie apart as the code names: a record between two others halves what is between them.

_MOST = 18
"""Numbers of the code that are tried as distances; those next to them are among them."""


def between(known: Sequence[Any], usual: int) -> Iterator[tuple[tuple[Any, Any], Any]]:
    """Yield two records and their midpoint.

    Twice a number of the code apart: gaps, sessions, visits.

    Args:
        known: records of one number each, those of the code last.
        usual: how many are not of the code.
    """
    numbers = [v for v in known if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if len(numbers) < len(known):
        return
    held = set(numbers)
    named = [v for v in known[usual:] if v > 0 and math.isfinite(v)]
    for gap in named[:_MOST]:
        for low, middle, high in ((-gap, 0, gap), (0, gap, 2 * gap)):
            if {low, high} <= held and middle in held:
                yield (low, high), type(gap)(middle)


# --------------------------------------------------------------------------------------------------
# Records of several parts that are what the code names: a key of its own, and a number beside it.

_WORDS, _NUMBERS = 8, 8


def rows_like(sample: Any, found: Mined) -> Iterator[Any]:
    """Yield variants of a record with words and numbers of the code.

    One part is replaced, or several.

    Args:
        sample: a tuple or a list.
        found: what the code names.
    """
    choices = [_parts(part, found) for part in sample]
    usual = list(sample)
    for place, values in enumerate(choices):
        for value in values:
            yield type(sample)([*usual[:place], value, *usual[place + 1 :]])
    few = [values[:_WORDS] or [part] for part, values in zip(sample, choices, strict=True)]
    for row in itertools.islice(itertools.product(*few), _WORDS * _NUMBERS * 2):
        yield type(sample)(row)


def differs(values: Iterable[Any]) -> list[Any]:
    """Return values without those that were there before; lists have no hash."""
    return list({repr(value): value for value in values}.values())


def _parts(part: Any, found: Mined) -> list[Any]:
    """Return what may stand in the place of a part."""
    if isinstance(part, str):
        return ranked(found)[:_WORDS]
    if isinstance(part, bool) or not isinstance(part, (int, float)):
        return []
    whole = sorted((c for c in found.numbers if c == int(c)), key=lambda c: (-abs(c), c))
    numbers = [0, *whole[:_NUMBERS], *(c - 1 for c in whole[:2])]
    return [type(part)(c) for c in dict.fromkeys(numbers)]


# --------------------------------------------------------------------------------------------------
# Neighbours that show what code does with texts: order of records of one key, thresholds of counts.

_MANY_OF_A_KEY, _RUNGS, _COUNTED, _TIED = (1, 2, 3, 10), range(3, 25), 3, (3, 9)
_MOST_SIZES, _LARGEST_OF_A_KEY = 2, 64
_MOST_THRESHOLDS, _MOST_NUMBERS = 16, 6

Edited = tuple[tuple[str, ...], tuple[Edit, ...]]
"""A dataset and what makes its neighbour."""


def thresholds(numbers: Collection[float]) -> list[int]:
    """Return counts about ``log(1 / delta) / epsilon`` for the numbers of the code."""
    small = sorted(c for c in numbers if 0 < c <= 0.1)[:_MOST_NUMBERS]
    rates = sorted({1.0, *(float(c) for c in numbers if 0.05 <= c <= 10)})[:_MOST_NUMBERS]
    found = (math.floor(-math.log(c) / rate) for c in small for rate in rates)
    near = dict.fromkeys(n + more for n in found for more in (0, 1, 2, -1))
    return [n for n in near if 2 <= n <= LARGEST_SIZE][:_MOST_THRESHOLDS]


@dataclass(frozen=True)
class TextPairs:
    """Neighbours of a space of texts."""

    texts: Texts
    counts: tuple[int, ...] = ()
    """Counts that may be thresholds, beside the small ones."""

    def reordered(self, sizes: Collection[int]) -> Iterator[Edited]:
        """Yield records of one key, and their reverse.

        Datasets at distance zero.

        Args:
            sizes: numbers of records that the code names.
        """
        for many, (low, high) in itertools.product(_sizes(sizes), self.texts.kin):
            yield (low,) * many + (high,) * many, (Edit("reverse", 0),)
        for lows, highs in self.texts.users:
            yield (*lows, *highs), (Edit("reverse", 0),)

    def edited(self, sizes: Collection[int], changes: int, *, sized: bool) -> Iterator[Edited]:
        """Yield datasets and edits of their records.

        Args:
            sizes: numbers of records that the code names.
            changes: how many records an edit changes.
            sized: whether records are replaced, as the number of them is public.
        """
        for many, (low, high) in itertools.product(_sizes(sizes), self.texts.kin):
            for one, other in ((low, high), (high, low)):
                yield (other,) * many, _first(one, changes, sized=sized)
        for run in self.texts.runs:  # one that joins two runs makes a long one
            half = len(run) // 2
            joins = run[half : half + changes]
            if not sized and len(joins) == changes:
                edits = tuple(Edit("insert", half + i, day) for i, day in enumerate(joins))
                yield (*run[:half], *run[half + changes :]), edits
        for (first, second), many in itertools.product(self.texts.apart, (0, 1, 3)):
            if many or not sized:
                yield (second,) * many, _first(first, changes, sized=sized)
        yield from self._counted(changes, sized=sized)

    def _counted(self, changes: int, *, sized: bool) -> Iterator[Edited]:
        """Yield many equal words and one more."""
        keys = self.texts.keys[:_COUNTED] or ("a",)
        other = keys[1] if len(keys) > 1 else "b"
        for n, key in itertools.product(dict.fromkeys((*self.counts, *_RUNGS)), keys):
            unlike = keys[0] if key == other else other
            yield (key,) * n, _first(unlike if sized else key, changes, sized=sized)
        for n, less in itertools.product(_TIED, (0, 1, 2)):
            base = (keys[0],) * n + (other,) * (n - less)
            yield base, _first(other if sized else keys[0], changes, sized=sized)


def _sizes(named: Collection[int]) -> tuple[int, ...]:
    known = [n for n in named if 2 <= n <= _LARGEST_OF_A_KEY][:_MOST_SIZES]
    return tuple(dict.fromkeys((*_MANY_OF_A_KEY, *known)))


def _first(record: str, changes: int, *, sized: bool) -> tuple[Edit, ...]:
    """Return edits that insert or replace a record at the front."""
    return tuple(Edit("replace" if sized else "insert", i, record) for i in range(changes))


# --------------------------------------------------------------------------------------------------

_MOST_VALUES = 60
_COMPOSED = 0.15
"""Share of drawn texts that are made of words and numbers between a mark."""
_SMALL_CLAMP, _MOST_CLAMPS = 10, 3
_FIRST_TEXTS, _FIRST_APART = 8, 2
_ALONE, _BORDERS, _MOST_DISPLACED = 14, 5, 64
"""Corners of one record that come first; sizes at which records are displaced, and the largest."""
_NARROW = 2**7, 2**8, 2**15, 2**16
_STAIRS, _LONGEST_STAIRS, _MOST_STAIRS, _MOST_SHARES = (40, 12), 300, 10, 3
"""Sizes at which quantiles are tried besides those of the code, the largest, how many sizes and parts."""
USUAL_SIZES = (300, 3000)
"""Always tried where the number of records is free."""


def _values(source: ValueSource, found: Mined, member: Callable[[Any], bool]) -> list[Any]:
    """Return mined values and their neighbours in the source's domain."""
    sample = next((v for v in (source.simplest, *source.corners) if v is not None), None)
    wanted: list[Any] = []
    if isinstance(sample, str):
        wanted = _words(found)
    elif isinstance(sample, int) and not isinstance(sample, bool):
        whole = sorted({int(c) for c in found.numbers if c == int(c)}, key=lambda c: (abs(c), c))
        wanted += [c for n in whole for c in (n, n + 1, n - 1)] + [-c for c in whole]
        wanted += [a * b for a in whole[:6] for b in whole[:6]]
    elif isinstance(sample, float):
        for c in sorted(found.numbers, key=lambda c: (abs(c), c)):
            beside = (math.nextafter(c, math.inf), math.nextafter(c, -math.inf))
            wanted += [float(c), *beside, -float(c)]
    elif isinstance(sample, (tuple, list)):
        wanted = list(rows_like(sample, found))
    known = list(source.corners)
    out: list[Any] = []
    for value in differs(wanted):
        if len(out) < _MOST_VALUES and value not in known and member(value):
            out.append(value)
    return out


def _words(found: Mined) -> list[str]:
    """Return the words of the code, joined, repeated, padded and with numbers."""
    plain: list[str] = []
    for word in sorted(found.words):
        plain += [word, word.upper(), f" {word}", f"{word} "] if len(found.words) < 12 else [word]
    plain += [str(n) for n in sorted(found.numbers)[:20]]
    made = joined(found.words) + repeated(found.words)
    return made + counted(found.words, found.numbers) + plain


def _with_texts(values: list[Any], texts: Texts, member: Callable[[Any], bool]) -> list[Any]:
    """Return values and texts alternately, the last value last."""
    last, fresh = values[-1:], [text for text in texts.values if member(text)]
    turns = itertools.chain.from_iterable(itertools.zip_longest(values[:-1], fresh))
    return [*dict.fromkeys(v for v in turns if v is not None and v not in last), *last]


def _richer(source: ValueSource, values: list[Any], texts: Texts | None = None) -> ValueSource:
    if not values:
        return source

    def draw(rng: np.random.Generator) -> Any:
        if texts is not None and rng.random() < _COMPOSED:
            return texts.draw(rng)
        return values[int(rng.integers(len(values)))] if rng.random() < 0.3 else source.draw(rng)

    return ValueSource((*source.corners, *values), draw, source.simplest)


@dataclass(frozen=True)
class GuidedRecords(RecordSpace):
    """Extend a record space by mined numbers of repeated records."""

    sizes: tuple[int, ...] = ()
    usual: int = 14
    """Corners of the source that were there before the code was read."""
    wide: tuple[int, ...] = USUAL_SIZES
    shares: tuple[float, ...] = ()
    """Numbers of the code between 0 and 1: parts of the records, where they are quantiles."""
    texts: TextPairs | None = None
    """Neighbours for records that are texts."""

    def _base(self, rng: np.random.Generator) -> tuple[Any, ...]:
        if self.records.size is None and (self.sizes or self.wide) and rng.random() < 0.25:
            choices = (*self.sizes, *self.wide)
            size = int(choices[int(rng.integers(len(choices)))])
            pool = [self.records.source.pick(rng) for _ in range(2)]
            if rng.random() < 0.7:
                return (pool[0],) * size
            return tuple(pool[int(b)] for b in rng.integers(2, size=size))
        return super()._base(rng)

    def corners(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield the usual corners, then mined values, then mined sizes."""
        usual = super().corners(rng)
        yield from itertools.islice(usual, min(_ALONE, len(self.records.source.corners)))
        known = self.records.source.corners
        for made in imputed(known, self.records.size, self._all_edits):
            yield self._pair(_Genome(*made), self.d_in)
        yield from self._alone()
        yield from self._displaced()
        yield from usual
        source, d_in = self.records.source, self.d_in
        for value in source.corners[min(14, self.usual) :]:
            base = (source.simplest,) * (self.records.size or 0)
            yield self._pair(_Genome(base, self._all_edits(value)), d_in)
        if self.records.size is not None:
            return
        most = 24 if self.texts is None else 40
        for value in source.corners[self.usual :][:most]:  # a mined value against all others
            for other in (source.corners[0], source.corners[min(self.usual, 9) - 1]):
                yield self._pair(_Genome((other, value, other), self._all_edits(other)), d_in)
        yield from self._stairs()
        yield from self._between()
        yield from self._of_texts()
        pool = source.corners or tuple(source.draw(rng) for _ in range(4))
        low, high, second = pool[0], pool[-1], pool[1 % len(pool)]
        for size in (*self.sizes, *self.wide):
            for value, other in ((low, low), (high, low), (second, high)):
                yield self._pair(_Genome((value,) * size, self._all_edits(other)), d_in)
            half = self._base_of_two(rng, size)
            last = self._all_edits(half[-1])
            if not self._sized:
                last = tuple(Edit("insert", size + i, half[0]) for i in range(d_in))
            yield self._pair(_Genome(half, last), d_in)
            if self.metric in ("SymmetricDistance", "ChangeOneDistance"):
                order = Edit("shuffle", int(rng.integers(2**31)))
                yield self._pair(_Genome(half, (*self._all_edits(half[0]), order)), d_in)

    def _alone(self) -> Iterator[Pair]:
        """Yield words beside others, and the first text of each kind."""
        if self.texts is None:
            return
        for first, second in self.texts.texts.apart[:_FIRST_APART]:
            base = (second,) * (self.records.size or 1)
            yield self._pair(_Genome(base, self._all_edits(first)), self.d_in)
        known = self.records.source.corners
        base = (self.records.source.simplest,) * (self.records.size or int(self._sized))
        for text in self.texts.texts.values[:_FIRST_TEXTS]:
            if text in known:
                yield self._pair(_Genome(base, self._all_edits(text)), self.d_in)

    def _between(self) -> Iterator[Pair]:
        for ends, middle in between(self.records.source.corners, self.usual):
            yield self._pair(_Genome(ends, self._all_edits(middle)), self.d_in)

    def _of_texts(self) -> Iterator[Pair]:
        if self.texts is None:
            return
        if self.metric in ("SymmetricDistance", "ChangeOneDistance"):
            for made in self.texts.reordered(self.sizes):
                yield self._pair(_Genome(*made), 0)
        changes = self._operations(self.d_in)
        for made in self.texts.edited(self.sizes, changes, sized=self._sized):
            yield self._pair(_Genome(*made), self.d_in)

    def _displaced(self) -> Iterator[Pair]:
        """Yield records that displace another across a size limit.

        A bound on rows keeps the first ones. What comes in at the front has one extreme value, and what
        falls out at the end the other.
        """
        if self._sized:
            return
        sizes = [n for n in self.sizes if n <= _MOST_DISPLACED][:_BORDERS]
        for size, (middle, low, high) in itertools.product(sizes, extremes(self.records.source)):
            for last, first in ((low, high), (high, low)):
                edits = tuple(Edit("insert", 0, first) for _ in range(self._operations(self.d_in)))
                yield self._pair(_Genome((*(middle,) * (size - 1), last), edits), self.d_in)

    def _stairs(self) -> Iterator[Pair]:
        """Yield datasets whose order statistic moves by one record."""
        count = self._operations(self.d_in)
        sizes = [n for n in (*_STAIRS, *self.sizes) if count < n <= _LONGEST_STAIRS][:_MOST_STAIRS]
        kinds = ("replace",) if self._sized else ("insert", "delete")
        for (_, low, high), share, size, more in itertools.product(
            extremes(self.records.source), self.shares[:_MOST_SHARES], sizes, (0, 1, -1)
        ):
            lows = min(max(round(share * size) + more, 0), size)
            base = (low,) * lows + (high,) * (size - lows)
            for kind, (spot, mine, other) in itertools.product(
                kinds, ((0, low, high), (size - count, high, low))
            ):
                edit = Edit(kind, spot, other if kind == "replace" else mine)
                yield self._pair(_Genome(base, (edit,) * count), self.d_in)

    def _base_of_two(self, rng: np.random.Generator, size: int) -> tuple[Any, ...]:
        """Return repeated records of one kind, then of another."""
        first, second = (self.records.source.pick(rng) for _ in range(2))
        return (first,) * (size - size // 2) + (second,) * (size // 2)


def extremes(source: ValueSource) -> list[tuple[Any, Any, Any]]:
    """Return triples of a middle, a lowest and a highest record."""
    known = source.corners
    if all(_number(c) for c in known):
        return [(source.simplest, min(known), max(known))] if known else []
    out: list[tuple[Any, Any, Any]] = []
    middle = source.simplest
    for place in range(len(middle) - 1, -1, -1) if isinstance(middle, (tuple, list)) else ():
        rest = (*middle[:place], *middle[place + 1 :])
        kin = [
            c
            for c in known
            if isinstance(c, type(middle))
            and (*c[:place], *c[place + 1 :]) == rest
            and _number(c[place])
        ]
        if len(kin) > 1:
            ordered = sorted(kin, key=lambda c: c[place])
            out.append((middle, ordered[0], ordered[-1]))
    return out[:1]


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _overflowing(source: ValueSource, found: Mined) -> list[int]:
    """Return numbers of largest records whose sum passes a limit.

    The largest record is that of the domain, or a number of the code: a function may clamp by itself.
    """
    reach = {abs(int(v)) for v in source.corners if isinstance(v, int) and not isinstance(v, bool)}
    top = max(reach, default=0)
    whole = [int(c) for c in found.numbers if c == int(c) and c > 1]
    limits = [*_NARROW, *(c for c in whole if c > top > 0)]
    near = [limit // top + k for limit in limits if top for k in (-1, 0, 1)]
    own = sorted(c for c in whole if _SMALL_CLAMP <= c < top)[-_MOST_CLAMPS:]
    near += [limit // c + k for c in own for limit in _NARROW for k in (0, 1)]
    return list(dict.fromkeys(n for n in sorted(near) if 2 <= n <= LARGEST_SIZE))[:MOST_SIZES]


def guided(space: Any, domain: Any, found: Mined) -> Any:
    """Return the space of records extended by constants of the code."""
    if isinstance(space, RecordSpace) and type(space) is RecordSpace:
        member: Callable[[Any], bool]
        atoms = True
        try:
            member = quiet_member(domain.element_domain)
        except Exception:  # noqa: BLE001 - arrays, data frames: records are not atoms
            if space.records.build is not list:
                return space
            whole, atoms = quiet_member(domain), False

            def member(value: Any) -> bool:
                return whole([value])

        source = space.records.source
        values = _values(source, found, member) if source.corners else []
        texts = texts_of(found) if isinstance(source.simplest, str) else None
        if texts is not None:
            values = _with_texts(values, texts, member)
        sizes = (*found.sizes, *_overflowing(source, found))
        records = replace(space.records, source=_richer(source, values, texts))
        return GuidedRecords(
            records,
            space.metric,
            space.d_in,
            space.longest,
            tuple(n for n in sizes if atoms or n <= _MOST_DISPLACED),
            len(source.corners),
            USUAL_SIZES if atoms else (),  # a test of its own is asked of every record
            tuple(sorted({float(c) for c in found.numbers if 0.0 < c < 1.0}, reverse=True)),
            None if texts is None else TextPairs(texts, tuple(thresholds(found.numbers))),
        )
    if not isinstance(space, VectorSpace):
        return space
    element = domain if space.scalar else domain.element_domain
    values = _values(atom_of(element), found, quiet_member(element))
    return replace(space, source=_richer(space.source, values))
