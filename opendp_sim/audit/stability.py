"""L1: is the distance of outputs within the map? A search over neighbouring pairs, exact verdicts.

For a transformation the output metric decides. For a release of the form core + noise the distance
of the noiseless parts is priced by the declared noise in the measure of the claim.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import opendp.prelude as dp

from opendp_sim.audit.datasets import records_of
from opendp_sim.audit.distances import exceeds, measure_distance, ratio, to_float
from opendp_sim.audit.encoding import Raised
from opendp_sim.audit.findings import Budget, Evidence, LayerResult
from opendp_sim.audit.losses import claim_ratio
from opendp_sim.audit.neighbours import RECORD_METRICS, Pair
from opendp_sim.audit.noise import difference, flat
from opendp_sim.audit.spaces import PairSpace, metric_name, quiet_member
from opendp_sim.audit.strassen import couple
from opendp_sim.audit.subject import Subject
from opendp_sim.core.errors import AuditError

__all__ = ["Measured", "stability_layer"]

_LAYER = "L1 stability"
_COUPLINGS = 5
_PATIENCE = 1500
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


def stability_layer(
    subject: Subject,
    space: PairSpace,
    d_in: Any,
    budget: Budget,
    rng: np.random.Generator,
    beta: float,
    output_distance: Callable[[Any, Any], Any] | None = None,
) -> LayerResult:
    """Search for a pair whose outputs are further apart than the claim allows, and shrink it."""
    begin = time.process_time()
    look = _observer(subject, output_distance)
    if look is None:
        return LayerResult(_LAYER, "skipped", "no noiseless part declared (core=, noise=)")
    hunt = _Hunt(subject, space, look, _distance_of(subject, output_distance), beta)
    for pair in _walk(space, d_in, budget, rng, lambda: hunt.best_pair):
        if hunt.visit(pair):
            break
    spent = time.process_time() - begin
    if hunt.evidence is not None:
        return LayerResult(_LAYER, "refuted", "", hunt.runs, spent, hunt.evidence)
    return LayerResult(
        _LAYER, "not refuted", "", hunt.runs, spent,
        power=f"{hunt.runs} pairs tried; the closest attains {max(hunt.best, 0):.3g} of the claim; "
        "any pair tried above the claim would have shown, exactly",
        facts={"largest_ratio": max(hunt.best, 0.0), "pair": hunt.best_pair},
    )  # fmt: skip


@dataclass
class _Hunt:
    """The state of one search: the best pair so far, and the evidence once there is some."""

    subject: Subject
    space: PairSpace
    look: Callable[[Pair], Measured]
    distance: Callable[[Any, Any], Any]
    beta: float
    runs: int = 0
    best: float = -1.0
    best_pair: Pair | None = None
    evidence: Evidence | None = None
    couplings: int = 0
    since: int = 0

    def visit(self, pair: Pair) -> bool:
        """Look at a pair; say whether the search is over.

        A permutation that breaks the claim at distance zero is kept, and the search goes on for a
        while: a pair at the distance that was asked about is the better counterexample.
        """
        measured = self.look(pair)
        self.runs += 1
        self.since += self.evidence is not None
        if self.since > _PATIENCE:
            return True
        if not measured.broken:
            if measured.ratio > self.best and math.isfinite(measured.ratio):
                self.best, self.best_pair = measured.ratio, pair
            return False
        if self.evidence is not None and pair.distance == 0:
            return False
        member = quiet_member(self.subject.input_domain)
        if not (member(pair.left) and member(pair.right)):
            return False
        if not self.subject.private and _random_output(self.subject, pair):
            return self._coupled(pair, measured)
        small = _shrink(self.look, self.space, pair, member)
        self.evidence = _evidence(small, self.look(small))
        return bool(pair.distance != 0)

    def _coupled(self, pair: Pair, measured: Measured) -> bool:
        """Two random outputs may differ: only a certified failure of every coupling counts."""
        if self.couplings == _COUPLINGS:
            return False
        self.couplings += 1
        risk = self.beta / _COUPLINGS
        found = couple(self.subject.run, pair, self.distance, float(measured.claimed), risk)
        self.runs += found.runs
        self.evidence = self.evidence or found.evidence
        return found.evidence is not None


# --- the walk -------------------------------------------------------------------------


def _walk(
    space: PairSpace,
    d_in: Any,
    budget: Budget,
    rng: np.random.Generator,
    best: Callable[[], Pair | None],
) -> Iterator[Pair]:
    """Yield corners, then fresh pairs and small changes of the best one, until the budget ends."""
    end = time.process_time() + budget.stability_seconds
    count = 0
    for pair in space.corners(rng):
        yield pair
        count += 1
        if time.process_time() > end:
            return
    while count < budget.stability_trials and time.process_time() < end:
        top = best()
        coin = rng.random()
        if top is not None and top.genome is not None and coin < 0.5:
            yield space.mutate(top, rng)
        elif coin < 0.6:
            yield space.draw(rng, 0)
        elif coin < 0.7:
            yield space.draw(rng, d_in * int(rng.integers(2, 4)))
        else:
            yield space.draw(rng)
        count += 1


def _shrink(
    look: Callable[[Pair], Measured], space: PairSpace, pair: Pair, member: Callable[[Any], bool]
) -> Pair:
    """Return the smallest pair found that still breaks the claim."""
    if pair.genome is None:
        return pair
    end = time.process_time() + 0.5
    improved = True
    while improved and time.process_time() < end:
        improved = False
        for smaller in space.simpler(pair):
            if time.process_time() > end:
                break
            if look(smaller).broken and member(smaller.left) and member(smaller.right):
                pair, improved = smaller, True
                break
    return pair


# --- looking at one pair --------------------------------------------------------------


def _distance_of(
    subject: Subject, output_distance: Callable[[Any, Any], Any] | None
) -> Callable[[Any, Any], Any]:
    if output_distance is not None:
        return output_distance
    name = metric_name(subject.output_metric) if subject.output_metric is not None else ""
    descriptor = getattr(subject.output_metric, "descriptor", None)
    if name == "VectorNorm" and descriptor is not None:
        return _weighted(descriptor)
    name = "SymmetricDistance" if name == "Symmetric" else name
    split = _splitter(subject, name)
    return lambda left, right: measure_distance(name, split(left), split(right))


def _splitter(subject: Subject, name: str) -> Callable[[Any], Any]:
    """Take outputs apart into records where the output domain knows how."""
    if name in RECORD_METRICS and subject.output_domain is not None:
        try:
            return records_of(subject.output_domain).split
        except AuditError:
            pass
    return lambda value: value


def _weighted(norm: Any) -> Callable[[Any, Any], Any]:
    """The norms of our own metric: cells over their weights."""
    weights = np.concatenate(
        [np.full(count, weight) for count, weight in norm.weights] or [np.ones(1, int)]
    )
    kind = {"l1": "L1Distance", "l2": "L2Distance", "linf": "LInfDistance"}[norm.norm]

    def distance(left: Any, right: Any) -> Any:
        first, second = np.ravel(left), np.ravel(right)
        if first.shape != second.shape:
            return math.inf
        moved = np.flatnonzero(first != second)
        cells = np.broadcast_to(weights, first.shape)[moved].tolist()
        gaps = zip(first[moved].tolist(), second[moved].tolist(), cells, strict=True)
        scaled = [Fraction(int(a) - int(b), int(w)) for a, b, w in gaps]
        return measure_distance(kind, scaled, [0] * len(scaled))

    return distance


def _call(function: Callable[[Any], Any], data: Any) -> Any:
    try:
        return function(data)
    except Exception as error:  # noqa: BLE001
        return Raised.of(error)


def _observer(
    subject: Subject, output_distance: Callable[[Any, Any], Any] | None
) -> Callable[[Pair], Measured] | None:
    if subject.stability_map is not None:
        return _transformation(subject, output_distance)
    if subject.core is None or subject.noise is None:
        return None
    return _release(subject)


def _exception(left: Any, right: Any) -> Measured:
    same = left == right if isinstance(left, Raised) and isinstance(right, Raised) else False
    return Measured(0.0, not same, (left, right), "the same behaviour", "an exception", "exception")


def _transformation(
    subject: Subject, output_distance: Callable[[Any, Any], Any] | None
) -> Callable[[Pair], Measured]:
    distance_of = _distance_of(subject, output_distance)
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
        left, right = _call(subject.run, pair.left), _call(subject.run, pair.right)
        if isinstance(left, Raised) or isinstance(right, Raised):
            return _exception(left, right)
        distance = distance_of(left, right)
        if output_distance is not None:
            return Measured(
                float(distance) / float(claimed) if claimed else math.inf * bool(distance),
                bool(distance > claimed), (left, right), claimed, distance,
            )  # fmt: skip
        return Measured(
            ratio(name, distance, claimed), exceeds(name, distance, claimed),
            (left, right), claimed, _shown(name, distance),
        )  # fmt: skip

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
        left, right = _call(subject.core, pair.left), _call(subject.core, pair.right)
        if isinstance(left, Raised) or isinstance(right, Raised):
            return _exception(left, right)
        if isinstance(claimed, float) and math.isinf(claimed):
            return Measured(0.0, False, (left, right), claimed, 0.0, "loss")
        if inner is not None:
            return _through(inner, left, right, claimed)
        first, second = flat(left), flat(right)
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
    """Price a distance by the map of the measurement that is applied to the noiseless part."""
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


def _random_output(subject: Subject, pair: Pair) -> bool:
    """Say whether the function is randomised: does repeating it change the output?"""
    for data in (pair.left, pair.right):
        first = _text(_call(subject.run, data))
        if any(_text(_call(subject.run, data)) != first for _ in range(8)):
            return True
    return False


def _text(value: Any) -> str:
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)


def _evidence(pair: Pair, measured: Measured) -> Evidence:
    words = {
        "stability": "outputs are further apart than the stability map says",
        "loss": "the declared noise does not cover the distance of the noiseless parts",
        "exception": "one neighbour raises and the other does not",
        "shape": "the number of released cells depends on the data",
    }
    return Evidence(
        measured.kind, words[measured.kind], measured.claimed, measured.attained, pair,
        measured.outputs, extra={"distance": pair.distance},
    )  # fmt: skip
