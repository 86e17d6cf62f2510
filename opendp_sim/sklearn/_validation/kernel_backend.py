"""Which sketch holds a kernel density, chosen from public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.errors import scalar_text
from opendp_sim.dsl.plan.kernel_choice import (
    POINTS,
    KernelSketch,
    frequencies_and_moments,
    gaussian_kernel_step,
)
from opendp_sim.sklearn._validation.bounds import FeatureBounds
from opendp_sim.sklearn._validation.facts import choice, number
from opendp_sim.sklearn._validation.refusals import EstimatorRefused

_ENGINES = ("auto", "fourier", "gauss_transform", "race")
_MOST_WAVES = 2**14


def kernel_step(
    est: Any, box: FeatureBounds, width: int, noise: float | None
) -> tuple[Mapping[str, Any], str]:
    """Return a kernel estimator's sketch step and chosen sketch (OS101).

    Of unlike columns of ``box``, bandwidths are in their ranges; ``noise`` is an answer's, in records.
    """
    engine = choice("engine", est.engine, _ENGINES)
    bandwidth = number("bandwidth", est.bandwidth, above=0.0)
    never = engine in ("race", "gauss_transform") or est.measure == "pure"
    points = choice("points", est.points, ("auto", "none") if never else POINTS)
    points = "none" if never else points
    count, grown = _components(est, box, bandwidth * math.sqrt(2.0), points, noise)
    seed = seed_of(est.random_state)
    if engine == "race":
        family = {"p_stable_l2": {"width": bandwidth}}
        step = {"repetitions": count, "buckets": 256, "family": family, "seed": seed}
        return {"race_sketch": step}, engine
    return gaussian_kernel_step(
        bandwidth,
        width,
        box.longest,
        engine=cast("KernelSketch", engine) if engine != "auto" else None,
        pure=est.measure == "pure",
        frequencies=count,
        seed=seed,
        moments=grown,
    )


def waves_steps(est: Any, box: FeatureBounds) -> list[Mapping[str, Any]]:
    """Return the random features of an estimator's rows, or none (OS101, OS102).

    Their bandwidth is stated, or a public part of ``box``: of unlike columns in their ranges.
    """
    count, seed = _count(est.n_components, _MOST_WAVES), seed_of(est.random_state)
    if choice("features", est.features, ("linear", "fourier")) == "linear":
        if est.bandwidth is None:
            return []
        raise EstimatorRefused(
            "OS102", "bandwidth", expected="features='fourier' with a bandwidth",
            got="features='linear'", hint="leave `bandwidth` out where borders are straight.",
        )  # fmt: skip
    h = box.usual_bandwidth if est.bandwidth is None else est.bandwidth
    h = number("bandwidth", h, above=0.0)
    return [{"fourier_features": {"frequencies": count, "bandwidth": h, "seed": seed}}]


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
            got=scalar_text(random_state, 30),
            hint="it seeds public matrices, which are written into the release; never the noise.",
        )  # fmt: skip
    return int(random_state)


def _components(
    est: Any, box: FeatureBounds, length: float, points: str, noise: float | None
) -> tuple[int, bool]:
    """Return the number of features, and whether moments are beside them.

    Stated, or of a public size; ``length`` of the kernel, in the grid's units.
    """
    longest = 2.0 * (box.norm or 0.0) if box.longest is None else box.longest
    if est.engine == "race":  # hashes have no lattice
        longest = 0.0
    return frequencies_and_moments(
        points,
        [longest / length] * box.width,
        None if est.size is None else _count(est.size, 2**53, "size"),
        noise,
        pure=est.measure == "pure",
        diagonal=box.diagonal / length,
        stated=None if est.n_components is None else _count(est.n_components, 2**20),
    )


def _count(value: Any, most: int, name: str = "n_components") -> int:
    value = python_value(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise EstimatorRefused(
            "OS101", name, expected=f"a whole number from 1 to {most:,}",
            got=scalar_text(value, 30), hint="leave it out: the default is enough for most data.",
        )  # fmt: skip
    return int(value)
