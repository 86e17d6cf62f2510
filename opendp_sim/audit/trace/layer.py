"""Audit an opaque measurement along its tape (layer LT).

Losses, structure, replay, bets. What a tape shows is a hint. A verdict is a bet won on draws that were
made after the hint, a closed form or a tree of draws whose law real releases fit; ``layer.md`` proves
what each of them says.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from opendp_sim.audit.checks.distribution import distribution_layer
from opendp_sim.audit.findings import Effort, Evidence, LayerResult
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.tape import OutOfTimeError, TapeEndError
from opendp_sim.audit.outputs.encoding import Raised, outcome
from opendp_sim.audit.statistics.sampling import surely_differ
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.suspicious_pairs import suspicious_pairs
from opendp_sim.audit.work import work_seconds
from opendp_sim.core.randomness import public_generator

# --------------------------------------------------------------------------------------------------
# Whether runs with stand-ins for generators release what the object itself releases.
#
# A program may see that a generator is a stand-in, and raise, or go another way: that says nothing of the
# object. So runs with stand-ins are compared to releases that are made without any: on a few datasets
# whether they raise, and on the pair of every finding whether what it shows is there as well.

_DATASETS, _AGAIN, _SECONDS = 8, 10, 0.1
"""Datasets on which runs are compared, how often what differs is looked at again, and nominal seconds."""
_RELEASES, _RELEASE_SECONDS = 400, 0.3
_SURE, _MORE_OFTEN = 1e-9, 0.5
"""Risk at which two samples surely have two laws; how much more often one of them raises."""


def stand_ins_raise(tracer: Tracer) -> bool:
    """Return whether runs raise with stand-ins only."""
    rng, begin = public_generator(0, "audit", "stand-ins"), work_seconds()
    quiet: list[Any] = []
    for _ in range(_DATASETS):
        data = tracer.space.draw(rng).left
        if not _raises(tracer.subject.run, data):
            quiet.append(data)
        if work_seconds() - begin > _SECONDS:
            break
    with tracer.hooked():
        odd = [data for data in quiet if _taped_raises(tracer, data)]
    for data in odd:
        if any(_raises(tracer.subject.run, data) for _ in range(_AGAIN)):
            continue
        with tracer.hooked():
            if all(_taped_raises(tracer, data) for _ in range(_AGAIN)):
                return True
    return False


def _raises(run: Callable[[Any], Any], data: Any) -> bool:
    return isinstance(outcome(run, data), Raised)


def _taped_raises(tracer: Tracer, data: Any) -> bool:
    try:
        recorded = isinstance(tracer.tape.run(tracer.obj, data, "record")[0], Raised)
    except TapeEndError:  # it draws more than is recorded
        recorded = False
    return recorded or _raises(tracer.tape.live(tracer.obj, "bulk"), data)


def contradicted(tracer: Tracer, pair: Pair | None) -> bool:
    """Return whether stand-ins change a side's law of outputs."""
    if pair is None:
        return False
    direct = tracer.direct and not tracer.stateful
    with tracer.hooked():
        mine = _sides(tracer.tape.live(tracer.function, "bulk") if direct else tracer.obj, pair)
    real = _sides(tracer.subject.run, pair)
    return any(_differ(one, other, _SURE) for one, other in zip(mine, real, strict=True))


def _sides(run: Callable[[Any], Any], pair: Pair) -> tuple[list[Any], list[Any]]:
    """Return as many releases of either side, in turn."""
    left, right = list[Any](), list[Any]()
    end = work_seconds() + _RELEASE_SECONDS
    while len(left) < _RELEASES and work_seconds() < end:
        left.append(outcome(run, pair.left))
        right.append(outcome(run, pair.right))
    return left, right


def _differ(one: list[Any], two: list[Any], risk: float) -> bool:
    shares = [sum(isinstance(v, Raised) for v in side) / max(len(side), 1) for side in (one, two)]
    if abs(shares[0] - shares[1]) > _MORE_OFTEN:
        return True
    try:
        return surely_differ(one, two, risk)
    except Exception:  # noqa: BLE001 - outputs that have no numbers
        return False


# --------------------------------------------------------------------------------------------------

LAYER = "LT trace"
_OVERTIME = 1.2
"""Steps share the layer's seconds; a slow function may overrun them so far, then it is stopped."""
_LOOK = 0.05
"""Part of L3's seconds for seeing which hints are slow."""
_RACE_RUNS, _HINTS = 2000, 20
"""A pair of which fewer runs fit into L3's seconds is no hint for it; and how many hints it gets."""


