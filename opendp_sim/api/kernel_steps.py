"""Choose row maps and sketch of a Gaussian kernel density."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from opendp_sim.accounting.budget import Limit
from opendp_sim.api.columns import Bounds, bounds_of, grid
from opendp_sim.api.recipe import goal, size_of
from opendp_sim.api.recipe_spec import StepDicts, privacy_words
from opendp_sim.core.errors import ParameterError, scalar_text
from opendp_sim.dsl.plan.kernel_choice import (
    POINTS,
    frequencies_and_moments,
    gaussian_kernel_step,
    noise_in_records,
    with_moments,
)


def kernel_steps(
    columns: Bounds,
    bandwidth: float | Mapping[str, float],
    seed: int,
    *,
    per_label: bool,
    privacy: Mapping[str, Any],
    size: int | None = None,
    error: float | None = None,
    points: str = "none",
) -> tuple[StepDicts, Mapping[str, Any]]:
    """Return the row maps and the sketch of a Gaussian kernel density.

    ``size``: about how many records, from public knowledge; it and ``privacy``, the recipe's words,
    choose the number of frequencies, or the least is taken that reaches ``error``. ``points``: whether
    the sketch has the moments that points are grown from, ``grown``, ``none`` or ``auto``.
    """
    size = None if size is None else size_of(size)
    rows: StepDicts = [grid(columns)]
    widths: list[Any] = list(bandwidth.values()) if isinstance(bandwidth, Mapping) else [bandwidth]
    fits = [isinstance(h, int | float) and 0.0 < h <= sys.float_info.max for h in widths]
    if not all(fits):
        raise ParameterError(
            "OS101", "bandwidth", expected="finite numbers above 0",
            got=scalar_text(widths[fits.index(False)], 60),
            hint="the distance at which two records count as near, from public knowledge.",
        )  # fmt: skip
    lengths = {name: high - low for name, (low, high) in bounds_of(columns).items()}
    if not isinstance(bandwidth, Mapping):
        h, ranges = float(bandwidth), list(lengths.values())
    elif set(bandwidth) != set(columns):
        raise ParameterError(
            "OS102", "bandwidth", expected=f"one bandwidth for each of {', '.join(columns)}",
            got=", ".join(map(str, bandwidth)) or "none",
            hint="or one number for all, in the columns' common unit.",
        )  # fmt: skip
    else:
        scale = [float(bandwidth[name]) for name in columns]
        h, rows = 1.0, [{"rescale": {"scale": scale}}, *rows]
        ranges = [length / scale[at] for at, length in enumerate(lengths.values())]
    noise, pure = None if size is None else _noise(privacy), privacy.get("measure") == "pure"
    count: int | Mapping[str, Any]
    if error is None:
        reach = [length / (h * math.sqrt(2.0)) for length in ranges]
        count, grown = frequencies_and_moments(points, reach, size, noise, pure=pure)
    else:
        count, grown = goal(error, size), with_moments(points, len(columns), pure=True)
    step, _ = gaussian_kernel_step(
        h,
        len(columns),
        max(ranges, default=0.0),
        engine=None if error is None else "fourier",
        pure=pure,
        frequencies=count,
        seed=seed,
        per_label=per_label,
        moments=grown,
    )
    return rows, step


def check_points(points: Any) -> None:
    """Refuse another word than those of ``points`` (OS101)."""
    if not isinstance(points, str) or points not in POINTS:
        raise ParameterError(
            "OS101", "points", expected=f"one of {', '.join(POINTS)}", got=scalar_text(points, 30),
            hint='points="none" saves the twentieth of the budget that their start takes.',
        )  # fmt: skip


def _noise(privacy: Mapping[str, Any]) -> float | None:
    """Return one answer's noise deviation in records, or None under pure DP."""
    words = privacy_words("density", privacy)
    if words.measure == "pure" or isinstance(words.epsilon, Mapping):
        return None
    return noise_in_records(Limit(epsilon=words.epsilon, delta=words.delta), words.max_rows)
