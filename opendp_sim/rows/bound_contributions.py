"""Bound contributions: at most k rows of every person.

Proof of the stability map: ``bound_contributions.md``, beside this file.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import DataError, InternalError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.rows._ranks import Ranks, digests, least_of_each
from opendp_sim.spaces.metrics import IdDistance, Symmetric
from opendp_sim.spaces.records import Records
from opendp_sim.spaces.rows import GridRows, RealRows, Rows, length, take

__all__ = ["BoundContributions", "make_bound_contributions", "then_bound_contributions"]

_ALL = np.uint64(2**64 - 1)
"""No hash is greater."""
_Quota = dict[tuple[int, bytes], int]


@register
class BoundContributions(Mechanism):
    r"""Keep at most k rows of every person: those that a public seeded hash ranks first.

    Space
        Input: records with a column that names the person, or rows that carry person identifiers,
        under distance by person.
        Output: the same records, or the same rows without identifiers, under symmetric distance.

    Stability
        .. math:: d_{out} = k \, d_{in}

        What is kept of a person is a function of that person's own rows, at most k of them. Exact.
        Tight.

    Privacy
        None on its own.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): no
        records or rows, not distance by person. (OS204): no such identifier.

    Source
        [own] Lemma 1 in ``bound_contributions.md``.

    Example
        >>> import numpy as np, opendp.prelude as dp
        >>> from opendp_sim.spaces.metrics import IdDistance
        >>> from opendp_sim.spaces.records import Column, Records
        >>> records = Records((Column("user", "int64", role="privacy_id"),
        ...                    Column("x", "array[f64, 1]", bounds=(0.0, 9.0))))
        >>> dp.enable_features("contrib")
        >>> bounded = make_bound_contributions(records, IdDistance("user"), max_rows=2)
        >>> data = {"user": np.array([7, 7, 7, 8]), "x": np.array([[1.0], [2.0], [3.0], [4.0]])}
        >>> bounded(data)["user"], bounded.map(1)
        (array([7, 7, 8]), 2)
    """

    key: ClassVar[str] = "bound_contributions"
    in_short: ClassVar[str] = (
        "Use at most a stated number of rows of every person, drawn by a public rule, and no others."
    )
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
    room = "rows"

    max_rows: Annotated[
        int,
        param(
            "The most rows kept of one person.", symbol="k", unit="rows", ge=1, le=2**20,
            hint="the noise grows with k, the loss of data falls: a typical person's row count.",
        ),
    ]  # fmt: skip
    by: Annotated[
        str | None,
        param(
            "The column that names the person; by default the one the privacy unit names.",
            symbol="i", unit="column name", default=None,
            hint="name the column with `role: privacy_id`, or leave it out.",
        ),
    ] = None  # fmt: skip
    keep: Annotated[
        Literal["sample"],
        param(
            "Which rows are kept: a sample that the hash of a row's content decides.",
            symbol="-", unit="rule", default="sample", hint="`sample` is the one rule there is.",
        ),
    ] = "sample"  # fmt: skip
    seed: Seed = 0

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``bound_contributions.md``."""
        if not isinstance(domain, Records | RealRows | GridRows):
            raise SpaceError(
                "OS201", f"{self.key}.input_domain", expected="records, or rows with identifiers",
                got=type(domain).__name__, hint="put it before or right after `select`.",
            )  # fmt: skip
        if not isinstance(metric, IdDistance):
            raise SpaceError(
                "OS202", f"{self.key}.input_metric", expected="distance by person",
                got=type(metric).__name__,
                hint="write `unit: {add_remove: 1, of: user}`, or leave this step out.",
            )  # fmt: skip
        column = metric.identifier_column
        known = domain.column(column) if isinstance(domain, Records) else domain.ids
        if not known or self.by not in (None, column):
            raise SpaceError(
                "OS204", f"{self.key}.by", expected=f"the identifier of the unit, {column!r}",
                got=self.by if known else "a type without it",
                hint=f"write `by: {column}` and declare the column with `role: privacy_id`.",
            )  # fmt: skip
        output = domain if isinstance(domain, Records) else replace(domain, ids=False)

        def survey(blocks: Iterable[Any]) -> _Kept:
            return _survey(blocks, Ranks(self.seed, domain, column), self.max_rows)

        return Stable(
            output=output,
            output_metric=Symmetric(),
            stability=self.max_rows,
            survey=survey,
            on_queries=lambda queries: queries,
        )


