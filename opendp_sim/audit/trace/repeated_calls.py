"""Audit repeated calls, together against the multiple of the claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import numbers
from opendp_sim.audit.statistics.score_bets import lean_bets
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.trace.bets import drawn
from opendp_sim.audit.trace.context import Tracer

_REPEATED, _LOOKS, _COMMON = 6, 24, 8
"""Pairs of which two calls are looked at, how often, and how often a sum must come again."""


def repeated_step(tracer: Tracer) -> Evidence | None:
    """Test two calls with shared state against twice the claim.

    An even number of calls a run keeps noise that is taken back at every second call in step, so the sum
    of the two is free of it in every run or, one call later, again: both are looked at.
    """
    if not tracer.stateful:
        return None
    subject = repeated_releases(tracer.subject, 2)
    if subject is None:
        return None
    pairs = [p for p in list(tracer.space.corners(tracer.rng))[:40] if _small(p)][:_REPEATED]
    curve = subject.curve(tracer.d_in)
    for _ in (0, 1):
        told = [(sums, pair) for pair in pairs if (sums := _cancelling(subject, pair)) is not None]
        for sums, pair in told[:2]:
            if tracer.left() < 0.8:
                return None
            run = partial(_which, subject.run, sums)
            seconds, risk = min(max(3.0, tracer.left(0.5)), tracer.left()), tracer.risk(0.04)
            won = lean_bets(run, pair, lambda rows: rows[:, 0], curve, seconds, risk, first=60)
            if won is not None:
                detail = _not_afresh(subject, pair)
                claim = f"two calls: {curve.text}"
                found = drawn(detail, won, tracer, "pairs of releases of the object", claim)
                return replace(found, extra={**found.extra, "calls": 2})
        tracer.obj(pairs[0].left)  # the other step
    return None


def _not_afresh(subject: Subject, pair: Pair) -> str:
    """Return the relation of two successive calls, in words."""
    rows = [numbers(subject.run(data)) for data in (pair.left, pair.right) for _ in range(_COMMON)]
    if all(row is not None and row[: len(row) // 2] == row[len(row) // 2 :] for row in rows):
        return (
            "equal calls give equal answers: a release is kept and not drawn afresh, as releases are that"
            " OpenDP composes; if it is kept for its own dataset only, the claim may hold of single calls"
        )
    return "the noise is not drawn afresh on each call: the sum of two calls in a row comes again"


def _small(pair: Pair) -> bool:
    return not isinstance(pair.left, list) or len(pair.left) < 10


def _sum_of_two(run: Callable[[Any], Any], data: Any) -> tuple[float, ...] | None:
    """Return the sum of two calls, place by place."""
    out = numbers(run(data))
    if out is None or len(out) % 2:
        return None
    half = len(out) // 2
    return tuple(a + b for a, b in zip(out[:half], out[half:], strict=True))


def _which(run: Callable[[Any], Any], sums: tuple[Any, Any], data: Any) -> list[float]:
    seen = _sum_of_two(run, data)
    return [float(seen == sums[0]) - float(seen == sums[1])]


def _cancelling(subject: Subject, pair: Pair) -> tuple[Any, Any] | None:
    """Return different common sums of two calls, or None."""
    found = []
    for data in (pair.left, pair.right):
        sums = Counter(_sum_of_two(subject.run, data) for _ in range(_LOOKS))
        del sums[None]
        found.append(sums.most_common(1)[0] if sums else (None, 0))
    (first, times), (second, again) = found
    return (first, second) if max(times, again) >= _COMMON and first != second else None


def repeated_releases(subject: Subject, calls: int) -> Subject | None:
    """Return several calls with OpenDP's composed claim, or None."""
    kind, single = str(subject.measure and subject.measure.type), subject.privacy_map
    assert single is not None  # noqa: S101 - a measurement
    run = subject.run
    if kind.startswith(("MaxDivergence", "ZeroConcentrated")):
        claim: Any = lambda d: calls * single(d)  # noqa: E731
    elif "MaxDivergence" in kind and kind.startswith(("Approximate", "FixedSmoothed")):
        claim = lambda d: tuple(calls * part for part in single(d))  # noqa: E731
    else:
        return None
    return replace(
        subject, run=lambda data: [run(data) for _ in range(calls)], privacy_map=claim, outer=None
    )
