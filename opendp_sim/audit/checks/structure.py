"""Compare the structure of runs on neighbours (layer L0).

Types, lengths, exceptions and inner releases must not depend on the data. Two ways. On the outside,
releases of both neighbours are compared by type, shape and exception alone, and a difference is
certified by Clopper-Pearson against the claimed curve. On the inside, for mechanisms that say they are
nothing but a composition of OpenDP measurements, the releases of one dataset are replayed to its
neighbour: the same measurements must be called in the same order, the output must be the same, and the
inner losses must fit the claim. That part is deterministic.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from opendp_sim.audit.claims.output_distance import measure_distance, to_float
from opendp_sim.audit.findings import Effort, Evidence, LayerResult
from opendp_sim.audit.generators.copies import copied
from opendp_sim.audit.generators.domain_filter import MemberPairs
from opendp_sim.audit.generators.neighbours import Pair, PairSpace
from opendp_sim.audit.generators.spaces import metric_name
from opendp_sim.audit.outputs.encoding import Raised, structure
from opendp_sim.audit.statistics.clopper_pearson import certified_delta
from opendp_sim.audit.statistics.sampling import draw, draw_both
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.work import work_seconds
from opendp_sim.core import dp

# --------------------------------------------------------------------------------------------------
# Record the inner releases of one run, replay them to a neighbour's run, compare.
#
# A mechanism that is *only* a composition of OpenDP measurements is, given its releases, a
# deterministic post-processing; so with the same releases its neighbour must make the same calls and
# return the same output, and the losses of the calls, priced by the inner measurements' own maps at
# the distance of their two arguments, must fit within the claim.

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Call:
    """Describe one inner release by measurement, argument and output."""

    measurement: dp.Measurement
    argument: Any
    release: Any

    @property
    def identity(self) -> str:
        """Return the call's domains, metric, measure and noise."""
        made = self.measurement
        return f"{made.input_domain} {made.input_metric} {made.output_measure} {_unit_loss(made)}"


class _DivergedError(Exception):
    """The replayed run asked for more releases than were recorded."""


@contextmanager
def recorded_calls(
    calls: list[Call], outer: dp.Measurement | None, frozen: list[Any] | None = None
) -> Iterator[None]:
    """Log the calls of inner measurements."""
    call, invoke = dp.Measurement.__call__, dp.Measurement.invoke
    inside = [False]

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(self: dp.Measurement, arg: Any) -> Any:
            if self is outer or inside[0]:
                return real(self, arg)
            kept = copied(arg)  # the function may write to both
            if frozen is None:
                inside[0] = True
                try:
                    out = real(self, arg)
                finally:
                    inside[0] = False
            elif len(calls) < len(frozen):
                out = copied(frozen[len(calls)])
            else:
                raise _DivergedError
            calls.append(Call(self, kept, copied(out)))
            return out

        return wrapper

    dp.Measurement.__call__, dp.Measurement.invoke = wrap(call), wrap(invoke)  # type: ignore[method-assign]
    try:
        yield
    finally:
        dp.Measurement.__call__, dp.Measurement.invoke = call, invoke  # type: ignore[method-assign]


def replay(subject: Subject, pair: Pair) -> Evidence | None:
    """Replay the left's releases on the right, and return mismatches."""
    first: list[Call] = []
    second: list[Call] = []
    with recorded_calls(first, subject.outer):
        left = _run(subject, pair.left)
    with recorded_calls(second, subject.outer, [call.release for call in first]):
        right = _run(subject, pair.right)
    if len(first) != len(second):
        return _evidence(
            pair,
            (left, right),
            "the number of noisy releases depends on the data",
            f"{len(first)} releases",
            f"{len(second)}, given the same answers",
        )
    for spot, (a, b) in enumerate(zip(first, second, strict=True)):
        if a.identity != b.identity or structure(a.argument) != structure(b.argument):
            return _evidence(
                pair,
                (left, right),
                f"release {spot + 1} is made differently on a neighbour",
                f"{a.identity} on {structure(a.argument)}",
                f"{b.identity} on {structure(b.argument)}",
            )
    if repr(left) != repr(right):
        return _evidence(
            pair,
            (left, right),
            "the output depends on the data beyond the noisy releases",
            "the same output from the same releases",
            "another output",
        )
    return _losses(subject, pair, first, second, (left, right))


def _run(subject: Subject, data: Any) -> Any:
    try:
        return subject.run(data)
    except Exception as error:  # noqa: BLE001
        return Raised.of(error)


def _losses(
    subject: Subject, pair: Pair, first: list[Call], second: list[Call], outputs: tuple[Any, Any]
) -> Evidence | None:
    """Return the sum of inner losses in the claim's measure."""
    claimed = subject.privacy_map(pair.distance) if subject.privacy_map is not None else math.inf
    total = 0.0
    for a, b in zip(first, second, strict=True):
        if a.measurement.output_measure != subject.measure or not isinstance(claimed, float):
            return None
        total += _loss(a, b)
    if total <= claimed * (1 + _TOLERANCE) + 1e-12:
        return None
    return _evidence(
        pair,
        outputs,
        "the losses of the inner releases add up to more than the claim",
        claimed,
        total,
    )


