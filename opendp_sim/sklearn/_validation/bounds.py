"""Read public bounds of private data, given by the caller."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from opendp_sim.dsl.plan.kernel_choice import grid_bits
from opendp_sim.sklearn._validation.facts import number
from opendp_sim.sklearn._validation.refusals import EstimatorRefused

_OF_BOX, _OF_NORM = 0.1, 0.5
"""The usual bandwidth in diagonals, of six tables with 2 to 36 columns, and in norms."""


@dataclass(frozen=True)
class FeatureBounds:
    """Bound features in public.

    One pair for all, or one a column; and a bound on the L2 norm.

    Attributes:
        lower: one number, or one a column; None where only ``norm`` is known.
        upper: the same.
        norm: rows longer than this are shortened to it; None where they are not.
        width: how many features there are.
    """

    lower: tuple[float, ...] | None
    upper: tuple[float, ...] | None
    norm: float | None = None
    width: int = 1

    @property
    def alike(self) -> bool:
        """Whether all columns have the same bounds."""
        return self.lower is None or len(set(self.pairs)) == 1

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """The bounds, pair by pair."""
        return list(zip(self.lower or (), self.upper or (), strict=True))

    def column(self, dtype: str, width: int) -> dict[str, Any]:
        """Return the declaration of the features' column."""
        bounds = {"bounds": list(self.pairs[0])} if self.lower is not None and self.alike else {}
        return {"dtype": f"array[{dtype}, {width}]", **bounds}

    def beside(self, width: int, lower: float, upper: float) -> FeatureBounds:
        """Return the bounds of ``width`` features with one more column beside them.

        A row that is at most ``norm`` long has no entry beyond it: that is a bound of each feature.
        """
        most = math.inf if self.norm is None else self.norm
        low = tuple(max(v, -most) for v in self.lower or (-math.inf,))
        high = tuple(min(v, most) for v in self.upper or (math.inf,))
        low, high = (part * width if len(part) == 1 else part for part in (low, high))
        return FeatureBounds((*low, lower), (*high, upper), width=width + 1)

    def steps(self) -> list[Mapping[str, Any]]:
        """Return the row maps from features to the grid.

        Clip, rescale, quantize. Columns of unlike bounds are each counted in their own range, from the
        middle of it.
        """
        out: list[Mapping[str, Any]] = []
        if self.norm is not None:
            out.append({"clip_rows": {"norm": "l2", "bound": self.norm}})
        if self.alike:
            return [*out, {"quantize": {"bits": grid_bits(self.width)}}]
        centre = [low / 2 + high / 2 for low, high in self.pairs]
        out.append({"rescale": {"centre": centre, "scale": self.ranges}})
        return [*out, {"quantize": {"bits": grid_bits(self.width), "bounds": [-0.5, 0.5]}}]

    @property
    def longest(self) -> float | None:
        """Return the longest range of the grid's rows, or None."""
        if self.lower is None:
            return None
        return max(high - low for low, high in self.pairs) if self.alike else 1.0

    @property
    def diagonal(self) -> float:
        """Return a bound of two rows' distance, in the grid's units."""
        of_box = math.inf if self.longest is None else self.longest * self.width**0.5
        return min(of_box, 2.0 * self.norm) if self.norm is not None and self.alike else of_box

    @property
    def usual_bandwidth(self) -> float:
        """Return about half of the distance of two records, in public.

        In the grid's units: a tenth of the box's diagonal, a half of the norm.
        """
        of_box = math.inf if self.longest is None else _OF_BOX * self.longest * self.width**0.5
        return min(of_box, _OF_NORM * self.norm) if self.norm and self.alike else of_box

    @property
    def ranges(self) -> list[float]:
        """Return the divisors of distances, by column, or empty."""
        return [] if self.alike else [high - low for low, high in self.pairs]


