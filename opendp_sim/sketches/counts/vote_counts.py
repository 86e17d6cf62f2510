"""Vote counts: how many users voted for each item.

Proof of the stability map: ``vote_counts.md``, beside this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Block, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.sketches.counts.parts.vote_table import VoteTable, parts_of
from opendp_sim.spaces.cell import exact, plain
from opendp_sim.spaces.checks import symmetric
from opendp_sim.spaces.counts import USERS, KnownCounts, OpenCounts
from opendp_sim.spaces.metrics import IdDistance
from opendp_sim.spaces.records import Column, Records

__all__ = ["VoteCounts", "make_vote_counts", "then_vote_counts"]

Blocks = Callable[[], Iterable[dict[str, NDArray[Any]]]]


@register
class VoteCounts(Mechanism):
    r"""Count, for each item, the users who voted for it; a repeated vote counts once.

    Space
        Input: records with a column of items (``str``, ``int64`` or ``category``) and perhaps one of
        users, under symmetric distance, or under the id distance of the users' column. Output with a
        public catalogue (``items``, or a category's keys): a sketch of one block, ``counts`` of shape
        (m,), in the catalogue's order; votes for other items are left out. Output without one: the
        items that occur, sorted, with their counts, under a distance that states c.

    Stability
        .. math:: L_\infty = 1, \quad L_1 = c, \quad L_2 = \sqrt{c}

        per user (per row under symmetric distance, where c is 1), monotone: users added or removed.
        c is ``max_items``, or the size of the catalogue. Exact in integers. Tight.

    Privacy
        None on its own: a count may be 1. Chain with a selection mechanism, or with noise when the
        catalogue is public.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): both ``items`` and
        ``universe``, repeated items, or ``max_items`` where the unit is a row. SpaceError (OS201,
        OS202, OS204): not records, another metric, no such column or of another dtype.

    Source
        [own] Lemma 1 in ``vote_counts.md``.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp_sim.spaces.metrics import IdDistance
        >>> from opendp_sim.spaces.records import Column, Records
        >>> dp.enable_features("contrib")
        >>> records = Records((Column("who", "int64", role="privacy_id"), Column("word", "str")))
        >>> counts = make_vote_counts(records, IdDistance("who"), item="word", items=["a", "b"])
        >>> words = np.array(["a", "a", "b", "a", "z"], dtype=object)
        >>> counts({"who": np.array([1, 1, 1, 2, 2]), "word": words}), counts.map(3)
        ([2, 1], 6)
    """

    key: ClassVar[str] = "vote_counts"
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
    room = "sketches"

    item: Annotated[
        str,
        param(
            "The column that names the item voted for.", symbol="i", unit="column name", min_length=1,
            hint="name a column of dtype str, int64 or category.",
        ),
    ]  # fmt: skip
    user: Annotated[
        str | None,
        param(
            "The column that names the user; a user's repeated votes for an item count once.",
            symbol="p", unit="column name", default=None,
            hint="leave it out where the unit names the user, or where every row is a vote.",
        ),
    ] = None  # fmt: skip
    items: Annotated[
        tuple[str | int, ...] | None,
        param(
            "The public catalogue; its order breaks ties.", symbol="m", unit="items", default=None,
            min_length=2, hint="list every item that may be released, from public knowledge.",
        ),
    ] = None  # fmt: skip
    universe: Annotated[
        int | None,
        param(
            "Items are the whole numbers below this one; only those with votes are stored.",
            symbol="N", unit="items", default=None, ge=2, le=2**62,
            hint="for catalogues too large to list, where any number may be released.",
        ),
    ] = None  # fmt: skip
    max_items: Annotated[
        int | None,
        param(
            "The most items one user is counted for; of more, a public hash keeps some.",
            symbol="c", unit="items", default=None, ge=1, le=10**6,
            hint="only a Gaussian histogram gains by it; leave it out for tests and peeling.",
        ),
    ] = None  # fmt: skip
    seed: Seed = 0
    passes: Annotated[
        int,
        param(
            "Times the data is read: each pass holds the votes of one part of the users.",
            symbol="P", unit="passes", default=1, ge=1, le=1000,
            hint="raise it when the distinct votes do not fit in memory; the counts are the same.",
        ),
    ] = 1  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``vote_counts.md``."""
        if not isinstance(domain, Records):
            raise SpaceError(
                "OS201", f"{self.key}.input_domain", expected="records with named columns",
                got=type(domain).__name__, hint="`vote_counts` is a first step on a `data` entry.",
            )  # fmt: skip
        user = self._user(domain, metric)
        item = self._column(domain, self.item, ("str", "int64", "category"))
        catalogue = self._catalogue(item)
        by_row = not isinstance(metric, IdDistance)
        if by_row and self.max_items is not None:
            raise ParameterError(
                "OS102", f"{self.key}.max_items", expected="a unit that is a user",
                got=self.max_items, hint="write `of: <user column>` in the unit, or leave it out.",
            )  # fmt: skip
        read = _reader(item.name, None if user is None else user.name, item.keys)
        if catalogue is not None:
            return self._known(catalogue, read, counted=user is not None, by_row=by_row)
        per_user = 1 if by_row else self.max_items
        output = OpenCounts(item.dtype == "str", self.universe)

        def fold(blocks: Blocks) -> dict[str, NDArray[Any]]:
            table, votes = self._count(blocks, read, self._inside)
            names = list(table.items)
            order = sorted(
                (place for place in range(len(names)) if votes[place]), key=names.__getitem__
            )
            dtype = object if output.text else np.int64
            return {
                "item": np.array([names[place] for place in order], dtype=dtype),
                "votes": votes[np.array(order, dtype=np.int64)],
            }

        return Stable(output=output, fold=fold, output_metric=replace(USERS, touched=per_user))

    def _known(
        self, catalogue: tuple[str | int, ...], read: Any, *, counted: bool, by_row: bool
    ) -> Stable:
        bound = 1 if by_row else min(self.max_items or len(catalogue), len(catalogue))
        block = Block("counts", (len(catalogue),), l1=bound, l2_squared=bound, linf=1)  # Lemma 1
        output = KnownCounts(self.key, (block,), monotone=True, items=catalogue)
        place = {item: at for at, item in enumerate(catalogue)}

        def accumulate(data: Any, out: NDArray[np.int64]) -> None:
            _, items = read(data)
            found = np.array(
                [place.get(item, -1) for item in exact(items.tolist())], dtype=np.int64
            )
            out += np.bincount(found[found >= 0], minlength=len(catalogue))

        def fold(blocks: Blocks) -> NDArray[np.int64]:
            table, votes = self._count(blocks, read, lambda items: _among(items, place))
            out = np.zeros(len(catalogue), dtype=np.int64)
            out[[place[item] for item in table.items]] = votes
            return out

        one: Any = {"fold": fold} if counted else {"accumulate": accumulate}
        return Stable(output=output, output_metric=USERS, faces=output.faces, **one)

    def _count(
        self, blocks: Blocks, read: Any, inside: Callable[[NDArray[Any]], Any]
    ) -> tuple[VoteTable, NDArray[np.int64]]:
        """Count every pass; each adds the votes of its own users."""
        table, votes = VoteTable(), np.zeros(0, dtype=np.int64)
        for part in range(self.passes):
            row = 0  # a row has the same number in every pass: it votes in one of them
            for block in blocks():
                users, items = read(block)
                if users is None:
                    users, row = np.arange(row, row + len(items)), row + len(items)
                kept = inside(items)
                if self.passes > 1:
                    kept = kept & (parts_of(users, self.passes) == part)
                table.add(users[kept], items[kept])
            found = table.votes(self.max_items, self.seed)
            found[: len(votes)] += votes
            votes = found
            table.next_part()
        return table, votes

    def _inside(self, items: NDArray[Any]) -> NDArray[np.bool_]:
        if self.universe is None:
            return np.ones(len(items), dtype=bool)
        return (items >= 0) & (items < self.universe)

    # --- what it may be bound to ----------------------------------------------------------------

    def _user(self, domain: Records, metric: Metric) -> Column | None:
        name = self.user
        if isinstance(metric, IdDistance):
            if name not in (None, metric.identifier_column):
                raise SpaceError(
                    "OS204", f"{self.key}.user", expected="the column that the privacy unit names",
                    got=name, hint=f"write {metric.identifier_column!r}, or leave it out.",
                )  # fmt: skip
            name = metric.identifier_column
        else:
            symmetric(self.key, metric)
        return None if name is None else self._column(domain, name, ("str", "int64", "category"))

    def _column(self, domain: Records, name: str, dtypes: tuple[str, ...]) -> Column:
        column = domain.column(name)
        if column is None or column.dtype not in dtypes:
            raise SpaceError(
                "OS204", f"{self.key}.input_domain", expected=f"a column {name} of {', '.join(dtypes)}",
                got="none" if column is None else column.dtype,
                hint="declare the column with its dtype in `columns`.",
            )  # fmt: skip
        return column

    def _catalogue(self, column: Column) -> tuple[str | int, ...] | None:
        if column.keys and self.items is None and self.universe is None:
            return column.keys
        if self.items is not None and self.universe is None and not column.keys:
            items: tuple[Any, ...] = tuple(map(plain, self.items))
            if (
                items == self.items
                and len(set(items)) == len(items)
                and {type(i) for i in items} == {str if column.dtype == "str" else int}
            ):
                return items
            got = "repeated items, items of another type than the column, or blanks around one"
        elif self.universe is None or (self.items is None and column.dtype == "int64"):
            return None
        else:
            got = "two catalogues, or a universe of a column that is not int64"
        raise ParameterError(
            "OS102", f"{self.key}.items", expected="one catalogue of distinct items of the column",
            got=got, hint="give `items`, or `universe` for whole numbers, or a category column.",
        )  # fmt: skip


def _among(items: NDArray[Any], place: dict[Any, int]) -> NDArray[np.bool_]:
    found = exact(items.tolist())
    return np.fromiter((item in place for item in found), bool, len(found))


def _reader(
    item: str, user: str | None, keys: tuple[str | int, ...]
) -> Callable[[Any], tuple[NDArray[Any] | None, NDArray[Any]]]:
    """Return the function from a block to its users and items; a category's items are its keys."""
    names = np.array(keys, dtype=object)

    def read(block: Any) -> tuple[NDArray[Any] | None, NDArray[Any]]:
        items = np.asarray(block[item])
        return (None if user is None else np.asarray(block[user]), names[items] if keys else items)

    return read


make_vote_counts, then_vote_counts = constructors(VoteCounts)
