"""Exact distances between outputs, in the output metric of the claim.

A screening value in floats first; the verdict itself is decided in rational arithmetic, so that a
refutation is never a rounding error of the auditor.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from opendp_sim.core.errors import AuditError

_INFINITE = math.inf
_LONG = 500


def measure_distance(metric: str, left: Any, right: Any) -> Any:
    """Return the distance of two outputs in a metric.

    An exact ``Fraction`` or int, infinity, or a tuple for L0-Lp-L∞. For the L2 metric this is the
    *square* of the distance, which is rational.
    """
    if metric in ("SymmetricDistance", "MultisetDistance"):
        return _symmetric(left, right)
    if metric == "InsertDeleteDistance":
        return _insert_delete(_keys(left), _keys(right))
    if metric == "ChangeOneDistance":
        return _symmetric(left, right) // 2 if len(left) == len(right) else _INFINITE
    if metric == "HammingDistance":
        return _hamming(_keys(left), _keys(right))
    if metric == "DiscreteDistance":
        return int(_key(left) != _key(right))
    if metric in ("L01InfDistance", "L02InfDistance"):
        gaps = _gaps(left, right)
        power = 1 if metric == "L01InfDistance" else 2
        return (sum(g != 0 for g in gaps), _power_sum(gaps, power), max(gaps, default=Fraction(0)))
    gaps = _gaps(left, right)
    if metric in ("AbsoluteDistance", "L1Distance"):
        return _power_sum(gaps, 1)
    if metric == "L2Distance":
        return _power_sum(gaps, 2)
    if metric == "LInfDistance":
        return max(gaps, default=Fraction(0))
    raise AuditError(
        "OS501",
        "audit.distances",
        expected="a metric of OpenDP or one given by output_distance=",
        got=metric,
        hint="pass output_distance= (two outputs to a number) for a metric of your own.",
    )


def exceeds(metric: str, distance: Any, claimed: Any) -> bool:
    """Say whether a measured distance is above the claimed one, exactly."""
    if isinstance(distance, tuple):
        powers = (1, 2, 1) if metric == "L02InfDistance" else (1, 1, 1)
        return any(_above(d, c, p) for d, c, p in zip(distance, claimed, powers, strict=True))
    return _above(distance, claimed, 2 if metric == "L2Distance" else 1)


def ratio(metric: str, distance: Any, claimed: Any) -> float:
    """Return measured over claimed distance as a float."""
    if isinstance(distance, tuple):
        powers = (1, 2, 1) if metric == "L02InfDistance" else (1, 1, 1)
        parts = zip(distance, claimed, powers, strict=True)
        return max(_quotient(d, c, p) for d, c, p in parts)
    return _quotient(distance, claimed, 2 if metric == "L2Distance" else 1)


# --- comparisons ----------------------------------------------------------------------


def _above(distance: Any, claimed: Any, power: int) -> bool:
    if claimed == _INFINITE:
        return False
    if distance == _INFINITE:
        return True
    return bool(Fraction(distance) > Fraction(claimed) ** power)


def _quotient(distance: Any, claimed: Any, power: int) -> float:
    size = to_float(distance) ** (1 / power)
    if size == 0:
        return 0.0
    return size / float(claimed) if claimed else _INFINITE


def to_float(value: Any) -> float:
    """Turn an exact number into a float, overflowing to infinity."""
    try:
        return float(value)
    except OverflowError:
        return _INFINITE


# --- numbers --------------------------------------------------------------------------


def _gaps(left: Any, right: Any) -> list[Any]:
    """Return absolute differences by cell."""
    if isinstance(left, Mapping):
        left, right = _open_counts(left), _open_counts(right)
        keys = list(dict.fromkeys([*left, *right]))
        return [cell_gap(left.get(k, 0), right.get(k, 0)) for k in keys]
    left, right = _array(left), _array(right)
    if _whole(left) and _whole(right) and np.shape(left) == np.shape(right):
        # exact without a Fraction for every cell: only those that moved
        moved = np.flatnonzero(np.ravel(left) != np.ravel(right))
        pairs = zip(np.ravel(left)[moved].tolist(), np.ravel(right)[moved].tolist(), strict=True)
        return [Fraction(abs(a - b)) for a, b in pairs]
    first, second = _flat(left), _flat(right)
    if len(first) != len(second):
        return [_INFINITE]
    return [cell_gap(a, b) for a, b in zip(first, second, strict=True)]


def monotone_steps(left: Any, right: Any, cells: int | None = None) -> tuple[Any, Any]:
    """Return the fewest raising and lowering steps between two outputs.

    A step moves at most ``cells`` cells (None: any number) one way, each by at most one; one of size s is
    s of them. Rises r, and falls, take D(r) = max(max r, ceil(sum r / cells)) steps. No fewer: a step
    moves no cell by more than one, and all together by ``cells``. No more: a step on the ``cells``
    largest of r lowers D(r).
    """
    if isinstance(left, Mapping):
        left, right = _open_counts(left), _open_counts(right)
        keys = list(dict.fromkeys([*left, *right]))
        left, right = ([table.get(key, 0) for key in keys] for table in (left, right))
    first, second = np.ravel(left).tolist(), np.ravel(right).tolist()
    if len(first) != len(second):
        return _INFINITE, _INFINITE
    pairs = list(zip(first, second, strict=True))
    rises = [cell_gap(a, b) for a, b in pairs if b > a]
    falls = [cell_gap(a, b) for a, b in pairs if a != b and not b > a]
    return _steps(rises, cells), _steps(falls, cells)


def _steps(moves: list[Any], cells: int | None) -> Any:
    longest = max(moves, default=0)
    if cells is None or longest == _INFINITE:
        return longest
    return max(longest, math.ceil(sum(moves) / Fraction(cells)))


def _open_counts(table: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return a table of items and votes as a mapping."""
    if set(table) != {"item", "votes"}:
        return table
    items, votes = (np.asarray(table[name]).tolist() for name in ("item", "votes"))
    return dict(zip(items, votes, strict=True))