def box_of(bounds: Any, norm: Any, width: int, estimator: Any) -> FeatureBounds:
    """Return the public box of the features, or refuse (OS101, OS102).

    Args:
        bounds: one pair for all columns; two arrays or lists, of low and of high bounds; or a dict of
            column (its name, or its place where there are no names) to its pair.
        norm: the bound on the L2 norm of a row, or None.
        width: how many columns there are.
        estimator: what asks, once it has seen the names of the columns.
    """
    who = type(estimator).__name__
    if norm is not None:
        norm = number("data_norm", norm, above=0.0)
    if bounds is None and norm is None:
        raise EstimatorRefused(
            "OS101",
            f"{who}.bounds",
            expected="bounds=(low, high), public bounds of the features",
            got="none",
            hint="they are not taken from X, which would reveal its extremes; write "
            "bounds=(0, 16), (lows, highs) with one number a column, or {column: (low, high)}.",
        )
    if bounds is None:
        return FeatureBounds(None, None, norm, width)
    where = f"{who}.bounds"
    if isinstance(bounds, Mapping):
        bounds = _by_column(bounds, getattr(estimator, "feature_names_in_", None), width, where)
    elif width == 2 and _either_way(bounds):
        raise EstimatorRefused(
            "OS102", where, expected="bounds that can be read in one way",
            got="two pairs for two columns: one a column, or lows and highs?",
            hint=_hint_for_two(estimator),
        )  # fmt: skip
    low, high = (_numbers(part, width, where) for part in _two(bounds, where))
    size = max(len(low), len(high))
    low, high = (part * size if len(part) == 1 else part for part in (low, high))
    if not all(a < b and math.isfinite(b - a) for a, b in zip(low, high, strict=True)):
        raise _bad_bounds(where, "a low bound that is not below its high one")
    return FeatureBounds(low, high, norm, width)


def _by_column(bounds: Mapping[Any, Any], names: Any, width: int, where: str) -> Any:
    """Return lows and highs from a dict of pairs."""
    places = list(range(width))
    known = places if names is None or set(bounds) == set(places) else [str(n) for n in names]
    if set(bounds) != set(known):
        raise EstimatorRefused(
            "OS102", where,
            expected=f"a pair for each of {', '.join(map(str, known[:8]))}{' ...' * (width > 8)}",
            got="other columns",
            hint="name every column that is fitted; of an array, its columns are 0, 1, ...",
        )  # fmt: skip
    pairs = [_two(bounds[name], where) for name in known]
    return [low for low, _ in pairs], [high for _, high in pairs]


def _either_way(bounds: Any) -> bool:
    """Return whether two pairs are ambiguous.

    For two columns they could be one a column as well as lows and highs. Two arrays of numpy are lows
    and highs, as diffprivlib writes them: nobody writes pairs so.
    """
    if isinstance(bounds, list | tuple) and all(isinstance(part, np.ndarray) for part in bounds):
        return False
    try:
        table = np.array(bounds, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        return False
    if table.shape != (2, 2) or (table == table.T).all():
        return False
    return bool((table[0] < table[1]).all() and (table[:, 0] < table[:, 1]).all())


def _hint_for_two(estimator: Any) -> str:
    names = getattr(estimator, "feature_names_in_", None)
    first, second = (0, 1) if names is None else (str(name)[:40] for name in names)
    return (
        f"write bounds={{{first!r}: (low, high), {second!r}: (low, high)}}, or "
        "bounds=(np.array(lows), np.array(highs))."
    )


def pair_of(bounds: Any, name: str) -> tuple[float, float]:
    """Return one pair of finite bounds, or refuse (OS101)."""
    if bounds is None:
        raise EstimatorRefused(
            "OS101", name, expected="(low, high), public bounds", got="none",
            hint="state them from public knowledge: they are not taken from the data.",
        )  # fmt: skip
    (low,), (high,) = (_numbers(part, 1, name) for part in _two(bounds, name))
    if not (low < high and math.isfinite(high - low)):
        raise _bad_bounds(name, "a low bound that is not below its high one")
    return low, high


def _two(bounds: Any, where: str) -> tuple[Any, Any]:
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise _bad_bounds(where, "something else") from None
    return low, high


def _numbers(part: Any, width: int, who: str) -> tuple[float, ...]:
    try:
        found = np.atleast_1d(np.asarray(part, dtype=np.float64))
    except (OverflowError, TypeError, ValueError):
        raise _bad_bounds(who, "something that is no number") from None
    if found.ndim != 1 or len(found) not in (1, width) or not np.isfinite(found).all():
        raise _bad_bounds(who, "another number of bounds than columns, or an infinite one")
    return tuple(found.tolist())


def _bad_bounds(where: str, got: str) -> EstimatorRefused:
    return EstimatorRefused(
        "OS102", where,
        expected="bounds=(low, high), (lows, highs) or {column: (low, high)}, finite, low below high",
        got=got,
        hint='for columns of unlike bounds: bounds={"age": (0, 120), "delay": (-90, 600)}.',
    )  # fmt: skip
