"""Faults that twins of several families have, and how a twin is made from one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.audit.twins.entries import Control, Twin
from tests.audit.twins.stand_ins import laplace


def named(label: str) -> dict[str, str]:
    """Return the name of a twin and what is wrong with it, written as ``family/name: why``."""
    name, why = label.split(": ", maxsplit=1)
    return {"name": name, "why": why}


def twin(label: str, made: Any, d_in: int = 1) -> Twin:
    obj, options = made
    return Twin(**named(label), make=lambda: obj, d_in=d_in, options=options)


def control(name: str, made: Any, d_in: int = 1) -> Control:
    obj, options = made
    return Control(name=name, make=lambda: obj, d_in=d_in, options=options)


def less_mean(points: np.ndarray) -> np.ndarray:
    return points - points.mean(axis=0)


def by_largest(points: np.ndarray) -> np.ndarray:
    return points / max(np.abs(points).max(), 1e-3) * 2


# --- faults of the noise: (core, count, scale) -> releases ------------------------------------


def times(factor: float, draw: Callable[..., np.ndarray] = laplace) -> Any:
    return lambda core, count, scale: core + draw((count, core.size), scale * factor)


def exact_cells(cells: Any) -> Any:
    def add(core: np.ndarray, count: int, scale: float) -> np.ndarray:
        noise = laplace((count, core.size), scale)
        noise[:, cells] = 0
        return core + noise

    return add


def only_occupied(core: np.ndarray, count: int, scale: float) -> np.ndarray:
    return core + laplace((count, core.size), scale) * (core != 0)


def one_for_two(core: np.ndarray, count: int, scale: float) -> np.ndarray:
    noise = np.repeat(laplace((count, (core.size + 1) // 2), scale), 2, axis=1)
    return core + noise[:, : core.size]


def over_n(count_of: Callable[[np.ndarray], float]) -> Any:
    """The noise of a mean on a sum: the scale divided by the exact count."""

    def add(core: np.ndarray, count: int, scale: float) -> np.ndarray:
        return core + laplace((count, core.size), scale / max(count_of(core), 1.0))

    return add