def _array(value: Any) -> Any:
    """Return a long list of integers as an array."""
    if not isinstance(value, list) or len(value) < _LONG:
        return value
    try:
        found = np.asarray(value)
    except (ValueError, OverflowError):  # ragged, or beyond every integer of numpy
        return value
    return found if found.ndim == 1 and found.dtype == np.int64 else value


def _whole(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu"


def cell_gap(left: Any, right: Any) -> Any:
    """Return two numbers' exact difference, infinite where one is not finite."""
    if left == right:
        return Fraction(0)
    if any(isinstance(one, float) and not math.isfinite(one) for one in (left, right)):
        return Fraction(0) if left != left and right != right else _INFINITE  # noqa: PLR0124
    return abs(Fraction(left) - Fraction(right))


def _power_sum(gaps: Iterable[Any], power: int) -> Any:
    total = Fraction(0)
    for gap in gaps:
        if gap == _INFINITE:
            return _INFINITE
        total += gap**power
    return total


def _flat(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return value.ravel().tolist()
    if isinstance(value, (list, tuple)):
        return [cell for part in value for cell in _flat(part)] if _nested(value) else list(value)
    return [value.item() if isinstance(value, np.generic) else value]


def _nested(value: Sequence[Any]) -> bool:
    return any(isinstance(part, (list, tuple, np.ndarray)) for part in value)


# --- records --------------------------------------------------------------------------


def _key(record: Any) -> Hashable:
    if isinstance(record, np.ndarray):
        return tuple(_key(v) for v in record.ravel().tolist())
    if isinstance(record, (list, tuple)):
        return tuple(_key(v) for v in record)
    return "NaN" if isinstance(record, float) and math.isnan(record) else record


def _keys(records: Iterable[Any]) -> list[Hashable]:
    return [_key(record) for record in records]


def _symmetric(left: Iterable[Any], right: Iterable[Any]) -> int:
    first, second = Counter(_keys(left)), Counter(_keys(right))
    return ((first - second) + (second - first)).total()


def _hamming(left: list[Hashable], right: list[Hashable]) -> Any:
    if len(left) != len(right):
        return _INFINITE
    return sum(a != b for a, b in zip(left, right, strict=True))


def _insert_delete(left: list[Hashable], right: list[Hashable]) -> int:
    """Length of both less twice the longest common subsequence."""
    row = [0] * (len(right) + 1)
    for a in left:
        before = 0
        for j, b in enumerate(right, 1):
            before, row[j] = row[j], before + 1 if a == b else max(row[j], row[j - 1])
    return len(left) + len(right) - 2 * row[-1]
