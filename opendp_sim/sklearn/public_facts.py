"""Public facts about private data: bounds and classes come from the caller, never from the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.sklearn.refusals import EstimatorRefused

__all__ = ["Box", "Classes", "box_of", "choice", "classes_of", "number", "pair_of"]

_BITS = 14
"""Binary digits of the grid: a bound of 2**14 steps, so rounding is far below any noise."""


@dataclass(frozen=True)
class Box:
    """Public bounds of the features: one pair for all, or one a column; and a bound on the L2 norm.

    Attributes:
        lower: one number, or one a column; None where only ``norm`` is known.
        upper: the same.
        norm: rows longer than this are shortened to it; None where they are not.
    """

    lower: tuple[float, ...] | None
    upper: tuple[float, ...] | None
    norm: float | None = None

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

    def beside(self, width: int, lower: float, upper: float, columns: int) -> Box:
        """Return the bounds of ``width`` features with ``columns`` more columns beside them."""
        low, high = (self.lower or ()), (self.upper or ())
        low, high = (part * width if len(part) == 1 else part for part in (low, high))
        return Box(low + (lower,) * columns, high + (upper,) * columns)

    def steps(self) -> list[Mapping[str, Any]]:
        """Return the row maps from records' features to the grid: clip, rescale, quantize.

        Columns of unlike bounds are each counted in their own range, from the middle of it.
        """
        out: list[Mapping[str, Any]] = []
        if self.norm is not None:
            out.append({"clip_rows": {"norm": "l2", "bound": self.norm}})
        if self.alike:
            return [*out, {"quantize": {"bits": _BITS}}]
        centre = [low / 2 + high / 2 for low, high in self.pairs]
        out.append({"rescale": {"centre": centre, "scale": self.ranges}})
        return [*out, {"quantize": {"bits": _BITS, "bounds": [-0.5, 0.5]}}]

    @property
    def longest(self) -> float | None:
        """The longest range between two bounds of the rows on the grid; None without bounds."""
        if self.lower is None:
            return None
        return max(high - low for low, high in self.pairs) if self.alike else 1.0

    @property
    def ranges(self) -> list[float]:
        """What distances are divided by, column by column; empty where it is nothing."""
        return [] if self.alike else [high - low for low, high in self.pairs]


def box_of(bounds: Any, norm: Any, width: int, who: str) -> Box:
    """Return the public box of the features, or refuse (OS101, OS102)."""
    if norm is not None:
        norm = number("data_norm", norm, above=0.0)
    if bounds is None and norm is None:
        raise EstimatorRefused(
            "OS101",
            f"{who}.bounds",
            expected="bounds=(low, high), public bounds of the features",
            got="none",
            hint="they are not taken from X, which would reveal its extremes; write "
            "bounds=(0, 16), or (lows, highs) with one number a column.",
        )
    if bounds is None:
        return Box(None, None, norm)
    low, high = (_numbers(part, width, who) for part in _two(bounds, f"{who}.bounds"))
    size = max(len(low), len(high))
    low, high = (part * size if len(part) == 1 else part for part in (low, high))
    if not all(a < b and math.isfinite(b - a) for a, b in zip(low, high, strict=True)):
        raise _bad_bounds(who, "a low bound that is not below its high one")
    return Box(low, high, norm)


def pair_of(bounds: Any, name: str) -> tuple[float, float]:
    """Return one pair of finite bounds, or refuse (OS101)."""
    if bounds is None:
        raise EstimatorRefused(
            "OS101",
            name,
            expected="(low, high), public bounds",
            got="none",
            hint="state them from public knowledge: they are not taken from the data.",
        )
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
    except (TypeError, ValueError):
        raise _bad_bounds(who, "something that is no number") from None
    if found.ndim != 1 or len(found) not in (1, width) or not np.isfinite(found).all():
        raise _bad_bounds(who, "another number of bounds than columns, or an infinite one")
    return tuple(found.tolist())


def _bad_bounds(where: str, got: str) -> EstimatorRefused:
    return EstimatorRefused(
        "OS102",
        where,
        expected="bounds=(low, high) or (lows, highs), finite, low below high",
        got=got,
        hint="for two columns: bounds=([0, -90], [16, 600]).",
    )


@dataclass(frozen=True)
class Classes:
    """The public labels, sorted: what scikit-learn calls ``classes_``, and the keys of a spec."""

    values: NDArray[Any]

    @property
    def keys(self) -> list[str | int]:
        """The labels as keys of a category column."""
        return [str(v) if isinstance(v, str) else int(v) for v in self.values.tolist()]

    def check(self, labels: NDArray[Any]) -> None:
        """Refuse a label column whose dtype cannot hold these classes (OS602)."""
        text, kind = isinstance(self.values[0].item(), str), labels.dtype.kind
        if kind in "cmMV" or kind in ("biuf" if text else "UST"):
            raise EstimatorRefused(
                "OS102",
                "classes",
                expected="classes of the kind that y holds",
                got=f"Unknown label type: y has dtype {labels.dtype}",
                hint="state the classes as they are written in y.",
            )


def classes_of(classes: Any, who: str) -> Classes:
    """Return the public classes, or refuse (OS101): which labels occur in y is private."""
    if classes is None:
        raise EstimatorRefused(
            "OS101",
            f"{who}.classes",
            expected="classes=[...], every label that could occur",
            got="none",
            hint="which labels occur in y is private, and is not read from it.",
        )
    listed = [] if isinstance(classes, str) else np.array(classes, dtype=object).tolist()
    whole = all(
        isinstance(v, int | np.integer) or (isinstance(v, float) and v.is_integer()) for v in listed
    )
    # numpy's texts drop zero characters at the end: two classes could become one.
    text = all(isinstance(v, str) and not v.endswith("\0") for v in listed)
    if len(listed) < 2 or len(set(listed)) < len(listed) or not (whole or text):
        raise EstimatorRefused(
            "OS101",
            f"{who}.classes",
            expected="two or more different labels, all text or all whole",
            got="another list",
            hint='for example classes=["ham", "spam"] or classes=range(10).',
        )
    return Classes(np.unique(np.asarray(listed)))


def number(name: str, value: Any, *, above: float, below: float = math.inf) -> float:
    """Return a real parameter strictly between two numbers, or refuse (OS101)."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not (real and above < value < below):
        raise EstimatorRefused(
            "OS101",
            name,
            expected=f"a finite number above {above:g}, below {below:g}",
            got=f"{value!r:.30}",
            hint=f"choose `{name}` from public knowledge.",
        )
    return float(value)


def choice(name: str, value: Any, among: tuple[str, ...]) -> str:
    """Return a parameter that is one of a few words, or refuse (OS101)."""
    if not (isinstance(value, str) and value in among):
        raise EstimatorRefused(
            "OS101",
            name,
            expected=f"one of {', '.join(among)}",
            got=f"{value!r:.30}",
            hint=f"write {name}={among[0]!r}.",
        )
    return value
