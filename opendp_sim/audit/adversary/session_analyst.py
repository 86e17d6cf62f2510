"""Build the default analyst of this package's services.

Queries from the input domain, near a record. One record is the target. The driver sends rows of the
domain as the reference, asks about the target until a record like it could serve no more, and then
about the target or another row, whichever the answers so far suggest. Neighbours differ in records
like the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.adversary.analyst import Driver, unknown_questions
from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.audit.generators.datasets import DatasetRecords, records_of
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.audit.generators.user_level import PersonSpace
from opendp_sim.core import dp
from opendp_sim.core.errors import SimError
from opendp_sim.core.randomness import public_generator
from opendp_sim.domains.rows import GridRows, floats_of
from opendp_sim.measurements.knn._impl import class_means as _knn_means
from opendp_sim.measurements.knn._impl.vote_noise import Stock

_REFERENCE, _TARGETS, _BATCH, _MOST, _SHOWN = 60, 16, 64, 1024, 24
_EXACT = 2.0**-20
"""The deviation that stands for no noise at all: of what is public and must not tell neighbours apart."""
_NO_NUMBER = -1e9
"""Stands for what is no number: the votes of a class that may not win."""
Rows2 = NDArray[np.float64]


@dataclass(frozen=True)
class _Target:
    """Describe a target record, its row and neighbours on the grid."""

    record: Any
    row: Rows2
    others: Rows2


def of_service(
    obj: dp.Measurement,
    domain: GridRows,
    d_in: int,
    *,
    priced: bool,
    before: Callable[[Any], Any] | None = None,
) -> Driver:
    """Return the driver of a service.

    Raises:
        AuditError: OS501, no record of the domain becomes a row of the service.
    """
    records = records_of(obj.input_domain)
    targets = _targets(records, domain, before)
    target, rounds = targets[0], 0
    if priced:
        target = max(targets, key=lambda t: _hidden(obj, records, t, _BATCH // 4)[0])
        rounds = _rounds(obj, records, target)
    pairs = _pairs(obj, records, target, d_in)
    trace = _trace(obj, _Talk(target, rounds), pairs) if priced else None
    asked = _accepted(obj, records, target) if trace or not priced else 2 * _BATCH
    exactly = f", {rounds} along the transcript whose price is added up" if trace else ""
    words = (
        f"{len(target.others)} rows of the domain as the reference, {asked} queries like one record"
        f"{exactly}, and a last one that follows from the answers"
    )
    return Driver(_Talk(target, asked).summary, words, pairs, trace, NoiseLaw("gaussian", 1.0))


def _targets(
    records: DatasetRecords, domain: GridRows, before: Callable[[Any], Any] | None
) -> list[_Target]:
    """Return records with different rows, the longest rows first."""
    rng = public_generator(0, "audit", "service")
    source = records.source
    drawn = [*source.corners, *(source.draw(rng) for _ in range(2 * _REFERENCE))]
    seen: dict[bytes, tuple[float, Any, Rows2]] = {}
    for record in drawn:
        data = records.build([record])
        row = floats_of(data if before is None else before(data))
        if row.shape == (1, domain.width):
            seen.setdefault(row.tobytes(), (float(np.square(row).sum()), record, row))
    if len(seen) < 2:
        raise unknown_questions("a service whose rows no record of the domain becomes")
    ranked = sorted(seen.values(), key=lambda found: -found[0])[:_REFERENCE]
    others = np.concatenate([row for _, _, row in ranked])
    return [_Target(record, row, others) for _, record, row in ranked[:_TARGETS]]


def _hidden(
    obj: dp.Measurement, records: DatasetRecords, target: _Target, count: int
) -> tuple[float, int]:
    """Return a transcript's squared signal, and its last query's number."""
    notes, last, total = _Notes(), 0, 0.0
    with notes.listening():
        service = obj(records.build([target.record]))
        service({"reference": target.others})
        for asked in range(0, count, _BATCH):
            service(np.repeat(target.row, min(count, _BATCH), axis=0))
            found = sum(float(np.square(cells).sum()) for cells in notes.hidden)
            notes.hidden.clear()
            if asked and not found:
                break
            last, total = asked + _BATCH, total + found
    return total, last


def _rounds(obj: dp.Measurement, records: DatasetRecords, target: _Target) -> int:
    """Return the number of queries that exhaust a record."""
    return min(_hidden(obj, records, target, _MOST)[1] + 4, _MOST)


def _accepted(obj: dp.Measurement, records: DatasetRecords, target: _Target) -> int:
    """Return the number of desired queries that the release answers."""
    data = records.build([target.record])
    return next((n for n in (_SHOWN - 1, 15, 3) if _accepts(obj(data), target, n)), 1)


def _accepts(service: Any, target: _Target, count: int) -> bool:
    try:
        service({"reference": target.others})
        service(np.repeat(target.row, count + 1, axis=0))
    except (SimError, dp.OpenDPException):
        return False
    return True


@dataclass(frozen=True)
class _Talk:
    """One conversation."""

    target: _Target
    rounds: int

    def answers(self, service: Any) -> Iterator[Any]:
        """Yield the answers to one message after the other."""
        service({"reference": self.target.others})
        first = service(np.repeat(self.target.row, self.rounds, axis=0))
        yield first
        sure = first.labels.count(first.labels[0]) * 2 > len(first.labels)
        yield service(self.target.row if sure else self.target.others[-1:])

    def summary(self, service: Any) -> NDArray[np.float64]:
        """Return statistics of all answers."""
        answers = list(self.answers(service))
        # Of a query that means decide, nobody was counted: that is no number.
        counts = np.nan_to_num(np.concatenate([a.counts for a in answers]).astype(float), nan=-1.0)
        votes = np.concatenate([a.votes for a in answers])
        spread = np.concatenate([a.deviations for a in answers])
        scaled = votes / np.where(spread > 0, spread, 1.0)[:, None]
        shown = np.column_stack([counts, scaled])[:_SHOWN, :8]
        distinct = float(len(np.unique(counts))), float(len(np.unique(votes, axis=0)))
        sums = [counts.sum(), float((spread > 0).sum()), *distinct], scaled.sum(axis=0)[:32]
        return np.concatenate([*sums, shown.ravel(), np.diff(shown[:, :3], axis=0).ravel()])


def _pairs(
    obj: dp.Measurement, records: DatasetRecords, target: _Target, d_in: int
) -> tuple[Pair, ...]:
    """Return neighbours that differ in records like the target."""
    space = space_of(obj.input_domain, obj.input_metric, d_in)
    rng = public_generator(0, "audit", "service pairs")
    some = [records.source.draw(rng) for _ in range(8)]
    like: Sequence[Any] = (target.record,) * d_in
    bases: list[list[Any]] = [[], some]
    if isinstance(space, PersonSpace):
        if d_in > 1:
            return ()
        who = target.record[space.place]
        bases[1] = [record for record in some if record[space.place] != who]
    else:
        bases.append([target.record] * 2)
    found = []
    for base in bases:
        less, more = records.build(base), records.build([*base, *like])
        found += [Pair(more, less, d_in), Pair(less, more, d_in)]
    return tuple(found)


# --- one public transcript ------------------------------------------------------------------------


class _Notes:
    """Record a service's values before noise, and its public noisy values."""

    def __init__(self) -> None:
        self.hidden: list[NDArray[np.float64]] = []
        self.scales: list[float] = []
        self._script = public_generator(0, "audit", "transcript")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Replace the service's noise function inside the context."""
        with (
            patch.object(Stock, "noisy", lambda _, cells, scale: self._noted(cells, scale)),
            patch.object(_knn_means, "add_rounded_gaussian", self._noted),
        ):
            yield

    def _noted(self, cells: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        self.hidden.append(np.asarray(cells, dtype=np.float64) / scale)
        self.scales.append(scale)
        drawn = self._script.normal(size=len(cells)) * scale
        return np.rint(drawn).astype(np.int64)


def _trace(
    obj: dp.Measurement, talk: _Talk, pairs: tuple[Pair, ...]
) -> Callable[[Any], NDArray[np.float64]] | None:
    """Return a dataset's function to the values before noise, or None."""

    def trace(data: Any) -> NDArray[np.float64]:
        notes = _Notes()
        with notes.listening():
            heard = [_numbers(answer) for answer in talk.answers(obj(data))]
        public = np.concatenate([np.log(notes.scales), *heard]) / _EXACT
        return np.concatenate([*notes.hidden, public])

    probe = pairs[0].left if pairs else None
    if probe is None or not np.array_equal(trace(probe), trace(probe)):
        return None  # randomness of its own: a transcript has no fixed price
    return trace


def _numbers(answer: Any) -> NDArray[np.float64]:
    """Return everything that was said, as numbers."""
    labels = [float(crc32(str(label).encode())) for label in answer.labels]
    said = np.concatenate([labels, answer.counts, np.ravel(answer.votes), answer.deviations])
    return np.where(np.isfinite(said), said, _NO_NUMBER)
