"""Whether runs with stand-ins for generators release what the object itself releases.

A program may see that a generator is a stand-in, and raise, or go another way: that says nothing of the
object. So runs with stand-ins are compared to releases that are made without any: on a few datasets
whether they raise, and on the pair of every finding whether what it shows is there as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.encoding import Raised, outcome
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.tape import TapeEndError
from opendp_sim.audit.tracer import Tracer
from opendp_sim.audit.two_laws import surely_differ
from opendp_sim.core.randomness import public_generator

__all__ = ["contradicted", "stand_ins_raise"]

_DATASETS, _AGAIN, _SECONDS = 8, 10, 0.1
"""Datasets on which runs are compared, how often what differs is looked at again, and CPU seconds."""
_RELEASES, _RELEASE_SECONDS = 400, 0.3
_SURE, _MORE_OFTEN = 1e-9, 0.5
"""Risk at which two samples surely have two laws; how much more often one of them raises."""


def stand_ins_raise(tracer: Tracer) -> bool:
    """Say whether a run with stand-ins raises where releases of the object do not."""
    rng, begin = public_generator(0, "audit", "stand-ins"), cpu_seconds()
    quiet: list[Any] = []
    for _ in range(_DATASETS):
        data = tracer.space.draw(rng).left
        if not _raises(tracer.subject.run, data):
            quiet.append(data)
        if cpu_seconds() - begin > _SECONDS:
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
    """Say whether runs with stand-ins have another law on a side of a pair than the object's releases."""
    if pair is None:
        return False
    direct = tracer.direct and not tracer.stateful
    with tracer.hooked():
        mine = _sides(tracer.mode_run("bulk") if direct else tracer.obj, pair)
    real = _sides(tracer.subject.run, pair)
    return any(_differ(one, other, _SURE) for one, other in zip(mine, real, strict=True))


def _sides(run: Callable[[Any], Any], pair: Pair) -> tuple[list[Any], list[Any]]:
    """Return as many releases of either side, in turn."""
    left, right = list[Any](), list[Any]()
    end = cpu_seconds() + _RELEASE_SECONDS
    while len(left) < _RELEASES and cpu_seconds() < end:
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
