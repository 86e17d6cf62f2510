"""Record the inner releases of one run, replay them to a neighbour's run, compare.

A mechanism that is *only* a composition of OpenDP measurements is, given its releases, a
deterministic post-processing; so with the same releases its neighbour must make the same calls and
return the same output, and the losses of the calls, priced by the inner measurements' own maps at
the distance of their two arguments, must fit within the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opendp_sim.audit.distances import measure_distance, to_float
from opendp_sim.audit.encoding import Raised, structure
from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.own_data import copied
from opendp_sim.audit.spaces import metric_name
from opendp_sim.audit.subject import Subject
from opendp_sim.core import dp

__all__ = ["Call", "recorded", "replay"]

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Call:
    """One inner release: which measurement, on what, and what came out."""

    measurement: dp.Measurement
    argument: Any
    release: Any

    @property
    def identity(self) -> str:
        """What must not depend on the data: domains, metric, measure, and the noise behind the map."""
        made = self.measurement
        return f"{made.input_domain} {made.input_metric} {made.output_measure} {_unit_loss(made)}"


class _DivergedError(Exception):
    """The replayed run asked for more releases than were recorded."""


@contextmanager
def recorded(
    calls: list[Call], outer: dp.Measurement | None, frozen: list[Any] | None = None
) -> Iterator[None]:
    """Log the calls of measurements other than ``outer``; with ``frozen``, return those releases."""
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
    """Run the left side for real and the right side on its releases; return what does not fit."""
    first: list[Call] = []
    second: list[Call] = []
    with recorded(first, subject.outer):
        left = _run(subject, pair.left)
    with recorded(second, subject.outer, [call.release for call in first]):
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
    """Add up the inner losses where they are in the measure of the claim."""
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
