"""Count how many users voted for each item (``vote_counts.md``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import ItemCounts
from opendp_sim.core.claims import SketchBlock, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.executor import Alone, Workers
from opendp_sim.domains.cell import canonical_cell
from opendp_sim.domains.checks import symmetric
from opendp_sim.domains.counts import USERS, KnownCounts, OpenCounts
from opendp_sim.domains.ids import partition_of
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.domains.records import Column, Records
from opendp_sim.transformations.sketches.counts._impl.vote_table import (
    Integers,
    ItemCodes,
    ItemVotes,
    Listed,
    Pairs,
    TextCodes,
    bounded,
    by_user,
    single_votes,
)

# --------------------------------------------------------------------------------------------------
# How votes are counted: by a crew, for one item after another, the votes of a user once.

Votes = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Items that occur, by number, and their votes."""


@dataclass(frozen=True)
class Counting:
    """Describe which votes of a dataset count, by columns and parameters."""

    item: Column
    user: Column | None
    universe: int | None
    max_items: int | None
    seed: int
    passes: int

    @property
    def reads(self) -> frozenset[str]:
        """Return the names of the columns."""
        return frozenset(column.name for column in (self.item, self.user) if column is not None)

    def votes(self, crew: Workers, codes: ItemCodes) -> Votes:
        """Return the items that occur, by number, and their votes."""
        if self.user is None:
            return self._of_rows(crew, codes)
        # each pass adds its own users'
        return _added([self._of_users(crew, self.user, codes, at) for at in range(self.passes)])

    def _of_rows(self, crew: Workers, codes: ItemCodes) -> Votes:
        """Count every row as a vote."""

        def vote(state: ItemVotes, block: Any) -> None:
            items = codes.of(np.asarray(block[self.item.name]))
            state.add(*single_votes(items[self._inside(items, codes)]))

        return _added([state.total() for state in crew.gather(ItemVotes, vote)])

    def _of_users(self, crew: Workers, user: Column, codes: ItemCodes, part: int) -> Votes:
        """Count a part of the users, each user's item once."""
        users = codes_of(user)

        def pair(state: Pairs, block: Any) -> None:
            items = codes.of(np.asarray(block[self.item.name]))
            kept = self._inside(items, codes)
            who = np.asarray(block[user.name])
            if self.passes > 1:
                kept &= partition_of(who, self.passes) == part
            state.add(users.of(who[kept]), items[kept])

        def votes(pairs: Pairs) -> Votes:
            by, items = pairs.distinct()
            if self.max_items is not None:
                items = bounded(by, items, self.max_items, self.seed, users, codes)
            return single_votes(items)

        return _added(crew.each(votes, by_user(crew.gather(Pairs, pair), crew)))

    def _inside(self, items: NDArray[np.int64], codes: ItemCodes) -> NDArray[np.bool_]:
        """Return which item numbers are in the catalogue or the universe."""
        if isinstance(codes, Listed):
            return items >= 0
        if self.universe is None:
            return np.ones(len(items), dtype=bool)
        return (items >= 0) & (items < self.universe)


def _added(parts: Sequence[Votes]) -> Votes:
    total = ItemVotes()
    for items, votes in parts:
        total.add(items, votes)
    return total.total()


def named_votes(counted: Votes, codes: ItemCodes, *, text: bool) -> dict[str, NDArray[Any]]:
    """Return items by name, sorted, with their votes."""
    items, votes = counted
    names = codes.names(items)
    order: Any = sorted(range(len(names)), key=names.__getitem__) if text else slice(None)
    found = np.array(names, dtype=object if text else np.int64)
    return {"item": found[order], "votes": votes[order]}


def codes_of(column: Column) -> ItemCodes:
    """Return the numbers for the values of a column."""
    return TextCodes() if column.dtype == "str" else Integers()


# --------------------------------------------------------------------------------------------------


