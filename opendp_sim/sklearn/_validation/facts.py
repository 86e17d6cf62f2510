"""Read public facts, classes and numbers, given by the caller."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.budget import MOST_DENOMINATOR, Number, as_written
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.errors import scalar_text
from opendp_sim.sklearn._validation.refusals import EstimatorRefused
from opendp_sim.sklearn._validation.tables import is_text


@dataclass(frozen=True)
class PublicClasses:
    """Public labels, sorted, as ``classes_`` and as the keys of a spec."""

    values: NDArray[Any]

    @property
    def keys(self) -> list[str | int]:
        """The labels as keys of a category column."""
        return [str(v) if isinstance(v, str) else int(v) for v in self.values.tolist()]

    def check(self, labels: NDArray[Any], given: Any = None) -> None:
        """Refuse a label column whose type cannot hold these classes (OS102).

        What was ``given`` may say more by its own type. A list has none, and objects have none: each of
        their cells is read by itself, and the text ``"1"`` is the class 1.
        """
        text, kind = isinstance(self.values[0].item(), str), labels.dtype.kind
        kind = "U" if kind == "O" and is_text(given) else kind
        if kind in "cmMV" or kind in ("biuf" if text else "UST"):
            raise EstimatorRefused(
                "OS102", "classes", expected="classes of the kind that y holds",
                got=f"Unknown label type: y has dtype {'text' if kind == 'U' else labels.dtype}",
                hint="state the classes as they are written in y.",
            )  # fmt: skip

    def column(self, labels: NDArray[Any]) -> tuple[NDArray[Any], dict[str, Any]]:
        """Return a label column with its declaration."""
        return labels, {"dtype": "category", "keys": self.keys}


def by_class(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores (q, L), or for two classes their difference (q,)."""
    return np.asarray(score[:, 1] - score[:, 0] if score.shape[1] == 2 else score)


def classes_of(classes: Any, who: str) -> PublicClasses:
    """Return the public classes, or refuse to take them from y (OS101)."""
    if classes is None:
        raise EstimatorRefused(
            "OS101", f"{who}.classes", expected="classes=[...], every label that could occur",
            got="none", hint="which labels occur in y is private, and is not read from it.",
        )  # fmt: skip
    listed = _listed(classes)
    whole = all(isinstance(v, int | np.integer | float) and _is_key(v) for v in listed)
    # numpy's texts drop zero characters at the end: two classes could become one.
    text = all(isinstance(v, str) and not v.endswith("\0") for v in listed)
    if not (whole or text) or len(listed) < 2 or len(set(listed)) < len(listed):
        raise EstimatorRefused(
            "OS101", f"{who}.classes",
            expected="two or more different labels, all text or all whole", got="another list",
            hint='for example classes=["ham", "spam"] or classes=range(10).',
        )  # fmt: skip
    return PublicClasses(np.unique(np.asarray(listed)))


def _is_key(value: Any) -> bool:
    """Return whether a number is an integer of 64 bits."""
    return float(value).is_integer() and -(2**63) < value < 2**63 if abs(value) < 2**64 else False


def _listed(classes: Any) -> list[Any]:
    if isinstance(classes, str | bytes | Mapping) or not isinstance(
        classes, Collection | np.ndarray
    ):
        return [] if not hasattr(classes, "__array__") else np.array(classes, dtype=object).tolist()
    unordered = isinstance(classes, AbstractSet)
    return list(classes) if unordered else np.array(classes, dtype=object).tolist()


def bound(name: str, value: Any, *, below: float = math.inf) -> Number:
    """Return a positive bound of a budget unchanged, or refuse (OS101)."""
    value = as_written(value)
    near = number(name, value, above=0.0, below=below)
    return value if isinstance(value, Fraction) else near


def number(name: str, value: Any, *, above: float, below: float = math.inf) -> float:
    """Return a real parameter strictly between two numbers, or refuse (OS101)."""
    value = python_value(value)
    real = isinstance(value, int | float | Fraction) and not isinstance(value, bool)
    short = not isinstance(value, Fraction) or value.denominator < MOST_DENOMINATOR
    if not (real and short and above < value < below and value <= sys.float_info.max):
        raise EstimatorRefused(
            "OS101", name, expected=f"a finite number above {above:g}, below {below:g}",
            got=scalar_text(value, 30), hint=f"choose `{name}` from public knowledge.",
        )  # fmt: skip
    return float(value)


def choice(name: str, value: Any, among: tuple[str, ...]) -> str:
    """Return a parameter of a few words, or refuse (OS101)."""
    value = python_value(value)
    if not (isinstance(value, str) and value in among):
        raise EstimatorRefused(
            "OS101", name, expected=f"one of {', '.join(among)}", got=scalar_text(value, 30),
            hint=f"write {name}={among[0]!r}.",
        )  # fmt: skip
    return value
