"""Measure the output distance of one pair relative to the claim.

For a transformation the output metric decides. For a release of the form core + noise the distance
of the noiseless parts is priced by the declared noise in the measure of the claim. Nothing is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.claims.losses import claim_ratio
from opendp_sim.audit.claims.noise_laws import difference, flattened
from opendp_sim.audit.claims.output_distance import (
    cell_gap,
    exceeds,
    measure_distance,
    monotone_steps,
    ratio,
    to_float,
)
from opendp_sim.audit.generators.datasets import records_of
from opendp_sim.audit.generators.neighbours import RECORD_METRICS, Pair
from opendp_sim.audit.generators.spaces import metric_name
from opendp_sim.audit.outputs.encoding import Raised, outcome
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.work import metered
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError

_TOLERANCE = 1e-9
"""Relative; only where the loss itself is computed in floats."""


@dataclass(frozen=True)
class Measured:
    """What one pair showed."""

    ratio: float
    broken: bool
    outputs: tuple[Any, Any]
    claimed: Any
    attained: Any
    kind: str = "stability"
    raised: str = ""
    """The exception of both sides, where neither has an output."""


def distance_of_outputs(
    subject: Subject, output_distance: Callable[[Any, Any], Any] | None
) -> Callable[[Any, Any], Any]:
    """Return the distance function of the output metric or the user's."""
    if output_distance is not None:
        return output_distance
    metric = subject.output_metric
    name = metric_name(metric) if metric is not None else ""
    return metric_distance(metric, _splitter(subject, name))


def metric_distance(
    metric: dp.Metric | None, split: Callable[[Any], Any] = lambda value: value
) -> Callable[[Any, Any], Any]:
    """Return the distance of a metric between what ``split`` takes apart."""
    name = metric_name(metric) if metric is not None else ""
    descriptor = getattr(metric, "descriptor", None)
    if name == "VectorNorm" and descriptor is not None:
        return _weighted(descriptor)
    name = "SymmetricDistance" if name == "Symmetric" else name
    if name == "LInfDistance" and "monotonic" in str(metric):
        return _one_way
    return lambda left, right: measure_distance(name, split(left), split(right))


def _one_way(left: Any, right: Any) -> Any:
    """Return OpenDP's monotone L∞ distance."""
    return _one_signed(monotone_steps(left, right))


def _one_signed(steps: tuple[Any, Any]) -> Any:
    return math.inf if all(steps) else max(steps)


def _splitter(subject: Subject, name: str) -> Callable[[Any], Any]:
    """Take outputs apart into records where the output domain knows how."""
    name = "SymmetricDistance" if name == "Symmetric" else name
    if name in RECORD_METRICS and subject.output_domain is not None:
        try:
            return records_of(subject.output_domain).split
        except AuditError:
            pass
    return lambda value: value


def _weighted(norm: Any) -> Callable[[Any, Any], Any]:
    """Return a norm of this package's metric.

    A sketch may have a million cells, and few different gaps among them: each is added up once.
    """
    if norm.steps or norm.touched is not None:  # no cell has a weight
        total = sum if norm.steps else _one_signed
        return lambda left, right: total(monotone_steps(left, right, norm.touched))

    def distance(left: Any, right: Any) -> Any:
        first, second = np.ravel(left), np.ravel(right)
        if first.shape != second.shape:
            return math.inf
        if norm.monotone and all(monotone_steps(first, second)):
            return math.inf
        total, begin = Fraction(0), 0
        for cells, weight in (*norm.weights, (first.size, 1)):  # what no weight is given for has 1
            run = slice(begin, begin + cells)
            begin += cells
            for gap, count in _gaps(first[run], second[run]):
                if gap == math.inf:
                    return gap
                part = Fraction(gap, weight)
                if norm.norm == "linf":
                    total = max(total, part)
                else:
                    total += count * part ** (2 if norm.norm == "l2" else 1)
        return total

    return distance


def _gaps(first: NDArray[Any], second: NDArray[Any]) -> list[tuple[Any, int]]:
    """Return the distinct gaps with their numbers of cells."""
    if first.dtype != second.dtype or first.dtype.kind not in "iu":  # numpy would compare as floats
        pairs = zip(first.tolist(), second.tolist(), strict=True)
        return [(cell_gap(a, b), 1) for a, b in pairs if a != b]
    moved = first != second
    high, low = np.maximum(first, second)[moved], np.minimum(first, second)[moved]
    sizes, counts = np.unique(high.astype(np.uint64) - low.astype(np.uint64), return_counts=True)
    return list(zip(sizes.tolist(), counts.tolist(), strict=True))