@register
class VoteCounts(Mechanism):
    r"""Count the users who voted for each item.

    A repeated vote counts once.

    Space
        Input: records with a column of items (``str``, ``int64`` or ``category``) and perhaps one of
        users, under symmetric distance, or under the id distance of the users' column. Output with a
        public catalogue (``items``, or a category's keys, or ``items`` of them): a sketch of one block,
        ``counts`` of shape (m,), in the catalogue's order; votes for other items are left out. Output
        without one: the items that occur, sorted, with their counts, under a distance that states c.

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
        >>> from opendp_sim.domains.metrics import IdDistance
        >>> from opendp_sim.domains.records import Column, Records
        >>> dp.enable_features("contrib")
        >>> records = Records((Column("who", "int64", role="privacy_id"), Column("word", "str")))
        >>> counts = make_vote_counts(records, IdDistance("who"), item="word", items=["a", "b"])
        >>> words = np.array(["a", "a", "b", "a", "z"], dtype=object)
        >>> counts({"who": np.array([1, 1, 1, 2, 2]), "word": words}), counts.map(3)
        ([2, 1], 6)
    """

    key: ClassVar[str] = "vote_counts"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "sketches"
    offers = ("item_counts",)

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
            hint="a Gaussian histogram gains by it, and an open catalogue whose `top_k` asks for as many "
            "items or more; leave it out for tests and peeling.",
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
        counting = Counting(item, user, self.universe, self.max_items, self.seed, self.passes)
        if catalogue is not None:
            return self._known(catalogue, counting, by_row=by_row)
        return self._open(counting, touched=1 if by_row else self.max_items)

    def _open(self, counting: Counting, touched: int | None) -> Stable:
        """Count whatever items occur."""
        item, output = counting.item, OpenCounts(counting.item.dtype == "str", self.universe)

        def shared(crew: Workers) -> dict[str, NDArray[Any]]:
            codes = codes_of(item)
            return named_votes(counting.votes(crew, codes), codes, text=output.text)

        def merge(parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
            codes, total = codes_of(item), ItemVotes()
            for part in parts:
                total.add(codes.of(part["item"]), part["votes"])
            return named_votes(total.total(), codes, text=output.text)

        return Stable(
            output=output,
            fold=lambda blocks: shared(Alone(blocks)),
            shared=shared,
            merge=merge,
            gather=None if counting.user is None else counting.user.name,
            reads=counting.reads,
            output_metric=replace(USERS, touched=touched),
        )

    def _known(
        self, catalogue: tuple[str | int, ...], counting: Counting, *, by_row: bool
    ) -> Stable:
        """Count the items of a public catalogue."""
        item, user = counting.item, counting.user
        bound = 1 if by_row else min(self.max_items or len(catalogue), len(catalogue))
        block = SketchBlock(
            "counts", (len(catalogue),), l1=bound, l2_squared=bound, linf=1
        )  # Lemma 1
        output = KnownCounts(self.key, (block,), monotone=True, items=catalogue)
        codes = Listed(catalogue, keys=item.keys)

        def accumulate(data: Any, out: NDArray[np.int64]) -> None:
            found = codes.of(np.asarray(data[item.name]))
            out += np.bincount(found[found >= 0], minlength=len(catalogue))

        def shared(crew: Workers) -> NDArray[np.int64]:
            out = np.zeros(len(catalogue), dtype=np.int64)
            items, votes = counting.votes(crew, codes)
            out[items] = votes
            return out

        def merge(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
            return np.asarray(sum(parts, np.zeros(len(catalogue), dtype=np.int64)))

        one: Any = {"accumulate": accumulate}
        if user is not None:
            one = {"fold": lambda blocks: shared(Alone(blocks)), "shared": shared}
            one |= {"merge": merge, "gather": user.name}
        return Stable(
            output=output,
            output_metric=USERS,
            sensitivity=output.sensitivity,
            capabilities={"item_counts": ItemCounts(catalogue, block.name)},
            reads=counting.reads,
            **one,
        )

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
            near = [] if column else get_close_matches(name, [c.name for c in domain.columns], n=1)
            raise SpaceError(
                "OS204", f"{self.key}.input_domain", expected=f"a column {name} of {', '.join(dtypes)}",
                got="none" if column is None else column.dtype,
                hint=f"did you mean {near[0]!r}?" if near else "declare the column with its dtype in "
                "`columns`.",
            )  # fmt: skip
        return column

    def _catalogue(self, column: Column) -> tuple[str | int, ...] | None:
        """Return the public items, of a category among its keys."""
        if self.universe is not None:
            if self.items is None and column.dtype == "int64":
                return None
            got = "two catalogues, or a universe of a column that is not int64"
        elif self.items is None:
            return column.keys or None
        else:
            items: tuple[Any, ...] = tuple(map(canonical_cell, self.items))
            kind = str if column.dtype == "str" else int
            fits = column.keys or all(type(item) is kind for item in items)
            if items == self.items and len(set(items)) == len(items) and fits:
                if not column.keys or set(items) <= set(column.keys):
                    return items
                got = "an item that is none of the column's keys, which no record can have"
            else:
                got = "repeated items, items of another type than the column, or blanks around one"
        raise ParameterError(
            "OS102", f"{self.key}.items", expected="one catalogue of distinct items of the column",
            got=got, hint="give `items`, or `universe` for whole numbers, or a category column, whose "
            "catalogue is its keys.",
        )  # fmt: skip


make_vote_counts, then_vote_counts = constructors(VoteCounts)
