"""Record draws of records as positions.

Choices and permutations, and draws that two runs share. Which records stand at the places is the data;
the places have one law on either side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opendp_sim.audit.instrument.tape import Tape

IN_PLACE = "shuffle"
"""Changes its argument: the order that it draws is on the tape."""
PICKS = ("choice", "sample", "permutation")
"""Take records from their argument: the places that they draw are on the tape."""
_SWAPPED = 2
"""Rows from which on a shuffle writes to its argument."""
_SCALARS = (bool, int, float, np.generic)
_OF_PYTHON = ("random.", "secrets.")


def lent(
    tape: Tape, what: str, real: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Return a draw shared by a round's runs where laws are equal."""
    told = tuple(sorted(options.items()))
    name, rows = what.rpartition(".")[2], args[0] if args else ()
    numpys = not what.startswith(_OF_PYTHON)
    if name == IN_PLACE and len(args) == 1 and not options:
        drawn = tape.lent((what, len(rows)), _order, real, len(rows))
        _reordered(rows, drawn)
        return None
    if name in PICKS and "p" not in options and _has_places(rows, flat=numpys):
        source = len(rows) if numpys else range(len(rows))
        key = what, len(rows), args[1:], told
        return _at(rows, tape.lent(key, real, source, *args[1:], **options), numpys=numpys)
    return tape.lent((what, args, told), real, *args, **options)


def picked(
    tape: Tape,
    what: str,
    real: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    seeded: str,
) -> tuple[Any] | None:
    """Return the rows at recorded positions, or None.

    ``None`` where nothing has positions. The places are the draw, and of one law on either side; the
    records that stand there are the data.
    """
    rows, rest = args[0], args[1:]
    numpys = not what.startswith(_OF_PYTHON)
    if not _has_places(rows, flat=numpys):
        return None
    source: Any = len(rows) if numpys else range(len(rows))
    spots = tape.other(
        f"{what} of {len(rows)}{shown(rest)}{shown(tuple(sorted(options.items())))}",
        lambda: real(source, *rest, **options),
        seeded=seeded,
    )
    return (_at(rows, spots, numpys=numpys),)


def _has_places(rows: Any, *, flat: bool) -> bool:
    """Return whether a value is a sequence that is not empty."""
    if isinstance(rows, np.ndarray):  # which Python's `sample` refuses
        return flat and rows.ndim == 1 and rows.size > 0
    known = isinstance(rows, (list, tuple, str)) and len(rows) > 0
    return known and (not flat or all(isinstance(r, (*_SCALARS, str)) for r in rows))


def _at(rows: Any, spots: Any, *, numpys: bool) -> Any:
    """Return what stands at these places."""
    if numpys:
        return np.asarray(rows)[np.asarray(spots) % len(rows)]
    taken = [rows[int(k) % len(rows)] for k in np.atleast_1d(spots)]
    return taken if isinstance(spots, list) else taken[0]


def shuffled(tape: Tape, what: str, real: Callable[..., Any], rows: Any, seeded: str) -> None:
    """Permute rows in place by the recorded order, cut or extended."""
    _reordered(rows, tape.other(what, lambda: _order(real, len(rows)), seeded=seeded))


def _order(real: Callable[..., Any], count: int) -> list[int]:
    drawn = list(range(count))
    real(drawn)
    return drawn


def _reordered(rows: Any, drawn: list[int]) -> None:
    places = [i for i in drawn if i < len(rows)] + list(range(len(drawn), len(rows)))
    if len(places) < _SWAPPED:
        return
    if isinstance(rows, np.ndarray):
        rows[:] = rows[places]
        return
    ordered = [rows[i] for i in places]
    for place, row in enumerate(ordered):  # a sequence of another kind may take no slices
        rows[place] = row


def shown(values: Any) -> str:
    """Parameters as text; long ones in parts."""
    text = repr(values)
    return text if len(text) <= 300 else f"{text[:300]} {hash(text)}"
