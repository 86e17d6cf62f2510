"""Search pairs whose output distance exceeds the map (layer L1).

Neighbouring pairs, exact verdicts. For a transformation the output metric decides. For a release of
the form core + noise the distance of the noiseless parts is priced by the declared noise in the
measure of the claim.
"""

from __future__ import annotations

import hashlib
import math
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opendp_sim.audit.checks.compare_outputs import Measured, distance_of_outputs, observer
from opendp_sim.audit.claims.output_distance import to_float
from opendp_sim.audit.findings import Effort, Evidence, LayerResult
from opendp_sim.audit.generators.neighbours import Pair, PairSpace
from opendp_sim.audit.generators.spaces import members_of, metric_name
from opendp_sim.audit.outputs.encoding import Raised, outcome, unordered
from opendp_sim.audit.statistics.clopper_pearson import lower_limit, upper_limit
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.work import work_seconds

# --------------------------------------------------------------------------------------------------
# Randomised transformations: is there *any* coupling that keeps the outputs within the map?
#
# By Strassen's theorem there is none exactly when some set O has ``P[f(x) in O] > P[f(x') within
# d_out of O]``. O is chosen on one sample and certified on another, so two random outputs that merely
# differ never raise an alarm.

_ROUNDING = 1e-9
_CENTRES, _SCORING, _CERTIFYING = 60, 120, 400


@dataclass(frozen=True)
class Coupling:
    """The outcome of one test."""

    runs: int
    evidence: Evidence | None


def couple(
    run: Callable[[Any], Any],
    pair: Pair,
    distance: Callable[[Any, Any], Any],
    d_out: float,
    risk: float,
) -> Coupling:
    """Test one pair in both directions; each has half of the risk."""
    runs, outputs = 0, _Outputs(run, distance)
    for side in (pair, pair.flipped()):
        found = _one_way(outputs, side, d_out, risk / 2)
        runs += 2 * (_SCORING + _CERTIFYING) + _CENTRES
        if found is not None:
            return Coupling(runs, found)
    return Coupling(runs, None)


class _Outputs:
    """Hold draws of a random function, and their cached distances.

    Numbered by content. A function whose coin seldom falls has few contents; a distance of long
    outputs takes milliseconds.
    """

    def __init__(self, run: Callable[[Any], Any], distance: Callable[[Any, Any], Any]) -> None:
        self.run, self._distance = run, distance
        self.values: list[Any] = []
        self._numbers: dict[bytes, int] = {}
        self._known: dict[tuple[int, int], float] = {}

    def draw(self, data: Any, count: int) -> list[int]:
        """Run the function, and return the number of each output."""
        return [self._number(self.run(data)) for _ in range(count)]

    def distance(self, left: int, right: int) -> float:
        """Return the distance of two outputs by their numbers."""
        if (left, right) not in self._known:
            found = self._distance(self.values[left], self.values[right])
            self._known[left, right] = to_float(found)
        return self._known[left, right]

    def _number(self, value: Any) -> int:
        new = len(self.values)
        try:
            content = hashlib.sha256(pickle.dumps(value)).digest()
        except Exception:  # noqa: BLE001 - a stranger's object may refuse in any way
            content = new.to_bytes(8, "big")  # what has no bytes is a content of its own
        number = self._numbers.setdefault(content, new)
        if number == new:
            self.values.append(value)
        return number


def _one_way(outputs: _Outputs, pair: Pair, d_out: float, risk: float) -> Evidence | None:
    centres = outputs.draw(pair.left, _CENTRES)
    train_left = outputs.draw(pair.left, _SCORING)
    train_right = outputs.draw(pair.right, _SCORING)
    reached = d_out * (1 + _ROUNDING)  # what rounding alone carried too far is near
    near = [[outputs.distance(b, c) for c in centres] for b in train_right]
    same = [[outputs.distance(a, c) for c in centres] for a in train_left]
    best, chosen, radius = 0.0, list(range(_CENTRES)), 0.0
    for reach in (0.0, d_out):
        # drop centres that the other side comes close to most often, a quarter at a time
        crowd = [sum(row[c] <= reach + reached for row in near) for c in range(_CENTRES)]
        order = sorted(range(_CENTRES), key=crowd.__getitem__)
        for keep in (_CENTRES, 45, 30, 15, 5, 1):
            kept = order[:keep]
            gap = _hits(same, kept, reach) - _hits(near, kept, reach + reached)
            if gap > best:
                best, chosen, radius = gap, kept, reach
    if best <= 0:
        return None
    near_these = [centres[c] for c in chosen]
    inside = _within(outputs, pair.left, near_these, radius)
    close = _within(outputs, pair.right, near_these, radius + reached)
    low = lower_limit(inside, _CERTIFYING, risk / 2)
    high = upper_limit(close, _CERTIFYING, risk / 2)
    if low <= high:
        return None
    return Evidence(
        "coupling",
        "no coupling of the two random outputs stays within the stability map",
        d_out,
        f"P[left in O] >= {low:.4f} > {high:.4f} >= P[right within the map of O]",
        pair,
        (outputs.values[near_these[0]], outputs.values[train_right[0]]),
        f"1 - {risk:.1g}",
    )


