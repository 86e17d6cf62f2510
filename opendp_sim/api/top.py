"""Plan the most frequent items by person, ``sim.top``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from opendp_sim.accounting.release.table import Table
from opendp_sim.api.recipe import DATA, Recipe, check_word, keys_of
from opendp_sim.api.recipe_spec import PersonOptions, privacy_words, recipe_function
from opendp_sim.core.errors import ParameterError


@recipe_function(PersonOptions, 'top("page", k=10, unit="visitor")', measure="approx")
def top(
    item: str,
    *,
    k: int,
    keys: Sequence[str | int] | None = None,
    items: str = "str",
    ranked: bool = True,
    **privacy: Unpack[PersonOptions],
) -> Recipe[Table]:
    """Plan the ``k`` most frequent items.

    Each counted once a person; the occurring items may be private. ``apply`` returns a table
    (``to_pandas()``, ``TopDisplay.of``) of columns ``rank``, ``item``, and the noisy ``count`` where
    it is paid for. Without ``keys`` there may be fewer than ``k`` rows: an item that few persons have
    is not told. With ``ranked=False`` there is the column ``item`` alone, in no order of theirs, with
    less noise.

    Args:
        item: the column of the items; a person may have any number of rows.
        k: how many items are wanted.
        keys: every item that could occur, where that is public; None where it is not.
        items: ``str`` or ``int64``, the items' dtype without ``keys``.
        ranked: whether the order is released too.
        **privacy: as for ``density``, but ``measure`` is ``approx``, which reads the exact curve of one
            release (in a ledger several of ``approx_zcdp`` add up to less), and there is no ``max_rows``:
            of all rows of one person each item counts once.

    Example:
        >>> fit = top("page", k=10, unit="visitor", epsilon=1.0)
        >>> fit.plan.claim is None, fit.plan.total
        (True, (1.0, 1e-06))
    """
    check_word("item", item, str, "the name of a column", 'sim.top("page", k=10).')
    words = privacy_words("top", privacy, measure="approx")
    if words.max_rows is not None:
        raise ParameterError(
            "OS102", "max_rows", expected="no max_rows", got=f"{words.max_rows!r:.30}",
            hint="each item counts once for a person, however many rows there are.",
        )  # fmt: skip
    told = {"dtype": items} if keys is None else {"dtype": "category", "keys": keys_of(keys)}
    return Recipe(
        words.begun("top", {item: told})
        .stage("counts", DATA, steps=[{"vote_counts": {"item": item}}])
        .stage(
            "noisy",
            "counts",
            release={"mechanism": {"top_k": {"k": k, "ranked": ranked}}, "spend": "100%"},
        )
        .output("top", "noisy", save="top.json"),
        _table,
    )


def _table(found: Any) -> Table:
    return Table(found if isinstance(found, Mapping) else {"item": found})