def _loss(first: Call, second: Call) -> float:
    made = first.measurement
    name = metric_name(made.input_metric)
    distance = to_float(measure_distance(name, first.argument, second.argument))
    distance = math.sqrt(distance) if name == "L2Distance" else distance
    if distance == 0:
        return 0.0
    whole = str(made.input_distance_type)[0] in "iu"
    return float(made.map(math.ceil(distance) if whole else distance * (1 - 1e-12)))


def _unit_loss(measurement: dp.Measurement) -> Any:
    whole = str(measurement.input_distance_type)[0] in "iu"
    try:
        return measurement.map(1 if whole else 1.0)
    except Exception:  # noqa: BLE001
        return None


def _evidence(
    pair: Pair, outputs: tuple[Any, Any], detail: str, claimed: Any, measured: Any
) -> Evidence:
    return Evidence("replay", detail, claimed, measured, pair, outputs)


# --------------------------------------------------------------------------------------------------

_LAYER = "L0 structure"
_PROBES, _FEW, _CONFIRM, _SUSPECTS = 3, 60, 400, 3
_LONGEST = 160
"""Characters of an exception."""


def structure_layer(
    subject: Subject,
    space: PairSpace,
    members: MemberPairs,
    budget: Effort,
    rng: np.random.Generator,
    beta: float,
    *,
    composed: bool,
) -> LayerResult:
    """Compare structures on a number of pairs; certify the first differences found.

    ``space`` has structured pairs that ``members`` did not ask about yet, those of the user first.
    """
    begin = work_seconds()
    if not subject.private:
        return LayerResult(_LAYER, "skipped", "a transformation's exceptions and shapes are L1's")
    pairs = _pairs(space, members, budget.structure_pairs * (4 if composed else 1), rng)
    runs, suspects, compared, seen = 0, 0, 0, Counter[str]()
    for pair in pairs:
        if work_seconds() - begin > 0.2 * budget.seconds:
            break
        if composed:
            for side in (pair, pair.flipped()):
                evidence = replay(subject, side)
                runs += 2
                if evidence is not None:
                    return _refuted(evidence, runs, begin)
        compared += 1
        drawn = draw_both(subject, pair, _PROBES)
        left, right = (Counter(structure(v) for v in side) for side in drawn)
        runs += 2 * _PROBES
        seen.update(left + right)
        if not left & right and suspects < _SUSPECTS:
            suspects += 1
            evidence, more = _confirm(subject, pair, beta / (2 * _SUSPECTS))
            runs += more
            if evidence is not None:
                return _refuted(evidence, runs, begin)
    text = f"{compared} pair{'s' * (compared != 1)}" + (
        ", releases replayed both ways" if composed else ""
    )
    power = f"{text}: a shape or exception that always tells neighbours apart would have shown"
    only = bool(seen) and all(name.startswith("raises ") for name in seen)
    told = seen.most_common(1)[0][0].removeprefix("raises ")[:_LONGEST] if only else ""
    if only:
        power = f"every release raised ({told}): nothing else was seen"
    facts = {"raised": told} if only else {}
    seconds = work_seconds() - begin
    return LayerResult(_LAYER, "not refuted", "", runs, seconds, power=power, facts=facts)


def _refuted(evidence: Evidence, runs: int, begin: float) -> LayerResult:
    return LayerResult(_LAYER, "refuted", "", runs, work_seconds() - begin, evidence)


def _pairs(
    space: PairSpace, members: MemberPairs, count: int, rng: np.random.Generator
) -> list[Pair]:
    structured, first = list(space.corners(rng)), count // 2
    step = max(1, len(structured) // max(1, first))
    # Membership costs as much as a release: only of the pairs that are taken is it asked.
    out = list(islice(filter(members.has, structured[::step]), first))
    return out + [members.draw(rng) for _ in range(count - len(out))]


def _confirm(subject: Subject, pair: Pair, beta: float) -> tuple[Evidence | None, int]:
    """Certify in two stages, few runs first."""
    done = 0
    for runs in (_FEW, _CONFIRM):
        found = _certify(subject, pair, runs, beta / 2)
        done += 2 * (runs + 1)
        if found is not None:
            return found, done
    return None, done


def _certify(subject: Subject, pair: Pair, runs: int, beta: float) -> Evidence | None:
    """Certify a structural event in either direction."""
    curve = subject.curve(pair.distance)
    names = [structure(draw(subject, data, 1)[0]) for data in (pair.left, pair.right)]
    first, second = (Counter(structure(v) for v in side) for side in draw_both(subject, pair, runs))
    sides = ((names[0], first, second, pair), (names[1], second, first, pair.flipped()))
    for name, sample, other, side in sides:
        hits = sample[name], other[name]
        for epsilon, delta in zip(curve.grid, curve.deltas, strict=True):
            risk = beta / (2 * len(curve.grid))
            excess = certified_delta(hits, (runs, runs), float(epsilon), risk)
            if excess > delta:
                return Evidence(
                    "structure",
                    "the type, shape, NaN or exception of the release tells neighbours apart",
                    f"{curve.text}",
                    f"`{name}` in {hits[0]} of {runs} on the left, {hits[1]} of {runs} on the right",
                    side,
                    (name, other.most_common(1)[0][0]),
                    f"1 - {beta:.1g}",
                )
    return None
