"""What recipes are told, by its form: what is of another one is refused by a code (OS101, OS102)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from os import PathLike
from typing import Any

from opendp_sim.core.errors import ParameterError

__all__ = ["check_apart", "check_asked", "check_word", "keys_of"]


def keys_of(keys: Any) -> list[Any]:
    """Return every label or item that could occur, in the order that it is written in.

    A set has another order in every process: each run would be another program.
    """
    written = isinstance(keys, Iterable) and not isinstance(keys, str | bytes | Mapping)
    if not written or isinstance(keys, set | frozenset):
        raise ParameterError(
            "OS101",
            "keys",
            expected="a list of every label or item that could occur",
            got="a set, which has no order" if isinstance(keys, set | frozenset) else "no list",
            hint='for example keys=["a", "b"]; of a set keys=sorted(found).',
        )
    return list(keys)


def check_word(
    name: str, value: Any, kinds: type | tuple[type, ...], expected: str, hint: str
) -> None:
    """Refuse a word that is of none of these types (OS101)."""
    if not isinstance(value, kinds):
        raise ParameterError(
            "OS101", name, expected=expected, got=type(value).__name__[:40], hint=hint
        )


def check_asked(unit: Any, ids: Any, ledger: Any, limit: Any) -> None:
    """Refuse a unit, its type, a ledger or a limit that is of another form (OS101)."""
    check_word("unit", unit, str, "`row`, or the name of a column", 'unit="visitor".')
    check_word("ids", ids, str, "`str` or `int64`", 'ids="int64".')
    if ledger is not None:
        check_word("ledger", ledger, (str, PathLike), "a file's path", 'ledger="my.ledger".')
    if limit is not None:
        hint = 'limit={"epsilon": 2.0, "delta": 1e-6}.'
        check_word("limit", limit, Mapping, "a budget by name", hint)


def check_apart(unit: str, columns: Collection[str]) -> None:
    """Refuse a person's identifier that is one of the columns which are released about (OS102)."""
    if unit in columns:
        raise ParameterError(
            "OS102",
            "unit",
            expected="a column that names the person, and no other one of the recipe's",
            got=f"{unit!r:.60}, which is a feature, a label or the item, too",
            hint="name the column of the persons' identifiers; where each row is a person, "
            'leave `unit` out, which is unit="row".',
        )
