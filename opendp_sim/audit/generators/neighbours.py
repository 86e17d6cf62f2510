"""Generate neighbouring datasets by edits of a base.

The input metric counts the edits. Keeping base and script apart lets the search change what both sides
share without changing their distance, and lets a counterexample shrink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from opendp_sim.audit.generators.datasets import DatasetRecords
from opendp_sim.core.randomness import public_generator

RECORD_METRICS = (
    "SymmetricDistance",
    "InsertDeleteDistance",
    "ChangeOneDistance",
    "HammingDistance",
)

_FEW_OF_A_KIND = (0.02, 0.05, 0.1, 0.1, 0.25, 0.25)
"""Shares of the records that are unlike the others."""


@dataclass(frozen=True)
class Edit:
    """``insert`` (position, record), ``delete`` (position), ``replace`` (both), ``shuffle`` (seed).

    ``reverse`` turns the order round.
    """

    kind: str
    position: int
    record: Any = None


@dataclass(frozen=True)
class Pair:
    """Two datasets at most ``distance`` apart."""

    left: Any
    right: Any
    distance: Any
    genome: Any = None
    """What the search mutates; ``None`` for pairs that a user gave."""

    def flipped(self) -> Pair:
        """The same pair read from the other side."""
        return Pair(self.right, self.left, self.distance)


class PairSpace(Protocol):
    """Generate, mutate and simplify neighbouring pairs."""

    def draw(self, rng: np.random.Generator, distance: Any = None) -> Pair:
        """Return a random pair."""

    def corners(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield the structured pairs."""

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Return a similar pair at the same distance."""

    def simpler(self, pair: Pair) -> Iterator[Pair]:
        """Yield smaller pairs at no more than the same distance."""


@dataclass(frozen=True)
class _Genome:
    base: tuple[Any, ...]
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class RecordSpace:
    """Datasets made of records under one of the four dataset metrics."""

    records: DatasetRecords
    metric: str
    d_in: int
    longest: int = 48

    # --- making pairs --------------------------------------------------------------

    def draw(self, rng: np.random.Generator, distance: int | None = None) -> Pair:
        """Return a random pair of a random shape, ``distance`` edits apart."""
        distance = self.d_in if distance is None else distance
        base = self._base(rng)
        return self._pair(_Genome(base, self._edits(rng, len(base), base, distance)), distance)

    def corners(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield structured pairs, from the empty dataset to extremes."""
        corners = self.records.source.corners or (self.records.source.draw(rng),)
        sizes = (self.records.size,) if self.records.size is not None else (0, 1, 2, 5)
        for size in sizes:
            for value in corners[:14]:
                for other in (corners[0], corners[-1], value):
                    base = (other,) * size
                    yield self._pair(_Genome(base, self._all_edits(value)), self.d_in)
                    if size == 0:
                        break
        for _ in range(4):
            yield self.draw(rng, 0)

    def _all_edits(self, value: Any) -> tuple[Edit, ...]:
        kind = "replace" if self._sized else "insert"
        return tuple(Edit(kind, i, value) for i in range(self._operations(self.d_in)))

    @property
    def _sized(self) -> bool:
        changes = self.metric in ("ChangeOneDistance", "HammingDistance")
        return changes or self.records.size is not None

    def _operations(self, distance: int) -> int:
        counted = self.metric in ("SymmetricDistance", "InsertDeleteDistance")
        return distance // 2 if counted and self.records.size is not None else distance

    def _base(self, rng: np.random.Generator) -> tuple[Any, ...]:
        size = self.records.size
        if size is None:
            size = int(rng.choice([0, 1, 2, 3, 4, 6, 8, 12, 20, self.longest]))
        source, shape = self.records.source, rng.integers(5)
        if shape == 0:
            return (source.pick(rng),) * size
        if shape == 1:
            pool = [source.pick(rng) for _ in range(2)]
            return tuple(pool[int(rng.integers(2))] for _ in range(size))
        if shape == 2:
            return tuple(source.draw(rng) for _ in range(size))
        if shape == 3:  # most are alike: quantiles, rare values, majorities
            common, rare = source.pick(rng), source.pick(rng)
            few = int(rng.choice(_FEW_OF_A_KIND) * size + rng.random())
            return (common,) * (size - few) + (rare,) * few
        return tuple(source.pick(rng) for _ in range(size))

    def _edits(
        self, rng: np.random.Generator, size: int, base: Sequence[Any], distance: int
    ) -> tuple[Edit, ...]:
        edits = [self._edit(rng, size, base) for _ in range(self._operations(distance))]
        if self.metric in ("SymmetricDistance", "ChangeOneDistance") and (
            distance == 0 or rng.random() < 0.25
        ):
            edits.append(Edit("shuffle", int(rng.integers(2**31))))
        return tuple(edits)

    def _edit(self, rng: np.random.Generator, size: int, base: Sequence[Any]) -> Edit:
        position = int(rng.integers(max(size, 1)))
        record = self.records.source.pick(rng)
        if size and rng.random() < 0.2:
            record = base[int(rng.integers(size))]
        if self._sized:
            return Edit("replace", position, record)
        return Edit("insert" if rng.random() < 0.6 else "delete", position, record)

    def _pair(self, genome: _Genome, distance: int) -> Pair:
        right = apply_edits(
            genome.base, genome.edits, ordered=self.metric == "InsertDeleteDistance"
        )
        build, mend = self.records.build, self.records.mend
        right = right if mend is None else mend(genome.base, right)
        return Pair(build(list(genome.base)), build(right), distance, genome)

    # --- changing pairs ------------------------------------------------------------

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Change a shared record or one edit, keeping the distance."""
        genome: _Genome = pair.genome
        base, edits = list(genome.base), list(genome.edits)
        move = rng.integers(5)
        if move == 0 and edits:
            spot = int(rng.integers(len(edits)))
            if edits[spot].kind in ("shuffle", "reverse"):
                edits[spot] = Edit("shuffle", int(rng.integers(2**31)))
            else:
                edits[spot] = self._edit(rng, len(base), base)
        elif move == 1 and self.records.size is None and len(base) < 4 * self.longest:
            extra = base if base and rng.random() < 0.3 else [self.records.source.pick(rng)]
            base = base + list(extra)
        elif move == 2 and self.records.size is None and base:
            base.pop(int(rng.integers(len(base))))
        elif base:
            value = self.records.source.pick(rng)
            where = range(len(base)) if rng.random() < 0.2 else [int(rng.integers(len(base)))]
            for spot in where:
                base[spot] = value
        return self._pair(_Genome(tuple(base), tuple(edits)), pair.distance)

    def simpler(self, pair: Pair) -> Iterator[Pair]:
        """Yield pairs of fewer edits, fewer records or simpler values."""
        genome: _Genome = pair.genome
        base, edits, simple = genome.base, genome.edits, self.records.source.simplest
        for i in range(len(edits)):
            yield self._pair(replace(genome, edits=edits[:i] + edits[i + 1 :]), pair.distance)
        if self.records.size is None:
            half = len(base) // 2
            for shorter in (base[:half], base[half:]) if half > 1 else ():
                yield self._pair(replace(genome, base=shorter), pair.distance)
            for i in range(len(base)):
                yield self._pair(replace(genome, base=base[:i] + base[i + 1 :]), pair.distance)
        for i, record in enumerate(base):
            if not _same(record, simple):
                yield self._pair(
                    replace(genome, base=(*base[:i], simple, *base[i + 1 :])), pair.distance
                )
        for i, edit in enumerate(edits):
            if edit.kind == "replace" and not _same(edit.record, simple):
                calm = replace(edit, record=simple)
                yield self._pair(
                    replace(genome, edits=(*edits[:i], calm, *edits[i + 1 :])), pair.distance
                )


def apply_edits(base: Sequence[Any], edits: Sequence[Edit], *, ordered: bool = False) -> list[Any]:
    """Return the records after the script; positions are taken modulo the length.

    A replacement under the insert-delete distance takes one record out and puts another in
    *anywhere*: that is what two units of that distance allow.
    """
    out = list(base)
    for number, edit in enumerate(edits):
        if edit.kind == "insert":
            out.insert(edit.position % (len(out) + 1), edit.record)
        elif edit.kind == "shuffle":
            order = public_generator(edit.position, "audit", "shuffle").permutation(len(out))
            out = [out[i] for i in order]
        elif edit.kind == "reverse":
            out.reverse()
        elif out and edit.kind == "delete":
            out.pop(edit.position % len(out))
        elif out:
            spot = (edit.position + number) % len(out)
            if ordered:
                out.pop(spot)
                out.insert((edit.position * 7 + 3) % (len(out) + 1), edit.record)
            else:
                out[spot] = edit.record
    return out


def _same(left: Any, right: Any) -> bool:
    return bool(np.array_equal(np.asarray(left, dtype=object), np.asarray(right, dtype=object)))
