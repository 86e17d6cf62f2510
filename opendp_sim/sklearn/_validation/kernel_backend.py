"""Which sketch holds a kernel density, chosen from public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.dsl.plan.kernel_choice import KernelSketch, gaussian_kernel_step
from opendp_sim.sklearn._validation.bounds import FeatureBounds
from opendp_sim.sklearn._validation.facts import choice, number
from opendp_sim.sklearn._validation.refusals import EstimatorRefused

_ENGINES = ("auto", "fourier", "gauss_transform", "race")


def kernel_step(
    est: Any, box: FeatureBounds, width: int, *, per_label: bool
) -> tuple[Mapping[str, Any], str]:
    """Return a kernel estimator's sketch step and chosen sketch (OS101).

    Of unlike columns of ``box``, bandwidths are in their ranges; ``per_label``: one density a class.
    """
    engine = choice("engine", est.engine, _ENGINES)
    bandwidth = number("bandwidth", est.bandwidth, above=0.0)
    count, seed = _count(est.n_components), seed_of(est.random_state)
    if engine == "race":
        family = {"p_stable_l2": {"width": bandwidth}}
        step = {"repetitions": count, "buckets": 256, "family": family, "seed": seed}
        return {"race_sketch": {**step, "per_label": per_label}}, engine
    return gaussian_kernel_step(
        bandwidth,
        width,
        box.longest,
        engine=cast("KernelSketch", engine) if engine != "auto" else None,
        pure=est.measure == "pure",
        frequencies=count,
        seed=seed,
        per_label=per_label,
    )


def log_volume(box: FeatureBounds, width: int, bandwidth: float, engine: str) -> float:
    """Return the log of the kernel's volume in data units, or 0."""
    if engine == "race":
        return 0.0
    ranges = sum(math.log(length) for length in box.ranges)
    return width * math.log(bandwidth * math.sqrt(2.0 * math.pi)) + ranges


def seed_of(random_state: Any) -> int:
    """Return the public matrices' integer seed, 0 for None; noise has none."""
    random_state = python_value(random_state)
    if random_state is None:
        return 0
    if not isinstance(random_state, int) or not 0 <= random_state < 2**63:
        raise EstimatorRefused(
            "OS101", "random_state", expected="a whole number, or None for 0",
            got=f"{random_state!r:.30}",
            hint="it seeds public matrices, which are written into the release; never the noise.",
        )  # fmt: skip
    return int(random_state)


def _count(value: Any) -> int:
    value = python_value(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 2**20:
        raise EstimatorRefused(
            "OS101", "n_components", expected="a whole number from 1 to 2**20",
            got=f"{value!r:.30}",
            hint="features of the kernel, at most: 2000 is enough for most data.",
        )  # fmt: skip
    return int(value)