def trace_layer(tracer: Tracer) -> LayerResult:
    """Scan pairs, then test the findings, strongest kind first."""
    from opendp_sim.audit.trace.explanations import facts_of_trace, hinted, looked, noiseless  # noqa: PLC0415
    from opendp_sim.audit.trace.pipeline import STEPS  # noqa: PLC0415

    begin = work_seconds()
    tracer.unlike = stand_ins_raise(tracer)
    evidence = None if tracer.unlike else _searched(tracer, STEPS)
    if evidence is not None and contradicted(tracer, evidence.pair):
        tracer.unlike, evidence = True, None
    with tracer.hooked():
        facts = facts_of_trace(tracer) if evidence is None else {}
    looks = looked(tracer, refuted=evidence is not None)
    seconds = work_seconds() - begin
    status: Any = "refuted" if evidence is not None else "not refuted"
    return LayerResult(
        LAYER,
        status,
        "",
        tracer.tape.runs,
        seconds,
        evidence,
        power="; ".join(filter(None, [looks, tracer.unfinished])),
        facts={
            "pairs": tracer.seen.pairs,
            "hints": suspicious_pairs(tracer),
            "direct": tracer.direct,
            "largest_loss": tracer.seen.best[0].loss if tracer.seen.best else 0.0,
            "hint": "" if evidence is not None else hinted(tracer),
            "priced": None if evidence is not None or tracer.unlike else tracer.priced,
            "warning": "" if evidence is not None else noiseless(tracer),
            **facts,
        },
    )


def _searched(tracer: Tracer, steps: tuple[Callable[[Tracer], Any], ...]) -> Any:
    """Scan, then run the steps until a finding or timeout."""
    tracer.tape.end = work_seconds() + tracer.left(_OVERTIME)
    try:
        with tracer.hooked(), contextlib.suppress(OutOfTimeError):
            tracer.prepare()
            if not tracer.stateful:
                tracer.look_around()
            for step in steps:
                if tracer.left() <= 0:
                    break
                tracer.hidden = tracer.hidden or tracer.tape.unseen
                evidence = _taken(step, tracer)
                if evidence is not None:
                    return evidence
    finally:
        tracer.tape.end = math.inf
    return None


def _taken(step: Callable[[Tracer], Any], tracer: Tracer) -> Any:
    """Run a step, ignoring its errors."""
    try:
        return step(tracer)
    except Exception as error:  # noqa: BLE001 - an odd function may upset any step
        name = step.__name__.removesuffix("_step").replace("_", " ")
        tracer.unfinished = f"the search for {name} ended with {type(error).__name__}"
        return None


def _affordable(tracer: Tracer, run: Callable[[Any], Any], seconds: float) -> tuple[Pair, ...]:
    """Return the hints that a race can run often enough."""
    out: list[Pair] = []
    first = work_seconds()
    for pair in suspicious_pairs(tracer):
        begin = work_seconds()
        if begin - first > _LOOK * seconds:
            break
        for data in (pair.left, pair.right):
            with contextlib.suppress(Exception):
                run(data)
        if work_seconds() - begin < seconds / _RACE_RUNS:
            out.append(pair)
    return tuple(out)


def _explained(tracer: Tracer, evidence: Evidence | None) -> Evidence | None:
    """Return a finding with what the tapes of its pair show."""
    if evidence is None or evidence.pair is None:
        return evidence
    sides = {repr(evidence.pair.left), repr(evidence.pair.right)}
    for name, some in tracer.seen.odd.items():
        if any({repr(f.pair.left), repr(f.pair.right)} == sides for f in some):
            return replace(evidence, detail=f"{name}: {evidence.detail}")
    return evidence


def traced_distribution(
    tracer: Tracer, budget: Effort, beta: float, hints: tuple[Pair, ...], events: Any
) -> LayerResult:
    """Run L3 on the pairs from the tapes, in bulk if sound."""
    from opendp_sim.audit.trace.bets import verdict_run  # noqa: PLC0415

    def drawn(subject: Subject, hints: tuple[Pair, ...]) -> LayerResult:
        return distribution_layer(
            subject, tracer.space, tracer.d_in, budget, tracer.rng, beta, hints, events
        )

    if not tracer.unlike:
        with tracer.hooked():
            run, words = verdict_run(tracer)
            subject = tracer.subject
            if run is not tracer.obj:
                subject = replace(subject, run=run, outer=None)
            found = drawn(subject, (*hints, *_affordable(tracer, run, budget.seconds))[:_HINTS])
        if found.evidence is None or not contradicted(tracer, found.evidence.pair):
            found = replace(found, evidence=_explained(tracer, found.evidence))
            own = run is tracer.obj
            return found if own else replace(found, facts={**found.facts, "draws": words})
        tracer.unlike = True
    return drawn(tracer.subject, (*hints, *suspicious_pairs(tracer))[:_HINTS])
