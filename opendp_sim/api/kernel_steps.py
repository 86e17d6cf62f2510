"""Choose row maps and sketch of a Gaussian kernel density."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from opendp_sim.api.columns import Bounds, bounds_of, grid
from opendp_sim.api.recipe_spec import StepDicts
from opendp_sim.core.errors import ParameterError
from opendp_sim.dsl.plan.kernel_choice import gaussian_kernel_step


def kernel_steps(
    columns: Bounds,
    bandwidth: float | Mapping[str, float],
    seed: int,
    *,
    per_label: bool,
    pure: bool,
) -> tuple[StepDicts, Mapping[str, Any]]:
    """Return the row maps and the sketch of a Gaussian kernel density."""
    rows: StepDicts = [grid(columns)]
    widths: list[Any] = list(bandwidth.values()) if isinstance(bandwidth, Mapping) else [bandwidth]
    if not all(isinstance(h, int | float) and 0.0 < h < math.inf for h in widths):
        raise ParameterError(
            "OS101", "bandwidth", expected="numbers above 0", got=f"{bandwidth!r:.60}",
            hint="the distance at which two records count as near, from public knowledge.",
        )  # fmt: skip
    lengths = {name: high - low for name, (low, high) in bounds_of(columns).items()}
    if not isinstance(bandwidth, Mapping):
        sigma, longest = bandwidth * math.sqrt(2.0), max(lengths.values(), default=0.0)
    elif set(bandwidth) != set(columns):
        raise ParameterError(
            "OS102", "bandwidth", expected=f"one bandwidth for each of {', '.join(columns)}",
            got=", ".join(map(str, bandwidth)) or "none",
            hint="or one number for all, in the columns' common unit.",
        )  # fmt: skip
    else:
        scale = [float(bandwidth[name]) for name in columns]
        sigma, rows = math.sqrt(2.0), [{"rescale": {"scale": scale}}, *rows]
        longest = max(length / scale[at] for at, length in enumerate(lengths.values()))
    step, _ = gaussian_kernel_step(
        sigma, len(columns), longest, pure=pure, seed=seed, per_label=per_label
    )
    return rows, step
