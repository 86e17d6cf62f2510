"""Generate neighbouring datasets by person.

All records of a person are added or removed together. A script holds persons. One who is in the base
leaves with every record; one who is not arrives with the records that the script holds for them. A
script of ``d`` different persons spends distance ``d``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from opendp_sim.audit.generators.datasets import DatasetRecords
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.core.randomness import public_generator

Record = tuple[Any, ...]
Arrival = tuple[Any, tuple[Record, ...]]
"""A person and the records with which they would arrive."""
_CROWDS = (1, 2, 5, 20)


@dataclass(frozen=True)
class _Genome:
    base: tuple[Record, ...]
    script: tuple[Arrival, ...]
    order: int
    """Seed of the places at which arriving records stand, and of the shuffle at distance zero."""


@dataclass(frozen=True)
class PersonSpace:
    """Datasets of records that name their person, under the distance by person."""

    records: DatasetRecords
    place: int
    """Which part of a record names the person."""
    d_in: int

    def draw(self, rng: np.random.Generator, distance: int | None = None) -> Pair:
        """Return a random pair, ``distance`` persons apart."""
        distance = self.d_in if distance is None else distance
        source = self.records.source
        base = tuple(source.pick(rng) for _ in range(int(rng.choice([0, 1, 2, 4, 8, 16]))))
        return self._pair(_Genome(base, self._script(rng, base, distance), _seed(rng)), distance)

    def corners(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield a person with equal records, added or removed among others."""
        corners = self.records.source.corners or (self.records.source.draw(rng),)
        for value in corners[:10]:
            for crowd in _CROWDS:
                for others in (0, 3):
                    script = self._arrivals(rng, self.d_in, (value,) * crowd)
                    taken = {who for who, _ in script}
                    base = tuple(r for r in (corners[-1],) * others if r[self.place] not in taken)
                    pair = self._pair(_Genome(base, script, _seed(rng)), self.d_in)
                    yield pair
                    if not others:  # everybody of the script leaves
                        yield Pair(pair.right, pair.left, pair.distance)
        for _ in range(4):
            yield self.draw(rng, 0)

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Change a shared record or an edited person, keeping the distance."""
        if pair.genome is None:
            return pair
        genome: _Genome = pair.genome
        base, move = list(genome.base), rng.integers(4)
        if move == 0:
            base.append(self.records.source.pick(rng))
        elif move == 1 and base:
            base.pop(int(rng.integers(len(base))))
        elif move == 2 and base:
            base[int(rng.integers(len(base)))] = self.records.source.pick(rng)
        script = genome.script if move < 3 else self._script(rng, genome.base, len(genome.script))
        return self._pair(_Genome(tuple(base), script, _seed(rng)), pair.distance)

    def simpler(self, pair: Pair) -> Iterator[Pair]:
        """Yield pairs of fewer persons and fewer records."""
        if pair.genome is None:
            return
        base, script = pair.genome.base, pair.genome.script
        for i in range(len(script)):
            yield self._smaller(pair, base, script[:i] + script[i + 1 :])
        for i in range(len(base)):
            yield self._smaller(pair, base[:i] + base[i + 1 :], script)
        for i, (who, brought) in enumerate(script):
            if len(brought) > 1:
                yield self._smaller(pair, base, (*script[:i], (who, brought[1:]), *script[i + 1 :]))

    def _smaller(self, pair: Pair, base: tuple[Record, ...], script: tuple[Arrival, ...]) -> Pair:
        return self._pair(_Genome(base, script, pair.genome.order), pair.distance)

    def _script(
        self, rng: np.random.Generator, base: tuple[Record, ...], distance: int
    ) -> tuple[Arrival, ...]:
        """Return persons to remove and to add."""
        crowd = int(rng.choice(_CROWDS))
        alike = rng.random() < 0.5
        value = self.records.source.pick(rng)
        brought = tuple(value if alike else self.records.source.pick(rng) for _ in range(crowd))
        script = dict(self._arrivals(rng, distance, brought))
        present = list(dict.fromkeys(record[self.place] for record in base))
        if present and script and rng.random() < 0.5:
            script.pop(next(iter(script)))
            script[present[int(rng.integers(len(present)))]] = ()
        return tuple(script.items())

    def _arrivals(
        self, rng: np.random.Generator, distance: int, brought: tuple[Record, ...]
    ) -> tuple[Arrival, ...]:
        """Return persons to add, as many as the distance allows."""
        named: dict[Any, None] = {}
        for _ in range(20 * distance):
            if len(named) == distance:
                break
            named[self.records.source.draw(rng)[self.place]] = None
        return tuple((who, tuple(self._of(r, who) for r in brought)) for who in named)

    def _of(self, record: Record, who: Any) -> Record:
        return (*record[: self.place], who, *record[self.place + 1 :])

    def _pair(self, genome: _Genome, distance: int) -> Pair:
        order = public_generator(genome.order, "audit", "persons")
        right = list(genome.base)
        for who, brought in genome.script:
            stayed = [record for record in right if record[self.place] != who]
            if len(stayed) == len(right):
                for record in brought:
                    stayed.insert(int(order.integers(len(stayed) + 1)), record)
            right = stayed
        if not genome.script:
            right = [right[i] for i in order.permutation(len(right))]
        build = self.records.build
        return Pair(build(list(genome.base)), build(right), distance, genome)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))