def _survey(blocks: Iterable[Any], ranks: Ranks, most: int) -> _Kept:
    """Find every person's k least hashes, and one more to see ties. Memory: k + 1 hashes a person."""
    rows = 0

    def parts() -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64]]]:
        nonlocal rows
        for block in blocks:
            rows += length(block)
            persons = ranks.numbers(block, meet=True)
            yield persons, ranks.hashes(ranks.contents(block), len(persons))

    persons, hashes = least_of_each(parts(), most + 1)
    beyond = np.flatnonzero(persons[most:] == persons[:-most]) + most
    last = np.full(len(ranks.persons), _ALL)
    tied = np.zeros(len(last), dtype=bool)
    last[persons[beyond]] = hashes[beyond - 1]
    tied[persons[beyond]] = hashes[beyond] == hashes[beyond - 1]
    kept = _Kept(ranks, last, tied, {}, rows, most)
    if not tied.any():
        return kept
    below = np.bincount(persons[hashes < last[persons]], minlength=len(last))
    return _Kept(ranks, last, tied, _quota(blocks, kept, most - below), rows, most)


def _quota(blocks: Iterable[Any], kept: _Kept, places: NDArray[np.int64]) -> _Quota:
    """Share a person's last places out among the contents that tie for them: least digests first."""
    found: dict[int, Counter[bytes]] = defaultdict(Counter)
    rows = 0
    for block in blocks:
        rows += length(block)
        for _, (person, content) in kept.judged(block)[1]:
            found[person][content] += 1
    if rows != kept.rows:
        raise _other_rows("blocks that can be opened twice", "other rows the second time")
    quota: _Quota = {}
    for person, contents in found.items():
        left = int(places[person])
        for content, count in sorted(contents.items()):
            quota[person, content] = min(left, count)
            left -= quota[person, content]
    return quota


class _Kept:
    """Which rows are kept, after the survey: for one pass over the surveyed rows, in any order.

    Attributes:
        last: for each person, by number, the hash of the last row kept; all ones where all are.
        tied: persons of whom more rows have that hash than there are places.
        quota: how many of these rows are kept, by person and digest of the content. Those of one
            digest are equal, so it does not matter which; but counting them is why one pass is all
            it is good for.
        most: rows of one person, which no pass exceeds: not even over records that changed since.
    """

    def __init__(
        self,
        ranks: Ranks,
        last: NDArray[np.uint64],
        tied: NDArray[np.bool_],
        quota: _Quota,
        rows: int,
        most: int,
    ) -> None:
        self.ranks, self.last, self.tied, self.quota = ranks, last, tied, quota
        self.rows, self.most = rows, most
        self._seen = np.zeros(len(last), np.int32)
        self._left, self._open, self._lock = rows, dict(quota), threading.Lock()

    def fresh(self) -> _Kept:
        """Return the same function for another pass."""
        return _Kept(self.ranks, self.last, self.tied, self.quota, self.rows, self.most)

    def judged(
        self, block: Any
    ) -> tuple[NDArray[np.bool_], list[tuple[int, tuple[int, bytes]]], NDArray[np.int64]]:
        """Return which rows come before the ties; the tied ones: (row, (person, digest)); whose rows."""
        persons, contents = self.ranks.numbers(block, meet=False), self.ranks.contents(block)
        if (persons < 0).any():  # nobody's limit was taken for them
            raise _other_rows("the persons who were surveyed", "somebody else")
        hashes = self.ranks.hashes(contents, len(persons))
        last = self.last[persons]
        doubtful = self.tied[persons] & (hashes == last)
        rows = np.flatnonzero(doubtful)
        which = zip(persons[rows].tolist(), digests(contents, rows), strict=True)
        return (hashes <= last) & ~doubtful, list(zip(rows.tolist(), which, strict=True)), persons

    def __call__(self, block: Any) -> Any:
        """Return the rows of a block that are kept, in their order."""
        keep, tied, persons = self.judged(block)
        with self._lock:  # blocks may come on several threads
            self._left -= len(keep)
            if self._left < 0:
                raise _other_rows("one pass over the surveyed rows", "more rows than were surveyed")
            for row, which in tied:
                left = self._open.get(which, 0)
                keep[row] = left > 0
                self._open[which] = left - 1
            mine = persons[keep]
            np.add.at(self._seen, mine, 1)
            if (self._seen[mine] > self.most).any():
                raise DataError(
                    "OS601", "bound_contributions", expected="the records that were surveyed",
                    got="others: they were changed while they were read", hint="run again.",
                )  # fmt: skip
        out = take(block, keep)
        return Rows(out.values, out.labels) if isinstance(out, Rows) else out


def _other_rows(expected: str, got: str) -> InternalError:
    return InternalError(
        "OS903", "bound_contributions", expected=expected, got=got,
        hint="resolve the pipeline once for each pass; a source may not change meanwhile.",
    )  # fmt: skip


make_bound_contributions, then_bound_contributions = constructors(BoundContributions)
