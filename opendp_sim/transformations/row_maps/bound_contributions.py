"""Bound contributions to k rows a person (``bound_contributions.md``)."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import repeat
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import DataError, InternalError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.ids import persons
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.domains.records import Records
from opendp_sim.domains.rows import GridRows, RealRows, Rows, length, take

# --------------------------------------------------------------------------------------------------
# Whose each row is, and where a public hash puts it among that person's rows.
#
# The proof that needs these functions is ``bound_contributions.md``.

_DIGEST = 32
"""Bytes of a digest: two different contents with one digest would be a collision of BLAKE2b-256."""
_CELLS = 2**20
"""Cells hashed at a time, so that they stay in the cache."""


class Ranks:
    """Rank rows by a survey's public hash, persons by first appearance."""

    def __init__(self, seed: int, domain: Domain, column: str) -> None:
        self.seed, self.domain, self.column = seed, domain, column
        self.persons: dict[Any, int] = {}
        self._keys: dict[int, NDArray[np.uint64]] = {}

    def numbers(self, block: Any, *, meet: bool) -> NDArray[np.int64]:
        """Return each row's person number, -1 for a person not read now."""
        ids = np.asarray(block[self.column] if isinstance(self.domain, Records) else block.ids)
        whole = ids.dtype.kind in "iu"
        found, inverse = np.unique(ids, return_inverse=True) if whole else (ids, None)
        names = persons(found)
        known = self.persons
        if meet:
            for name in names:
                if name not in known:
                    known[name] = len(known)
        numbers = np.fromiter(map(known.get, names, repeat(-1)), np.int64, len(names))
        return numbers if inverse is None else numbers[inverse]

    def contents(self, block: Any) -> list[NDArray[np.uint64]]:
        """Return every row's content, without its person, as words (n, words)."""
        if isinstance(self.domain, Records):
            columns = [c for c in self.domain.columns if c.name != self.column]
            return [_words(block[c.name], c.numpy_dtype) for c in columns]
        parts = [_words(block.values, np.dtype(np.float64))]
        return parts if block.labels is None else [*parts, _words(block.labels, np.dtype(np.int64))]

    def hashes(self, contents: list[NDArray[np.uint64]], rows: int) -> NDArray[np.uint64]:
        """Return a hash of each row's content, shape (n,).

        Equal contents have equal hashes. Two multilinear hashes of the 32-bit halves ``h_j``, ``(b +
        sum_j a_j h_j mod 2**64) >> 32``, each strongly universal, side by side; then a bijection, so
        that the hashes of contents in arithmetic progression are in no order.
        """
        width = sum(part.shape[1] for part in contents)
        keys = self._keys_of(width)
        out = np.empty(rows, dtype=np.uint64)
        step = max(1, _CELLS // max(width, 1))
        for start in range(0, rows, step):
            some = slice(start, start + step)
            sums = np.repeat(keys[:, :1], len(out[some]), axis=1)
            place = 1
            for column in _columns(contents, some):
                for half in (column & np.uint64(2**32 - 1), column >> np.uint64(32)):
                    sums[0] += half * keys[0, place]
                    sums[1] += half * keys[1, place]
                    place += 1
            out[some] = _mixed(sums[0] & np.uint64(2**64 - 2**32) | sums[1] >> np.uint64(32))
        return out

    def _keys_of(self, width: int) -> NDArray[np.uint64]:
        if width not in self._keys:
            generator = public_generator(self.seed, "bound_contributions")
            bits = generator.integers(0, 2**64, size=(2 * width + 1, 2), dtype=np.uint64)
            self._keys[width] = np.ascontiguousarray(bits.T)
        return self._keys[width]


def content_digests(contents: list[NDArray[np.uint64]], rows: NDArray[np.int64]) -> list[bytes]:
    """Return digests of rows' contents, different for different contents."""
    parts = [np.zeros((len(rows), 0), np.uint64), *(part[rows] for part in contents)]
    words = np.concatenate(parts, axis=1).astype("<u8")
    width, data = 8 * words.shape[1], words.tobytes()
    return [
        hashlib.blake2b(data[i * width : (i + 1) * width], digest_size=_DIGEST).digest()
        for i in range(len(rows))
    ]


def _columns(contents: list[NDArray[np.uint64]], rows: slice) -> Iterator[NDArray[np.uint64]]:
    for part in contents:
        yield from np.ascontiguousarray(part[rows].T)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply SplitMix64's finaliser, a bijection of 64-bit words."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    words ^= words >> np.uint64(31)
    return words


def _words(column: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.uint64]:
    """Return records' entries as 64-bit words, shape (n, words)."""
    if dtype.kind == "O":
        texts = column.tolist()
        known = {text: _text_digest(text) for text in set(texts)}
        data = b"".join(known[text] for text in texts)
        return np.frombuffer(data, dtype="<u8").reshape(len(texts), _DIGEST // 8).astype(np.uint64)
    # The widest type of its kind, so the rendering does not depend on how a block came to be held;
    # adding zero makes the two zeros one.
    wide = np.asarray(column, dtype=np.float64 if dtype.kind == "f" else np.int64) + 0
    flat = np.ascontiguousarray(wide.reshape(len(wide), math.prod(wide.shape[1:])))
    return flat.view(np.uint64)


def _text_digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()


def least_of_each(
    parts: Iterable[tuple[NDArray[np.int64], NDArray[np.uint64]]], most: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return every person's ``most`` least hashes, sorted by person and hash.

    Memory: twice the result, or one part; what is too much is dropped whenever it has doubled.
    """
    held: list[tuple[NDArray[np.int64], NDArray[np.uint64]]] = []
    size = settled = 0
    for part in parts:
        held.append(part)
        size += len(part[0])
        if size > max(2 * settled, 2**18):
            held = [_least(held, most)]
            size = settled = len(held[0][0])
    return _least(held, most)


def _least(
    held: list[tuple[NDArray[np.int64], NDArray[np.uint64]]], most: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    if not held:
        return np.zeros(0, np.int64), np.zeros(0, np.uint64)
    persons = np.concatenate([part[0] for part in held])
    hashes = np.concatenate([part[1] for part in held])
    order = np.lexsort((hashes, persons))
    persons, hashes = persons[order], hashes[order]
    # Kept unless the one `most` places before it is of the same person.
    keep = np.ones(len(persons), dtype=bool)
    keep[most:] = persons[most:] != persons[:-most]
    return persons[keep], hashes[keep]


# --------------------------------------------------------------------------------------------------

_ALL = np.uint64(2**64 - 1)
"""No hash is greater."""
_Quota = dict[tuple[int, bytes], int]


@register
class BoundContributions(Mechanism):
    r"""Keep at most k rows a person.

    The rows that a public seeded hash ranks first.

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
        >>> from opendp_sim.domains.metrics import IdDistance
        >>> from opendp_sim.domains.records import Column, Records
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
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
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
    """Find each person's k + 1 least hashes."""
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
    """Divide a person's last places among tied contents."""
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
    """Decide on surveyed rows after the survey.

    For one pass over them, in any order.

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
        """Return rows before ties, tied (row, (person, digest)), and their persons."""
        persons, contents = self.ranks.numbers(block, meet=False), self.ranks.contents(block)
        if (persons < 0).any():  # nobody's limit was taken for them
            raise _other_rows("the persons who were surveyed", "somebody else")
        hashes = self.ranks.hashes(contents, len(persons))
        last = self.last[persons]
        doubtful = self.tied[persons] & (hashes == last)
        rows = np.flatnonzero(doubtful)
        which = zip(persons[rows].tolist(), content_digests(contents, rows), strict=True)
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
