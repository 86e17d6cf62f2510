"""Bound contributions: at most k rows of every person.

Proof of the stability map: ``bound_contributions.md``, beside this file.
"""

from __future__ import annotations

import hashlib
import math
import threading
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import DataError, InternalError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.spaces.metrics import IdDistance, Symmetric
from opendp_sim.spaces.records import Records
from opendp_sim.spaces.rows import GridRows, RealRows, Rows, length, take

__all__ = ["BoundContributions", "make_bound_contributions", "then_bound_contributions"]

_DIGEST = 32
"""Bytes of a row's rank: two different rows with one rank would be a collision of BLAKE2b-256."""


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
    seed: Annotated[
        int,
        param(
            "Seed of the public hash.", symbol="s", unit="-", default=0, ge=0, le=2**63 - 1,
            hint="any number; another seed keeps another sample.",
        ),
    ] = 0  # fmt: skip

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

        ranks = _Ranks(self.seed, domain, column)

        def survey(blocks: Iterable[Any]) -> _Kept:
            return _survey(blocks, ranks, self.max_rows)

        return Stable(
            output=output, output_metric=Symmetric(), stability=self.max_rows, survey=survey,
            on_queries=lambda queries: queries,
        )  # fmt: skip


@dataclass(frozen=True)
class _Ranks:
    """The public hash: whose each row is, and where its content ranks among that person's rows."""

    seed: int
    domain: Domain
    column: str

    def __call__(self, block: Any) -> tuple[list[Any], list[bytes]]:
        """Return the person and the rank of each row of a block."""
        if isinstance(self.domain, Records):
            ids = np.asarray(block[self.column])
            columns = [c for c in self.domain.columns if c.name != self.column]
            parts = [_bytes_of(block[c.name], c.numpy_dtype) for c in columns]
        else:
            ids = np.asarray(block.ids)
            parts = [_bytes_of(block.values, np.dtype(np.float64))]
            if block.labels is not None:
                parts.append(_bytes_of(block.labels, np.dtype(np.int64)))
        persons = ids.tolist()
        if ids.dtype.kind not in "iuUO" or not all(isinstance(p, int | str) for p in persons):
            raise DataError(
                "OS602", f"column {self.column}", expected="integers or texts that name persons",
                got="another dtype", hint="NaN names nobody: declare the column int64 or str.",
            )  # fmt: skip
        content = np.concatenate([np.zeros((len(ids), 0), np.uint8), *parts], axis=1)
        width, data = content.shape[1], content.tobytes()
        key = self.seed.to_bytes(8, "little")
        return persons, [
            hashlib.blake2b(
                data[i * width : (i + 1) * width], digest_size=_DIGEST, key=key
            ).digest()
            for i in range(len(ids))
        ]


def _bytes_of(column: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.uint8]:
    """Return each record's entry as bytes, shape (n, width): one rendering for equal entries."""
    if dtype.kind == "O":
        texts = [str(v).encode("utf-8", "surrogatepass") for v in column]
        data = b"".join(hashlib.blake2b(text, digest_size=_DIGEST).digest() for text in texts)
        return np.frombuffer(data, dtype=np.uint8).reshape(len(texts), _DIGEST)
    # The widest type of its kind, so the rendering does not depend on how a block came to be held;
    # adding zero makes the two zeros one.
    wide = np.asarray(column, dtype="<f8" if dtype.kind == "f" else "<i8") + 0
    flat = np.ascontiguousarray(wide.reshape(len(wide), math.prod(wide.shape[1:])))
    return flat.view(np.uint8).reshape(len(flat), 8 * flat.shape[1])


def _survey(blocks: Iterable[Any], ranks: _Ranks, most: int) -> _Kept:
    """Find every person's k first ranks, and one more to see ties. Memory: k + 1 ranks a person."""
    first: dict[Any, list[bytes]] = {}
    rows = 0
    for block in blocks:
        rows += length(block)
        for person, rank in zip(*ranks(block), strict=True):
            held = first.setdefault(person, [])
            if len(held) <= most or rank < held[-1]:
                insort(held, rank)
                del held[most + 1 :]
    crowded = {person: held for person, held in first.items() if len(held) > most}
    last = {person: held[most - 1] for person, held in crowded.items()}
    quota = {
        person: held[:most].count(held[most])
        for person, held in crowded.items()
        if held[most] == held[most - 1]
    }
    return _Kept(ranks, last, quota, rows)


class _Kept:
    """Which rows are kept, after the survey: for one pass over the surveyed rows, in any order.

    Attributes:
        last: for each person with more than k rows, the rank of the last row kept.
        quota: where rows that equal the last one are too many, how many of them are kept. They are
            equal, so it does not matter which; but counting them is why one pass is all it is good for.
    """

    def __init__(
        self, ranks: _Ranks, last: dict[Any, bytes], quota: dict[Any, int], rows: int
    ) -> None:
        self.ranks, self.last, self.quota, self.rows = ranks, last, quota, rows
        self._left, self._open, self._lock = rows, dict(quota), threading.Lock()

    def fresh(self) -> _Kept:
        """Return the same function for another pass."""
        return _Kept(self.ranks, self.last, self.quota, self.rows)

    def __call__(self, block: Any) -> Any:
        """Return the rows of a block that are kept, in their order."""
        persons, ranks = self.ranks(block)
        with self._lock:  # blocks may come on several threads
            self._left -= len(persons)
            if self._left < 0:
                raise InternalError(
                    "OS903", "bound_contributions", expected="one pass over the surveyed rows",
                    got="more rows than were surveyed",
                    hint="resolve the pipeline once for each pass; a source may not grow meanwhile.",
                )  # fmt: skip
            kept = [self._keeps(*row) for row in zip(persons, ranks, strict=True)]
        out = take(block, np.array(kept, dtype=bool))
        return Rows(out.values, out.labels) if isinstance(out, Rows) else out

    def _keeps(self, person: Any, rank: bytes) -> bool:
        last = self.last.get(person)
        if last is None or rank < last:
            return True
        if rank > last:
            return False
        if person in self._open:
            self._open[person] = left = self._open[person] - 1
            return bool(left >= 0)
        return True


make_bound_contributions, then_bound_contributions = constructors(BoundContributions)