def _hits(rows: list[list[float]], kept: list[int], radius: float) -> float:
    return sum(any(row[c] <= radius for c in kept) for row in rows) / len(rows)


def _within(outputs: _Outputs, data: Any, centres: list[int], radius: float) -> int:
    """Return the number of fresh outputs near one of the centres."""
    fresh = outputs.draw(data, _CERTIFYING)
    return sum(any(outputs.distance(value, c) <= radius for c in centres) for value in fresh)


# --------------------------------------------------------------------------------------------------

_LAYER = "L1 stability"
_COUPLINGS, _OF_A_SHAPE = 10, 2
"""Coupling tests of one audit, and of pairs with the same lengths and distance: the first kind of random
output that is met shall not use all of them up."""
_LEAST, _OVERTIME = 200, 3
"""Pairs that are looked at on a slow machine too, in at most so many times the seconds."""
_PATIENCE = 1500
_REPEATS = 24


class StabilitySearch:
    """Search counterexamples to a stability map, in several rounds.

    A short look first, the rest after the noise tests.
    """

    def __init__(
        self,
        subject: Subject,
        space: PairSpace,
        d_in: Any,
        budget: Effort,
        rng: np.random.Generator,
        beta: float,
        output_distance: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        look = observer(subject, output_distance)
        self._seconds, self._subject = 0.0, subject
        self._hunt: _Hunt | None = None
        if look is not None:
            distance = distance_of_outputs(subject, output_distance)
            distance = _plain(distance, squared=output_distance is None and _squared(subject))
            self._hunt = hunt = _Hunt(
                subject, space, look, distance, members_of(subject, space, d_in).has, beta
            )
            self._idle = _idle(subject, d_in)
            self._walk = _walk(space, d_in, budget.stability_trials, rng, lambda: hunt.best_pair)

    def look(self, seconds: float) -> LayerResult:
        """Continue the search for some seconds, and return all findings."""
        begin = work_seconds()
        hunt = self._hunt
        if hunt is None:
            return LayerResult(_LAYER, "skipped", "no noiseless part declared (core=, noise=)")
        for pair in self._walk:
            spent = work_seconds() - begin
            enough = hunt.runs >= _LEAST or spent > _OVERTIME * seconds
            if hunt.visit(pair) or (spent > seconds and enough):
                break
        self._seconds += work_seconds() - begin
        if hunt.evidence is not None:
            return LayerResult(_LAYER, "refuted", "", hunt.runs, self._seconds, hunt.evidence)
        if not hunt.runs:
            return LayerResult(_LAYER, "skipped", "no pair could be tried")
        if hunt.raised == hunt.runs:
            what = "noiseless part" if self._subject.private else "object"
            return LayerResult(
                _LAYER, "skipped", f"the {what} raised on every dataset tried: {hunt.told}"
            )
        return LayerResult(
            _LAYER,
            "not refuted",
            "",
            hunt.runs,
            self._seconds,
            power=f"{hunt.runs} pairs tried; the closest attains {max(hunt.best, 0):.3g} of the claim; "
            "any pair tried above the claim would have shown, exactly",
            facts={
                "largest_ratio": max(hunt.best, 0.0),
                "pair": hunt.best_pair,
                "idle": self._idle,
            },
        )


@dataclass
class _Hunt:
    """Hold the state of a search, its best pair and evidence."""

    subject: Subject
    space: PairSpace
    look: Callable[[Pair], Measured]
    distance: Callable[[Any, Any], Any]
    member: Callable[[Pair], bool]
    beta: float
    runs: int = 0
    best: float = -1.0
    best_pair: Pair | None = None
    evidence: Evidence | None = None
    couplings: int = 0
    shapes: Counter[Any] = field(default_factory=Counter)
    since: int = 0
    raised: int = 0
    """Pairs on both sides of which there was an exception and no output."""
    told: str = ""

    def visit(self, pair: Pair) -> bool:
        """Look at a pair; say whether the search is over.

        A permutation that breaks the claim at distance zero is kept, and the search goes on for a
        while: a pair at the distance that was asked about is the better counterexample.
        """
        measured = self.look(pair)
        self.runs += 1
        self.raised += bool(measured.raised)
        self.told = measured.raised or self.told
        self.since += self.evidence is not None
        if self.since > _PATIENCE:
            return True
        matters = measured.broken or self.best < measured.ratio < math.inf
        if not (matters and self.member(pair)):
            return False
        if not measured.broken:
            self.best, self.best_pair = measured.ratio, pair
            return False
        if self.evidence is not None and pair.distance == 0:
            return False
        if not self.subject.private and _random_output(self.subject, pair, measured.outputs):
            return self._coupled(pair, measured)
        small = _shrink(self.look, self.space, pair, self.member)
        self.evidence = _evidence(small, self.look(small))
        return bool(pair.distance != 0)

    def _coupled(self, pair: Pair, measured: Measured) -> bool:
        """Return whether every coupling of two random outputs certifiably fails."""
        raised = any(isinstance(output, Raised) for output in measured.outputs)
        if self.couplings == _COUPLINGS or raised or isinstance(measured.claimed, tuple):
            return False  # what has no one distance has no coupling test
        shape = _length(pair.left), _length(pair.right), pair.distance
        if self.shapes[shape] == _OF_A_SHAPE:
            return False
        self.shapes[shape] += 1
        self.couplings += 1
        risk = self.beta / _COUPLINGS
        found = couple(
            lambda data: outcome(self.subject.run, data),
            pair,
            self.distance,
            float(measured.claimed),
            risk,
        )
        self.runs += found.runs
        self.evidence = self.evidence or found.evidence
        return found.evidence is not None


# --- the walk -------------------------------------------------------------------------


def _walk(
    space: PairSpace,
    d_in: Any,
    trials: int,
    rng: np.random.Generator,
    best: Callable[[], Pair | None],
) -> Iterator[Pair]:
    """Yield corners, then fresh pairs and small changes of the best one."""
    count = 0
    for count, pair in enumerate(space.corners(rng), 1):  # noqa: B007 - counts on below
        yield pair
    for _ in range(count, trials):
        top = best()
        coin = rng.random()
        if top is not None and top.genome is not None and coin < 0.5:
            yield space.mutate(top, rng)
        elif coin < 0.6:
            yield space.draw(rng, 0)
        elif coin < 0.7:
            far = int(rng.integers(2, 4))  # of a distance in bounds or in parts nothing is further
            yield space.draw(rng, d_in * far if type(d_in) in (int, float) else d_in)
        else:
            yield space.draw(rng)


def _shrink(
    look: Callable[[Pair], Measured], space: PairSpace, pair: Pair, member: Callable[[Pair], bool]
) -> Pair:
    """Return the smallest pair found that still breaks the claim."""
    if pair.genome is None:
        return pair
    end = work_seconds() + 0.5
    improved = True
    while improved and work_seconds() < end:
        improved = False
        for smaller in space.simpler(pair):
            if work_seconds() > end:
                break
            if look(smaller).broken and member(smaller):
                pair, improved = smaller, True
                break
    return pair


def _idle(subject: Subject, d_in: Any) -> str:
    """Return why no pair could refute a stability claim, or nothing."""
    try:
        claimed = math.inf if subject.stability_map is None else subject.stability_map(d_in)
    except Exception:  # noqa: BLE001 - a foreign map may raise anything
        return ""
    endless = subject.stability_map is not None and claimed == math.inf
    return "its stability map is infinite: every function keeps it" if endless else ""


def _length(data: Any) -> int:
    return len(data) if hasattr(data, "__len__") else 1


def _random_output(subject: Subject, pair: Pair, outputs: tuple[Any, Any]) -> bool:
    """Return whether the function is randomised, by repeated runs.

    Where a coupling keeps the claim, outputs that break it have probabilities p + q <= 1, or they would
    occur together; both come again ``_REPEATS`` times with probability at most 4 ** -_REPEATS.
    """
    for data, output in zip((pair.left, pair.right), outputs, strict=True):
        measured = _text(output)
        if any(_text(outcome(subject.run, data)) != measured for _ in range(_REPEATS)):
            return True
    return False


def _squared(subject: Subject) -> bool:
    """Say whether distances of outputs are measured squared."""
    metric = subject.output_metric
    norm = getattr(getattr(metric, "descriptor", None), "norm", None)
    return norm == "l2" or (metric is not None and metric_name(metric) == "L2Distance")


def _plain(distance: Callable[[Any, Any], Any], *, squared: bool) -> Callable[[Any, Any], float]:
    """Return the distance as a float, infinite for failed runs."""

    def measure(left: Any, right: Any) -> float:
        if isinstance(left, Raised) or isinstance(right, Raised):
            return 0.0 if left == right else math.inf
        size = to_float(distance(left, right))
        return math.sqrt(size) if squared else size

    return measure


def _text(value: Any) -> str:
    return repr(value.tolist() if isinstance(value, np.ndarray) else unordered(value))


def _evidence(pair: Pair, measured: Measured) -> Evidence:
    words = {
        "stability": "outputs are further apart than the stability map says",
        "loss": "the declared noise does not cover the distance of the noiseless parts",
        "exception": "one neighbour raises and the other does not",
        "shape": "the number of released cells depends on the data",
    }
    return Evidence(
        measured.kind,
        words[measured.kind],
        measured.claimed,
        measured.attained,
        pair,
        measured.outputs,
        extra={"distance": pair.distance},
    )