def observer(
    subject: Subject, output_distance: Callable[[Any, Any], Any] | None
) -> Callable[[Pair], Measured] | None:
    """Return the measurement of a noiseless pair's distance, or None."""
    if subject.stability_map is not None:
        return metered(_transformation(subject, output_distance))
    if subject.core is None or subject.noise is None:
        return None
    return metered(_release(subject))


def _exception(left: Any, right: Any) -> Measured:
    same = left == right if isinstance(left, Raised) and isinstance(right, Raised) else False
    told = left.text if same else ""
    return Measured(
        0.0, not same, (left, right), "the same behaviour", "an exception", "exception", told
    )


def _transformation(
    subject: Subject, output_distance: Callable[[Any, Any], Any] | None
) -> Callable[[Pair], Measured]:
    distance_of = distance_of_outputs(subject, output_distance)
    name = metric_name(subject.output_metric) if subject.output_metric is not None else ""
    descriptor = getattr(subject.output_metric, "descriptor", None)
    if name == "VectorNorm":
        name = {"l1": "L1Distance", "l2": "L2Distance", "linf": "LInfDistance"}[descriptor.norm]  # type: ignore[union-attr]
    name = "SymmetricDistance" if name == "Symmetric" else name
    claims: dict[Any, Any] = {}

    def look(pair: Pair) -> Measured:
        if pair.distance not in claims:
            claims[pair.distance] = _map(subject.stability_map, pair.distance)
        claimed = claims[pair.distance]
        left, right = outcome(subject.run, pair.left), outcome(subject.run, pair.right)
        if isinstance(left, Raised) or isinstance(right, Raised):
            return _exception(left, right)
        distance = distance_of(left, right)
        if output_distance is not None:
            return Measured(
                float(distance) / float(claimed) if claimed else math.inf * bool(distance),
                bool(distance > claimed),
                (left, right),
                claimed,
                distance,
            )
        return Measured(
            ratio(name, distance, claimed),
            exceeds(name, distance, claimed),
            (left, right),
            claimed,
            _shown(name, distance),
        )

    return look


def _map(stability_map: Any, distance: Any) -> Any:
    """Return the claim; a map that refuses a distance claims nothing there."""
    try:
        return stability_map(distance)
    except Exception:  # noqa: BLE001
        return math.inf


def _shown(name: str, distance: Any) -> Any:
    if isinstance(distance, tuple):
        return tuple(to_float(d) for d in distance)
    return math.sqrt(to_float(distance)) if name == "L2Distance" else to_float(distance)


def _release(subject: Subject) -> Callable[[Pair], Measured]:
    claims: dict[Any, Any] = {}
    inner = subject.noise if isinstance(subject.noise, dp.Measurement) else None

    def look(pair: Pair) -> Measured:
        if pair.distance not in claims:
            claims[pair.distance] = _map(subject.privacy_map, pair.distance)
        claimed = claims[pair.distance]
        if subject.core is None:
            return Measured(0.0, broken=False, outputs=(None, None), claimed=claimed, attained=0.0)
        left, right = outcome(subject.core, pair.left), outcome(subject.core, pair.right)
        if isinstance(left, Raised) or isinstance(right, Raised):
            return _exception(left, right)
        if isinstance(claimed, float) and math.isinf(claimed):
            return Measured(0.0, False, (left, right), claimed, 0.0, "loss")
        if inner is not None:
            return _through(inner, left, right, claimed)
        first, second = flattened(left), flattened(right)
        if first.size != second.size:
            return Measured(math.inf, True, (left, right), first.shape, second.shape, "shape")
        law = subject.law(first.size)
        if law is None or subject.measure is None:
            return Measured(0.0, broken=False, outputs=(left, right), claimed=claimed, attained=0.0)
        size = claim_ratio(law, difference(second, first), subject.measure, claimed)
        attained = f"{size:.6g} of the claim"
        return Measured(size, size > 1 + _TOLERANCE, (left, right), claimed, attained, "loss")

    return look


def _through(inner: dp.Measurement, left: Any, right: Any, claimed: Any) -> Measured:
    """Return a distance's loss by the map of the noise measurement."""
    name = metric_name(inner.input_metric)
    distance = to_float(measure_distance(name, left, right))
    distance = math.sqrt(distance) if name == "L2Distance" else distance
    whole = str(inner.input_distance_type)[0] in "iu"
    if not math.isfinite(distance):
        return Measured(math.inf, True, (left, right), claimed, "infinite", "loss")
    cost = inner.map(int(distance) if whole else distance)
    if isinstance(cost, float) and isinstance(claimed, float):
        size = cost / claimed if claimed else math.inf * bool(cost)
        return Measured(size, size > 1 + _TOLERANCE, (left, right), claimed, cost, "loss")
    return Measured(0.0, False, (left, right), claimed, cost, "loss")
