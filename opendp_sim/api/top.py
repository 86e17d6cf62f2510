"""Plan the most frequent items by person, ``sim.top``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from opendp_sim.accounting.release.table import Table
from opendp_sim.api.recipe import DATA, Recipe, check_word, keys_of
from opendp_sim.api.recipe_spec import PersonOptions, privacy_words, recipe_function
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.errors import ParameterError, scalar_text
from opendp_sim.dsl.builder import Builder

_PARTS = (4, 2, 1, 0.5)
"""Bounds on a person's items that are compared: a guess of them over these."""
_MOST = 10**6
"""Most items of one person, as `max_items` of `vote_counts`."""
_NEEDED = {
    "votes_to_be_listed": None,
    "votes_for_95_percent": "ranks",
    "lead_for_95_percent": "places",
}
"""How a plan states the votes that an item needs, and the items before the one they are above."""


@recipe_function(PersonOptions, 'top("page", k=10, unit="visitor")', measure="approx")
def top(
    item: str,
    *,
    k: int,
    keys: Sequence[str | int] | None = None,
    items: str = "str",
    ranked: bool = True,
    max_items: int | None = None,
    items_per_user: int | None = None,
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
        max_items: how many items of one person count, with ``unit``; of more, a public hash keeps some.
            Noise then grows with its root, and no longer with ``k`` over an open catalogue.
        items_per_user: a public guess of how many items a person has; plans of a few ``max_items`` are
            compared with it, and the one is taken by which an item needs the fewest persons.
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
            "OS102", "max_rows", expected="no max_rows", got=scalar_text(words.max_rows, 30),
            hint="each item counts once for a person, however many rows there are.",
        )  # fmt: skip
    max_items = _bound("max_items", max_items, words.unit)
    items_per_user = _bound("items_per_user", items_per_user, words.unit)
    if max_items is not None and items_per_user is not None:
        raise ParameterError(
            "OS102", "items_per_user", expected="either max_items or items_per_user", got="both",
            hint="a guess of a person's items chooses max_items: leave one of them out.",
        )  # fmt: skip
    told = {"dtype": items} if keys is None else {"dtype": "category", "keys": keys_of(keys)}

    def made(most: int | None) -> Builder:
        bound = {} if most is None else {"max_items": most}
        mechanism = {"top_k": {"k": k, "ranked": ranked}}
        return (
            words.begun("top", {item: told})
            .stage("counts", DATA, steps=[{"vote_counts": {"item": item, **bound}}])
            .stage("noisy", "counts", release={"mechanism": mechanism, "spend": "100%"})
            .output("top", "noisy", save=words.file_name("top.json"))
        )

    if items_per_user is None:
        return Recipe(made(max_items), _table)
    bounds = {min(math.ceil(items_per_user / part), _MOST) for part in _PARTS}
    needed = {
        most: _persons_needed(made(most), most, items_per_user) for most in (*sorted(bounds), None)
    }
    best = min(needed, key=lambda most: (*_order(*needed[most]), most is not None))
    return Recipe(made(best), _table, note=_compared(needed, best, items_per_user))


def _bound(word: str, given: Any, unit: str) -> int | None:
    """Return a bound on a person's items (OS101, OS102)."""
    given = python_value(given)
    if given is None:
        return None
    if type(given) is not int or not 1 <= given <= _MOST:
        raise ParameterError(
            "OS101", word, expected=f"a whole number from 1 to {_MOST:,}", got=scalar_text(given, 30),
            hint=f"how many different items of one person count: {word}=20.",
        )  # fmt: skip
    if unit == "row":
        raise ParameterError(
            "OS102", word, expected=f"`{word}` only beside `unit`", got="no `unit`",
            hint='name the column of the persons, unit="visitor": a row has one item.',
        )  # fmt: skip
    return given


def _persons_needed(made: Builder, most: int | None, guess: int) -> tuple[float, int]:
    """Return the persons that an item needs, above which rank.

    Rank 0 is of persons in all. A person of ``guess`` items is counted for ``most`` of them, so of a
    person's items one in ``guess / most`` is. Where a mechanism counts votes above those of a later item,
    that item's come on top.
    """
    bound = made.plan().releases["noisy"].bound
    votes, above = votes_needed({} if bound is None else bound.claim.expected)
    return votes * max(1.0, guess / (most or guess)), above


def votes_needed(expected: Mapping[str, Any]) -> tuple[float, int]:
    """Return the votes that an item needs, and above which rank.

    Rank 0 is of votes in all; infinite votes where none are stated.
    """
    name = next((name for name in _NEEDED if name in expected), None)
    votes = math.inf if name is None else float(expected[name])
    before = _NEEDED.get(name or "")
    return votes, 0 if before is None else int(expected.get(before, 0)) + 1


def _order(persons: float, above: int) -> tuple[float, bool, float]:
    """Return a key that prefers few persons, then persons in all."""
    return (math.ceil(persons) if persons < math.inf else persons), above > 0, persons


def _compared(needed: Mapping[int | None, tuple[float, int]], best: int | None, guess: int) -> str:
    """Return a plan's line about the bounds that were compared."""
    ways = [
        (f"{math.ceil(persons):,}" if persons < math.inf else "an unknown number")
        + (f" above no. {above:,}" if above else "")
        + (" without a bound" if most is None else f" with max_items={most:,}")
        + (" (taken)" if most == best else "")
        for most, (persons, above) in needed.items()
    ]
    return (
        f"compare   items a person: about {guess:,}; persons that an item needs: {', '.join(ways)}"
    )


def _table(found: Any) -> Table:
    return Table(found if isinstance(found, Mapping) else {"item": found})
