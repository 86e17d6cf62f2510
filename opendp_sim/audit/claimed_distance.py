"""Check the distance at which a claim is audited."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Any

from opendp_sim.audit.generators.frames import Bounds
from opendp_sim.audit.generators.neighbours import RECORD_METRICS
from opendp_sim.audit.generators.spaces import metric_name
from opendp_sim.audit.outputs.encoding import outcome
from opendp_sim.audit.subject import Subject
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError
from opendp_sim.core.space import Metric
from opendp_sim.dsl.types.describe import metric_text

MOST_CHANGES = 1000
"""Records (or persons) that a pair may differ by: every one of them is made and edited."""
_TRIES, _WAITS, _TIMES = 10, 0.2, 20
"""Releases of which each must wait, for on a busy machine any one may; seconds on the clock of one that
waits, and how many times its CPU seconds those are."""


def checked_distance(metric: dp.Metric | None, d_in: Any) -> Any:
    """Return the distance in the metric's type, or refuse it.

    Raises:
        AuditError: OS501, no positive number, no whole number where records are counted, or more
            records than a search can edit.
    """
    if isinstance(d_in, tuple):
        return d_in  # of a metric with several parts; the map is the only one who can say
    if isinstance(d_in, list) and all(hasattr(bound, "per_group") for bound in d_in) and d_in:
        return Bounds.of(d_in)
    number = isinstance(d_in, Real) and not isinstance(d_in, bool)
    if not number or math.isnan(d_in) or math.isinf(d_in) or d_in <= 0:
        raise _refused(
            "a positive number",
            d_in,
            "1 is one record; distance 0, a permutation, is tried in every audit.",
        )
    counted = _counted(metric)
    if counted and d_in != int(d_in):
        raise _refused("a whole number: this metric counts", d_in, "1 is one record or one unit.")
    if counted and _of_records(metric) and d_in > MOST_CHANGES:
        raise _refused(
            f"at most {MOST_CHANGES} records",
            d_in,
            "a fault of a map shows at small distances first: 1, 2 or 3.",
        )
    return int(d_in) if counted else d_in


def check_claimed(subject: Subject, distance: Any) -> None:
    """Refuse a claim that is undefined or infinite at a distance.

    Raises:
        AuditError: OS501, it claims nothing at this distance.
    """
    claim = subject.privacy_map or subject.stability_map
    value: Any = 0.0
    try:
        if claim is not None:
            value = claim(distance)
    except AuditError:
        raise
    except Exception as error:  # noqa: BLE001 - a foreign map may raise anything
        raise _refused(
            "a distance at which the object's map claims something",
            distance,
            f"its map raised {type(error).__name__}; "
            + (
                "call it in Python to see why."
                if distance == 1
                else "ask about a smaller distance."
            ),
        ) from None
    parts = [v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, Real)]
    if any(math.isnan(v) for v in parts):
        raise _refused("a map that returns a number", distance, "at this distance it returns NaN.")
    if subject.private and any(math.isinf(v) for v in parts):
        raise _refused(
            "a claim that something could refute",
            distance,
            "at this distance the privacy map is infinite: whatever is released keeps it.",
        )


def check_computes(run: Callable[[Any], Any], data: Any) -> None:
    """Refuse a release that waits instead of computing.

    An audit's budget counts runs, so it would take hours. Time in the queue for a processor is
    no waiting.

    Raises:
        AuditError: OS501, each of a few releases takes its time without computing.
    """
    for _ in range(_TRIES):
        clock, cpu, queued = time.perf_counter(), time.process_time(), queued_seconds()
        outcome(run, data)
        wall = time.perf_counter() - clock - (queued_seconds() - queued)
        busy = time.process_time() - cpu
        if wall < _WAITS or wall < _TIMES * busy:
            return
    raise AuditError(
        "OS501", "audit.object", expected="releases that compute",
        got=f"one that waits: {wall:.1f} s on the clock, {busy:.1g} CPU s",
        hint="audit it without what it waits for (a clock, a file, a network): thousands of releases "
        "are drawn.",
    )  # fmt: skip


def queued_seconds() -> float:
    """Return a thread's seconds in the queue, where Linux counts them."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def claimed_words(subject: Subject, distance: Any) -> str:
    """Return the object's claim at a distance, in words, or nothing."""
    try:
        if subject.private:
            return subject.curve(distance).text
        bound = subject.stability_map(distance) if subject.stability_map else None
    except Exception:  # noqa: BLE001 - a foreign map may raise anything
        return ""
    return f"outputs are at most {bound} apart{_metric_words(subject.output_metric)}"


def _metric_words(metric: dp.Metric | None) -> str:
    if metric is None:
        return ""
    own = getattr(metric, "descriptor", None)
    return f" in the {metric_text(own) if isinstance(own, Metric) else metric_name(metric)}"


def check_unconditional(obj: Any) -> None:
    """Refuse a claim under a condition that no pair satisfies.

    Raises:
        AuditError: OS501, the claim is amplified by sampling: it speaks of a sample nobody sees.
    """
    if "make_population_amplification" in _constructors(obj):
        raise AuditError(
            "OS501", "audit.claim", expected="a claim about the datasets that the object is given",
            got="make_population_amplification: it holds while the sample is secret",
            hint="audit the measurement inside; that the sample is simple, secret and drawn once is for "
            "you to see to.",
        )  # fmt: skip


def _constructors(obj: Any) -> set[str]:
    """Return the names of an object's constructors, inner ones included."""
    names: set[str] = set()
    todo = [obj]
    while todo:
        made = getattr(todo.pop(), "__opendp_dict__", None)
        if not isinstance(made, dict):
            continue
        names.add(str(made.get("__function__")))
        for part in made.get("__kwargs__", {}).values():
            todo += part if isinstance(part, (list, tuple)) else [part]
    return names


def _of_records(metric: dp.Metric | None) -> bool:
    kinds = (*RECORD_METRICS, "Symmetric", "IdDistance", "SymmetricIdDistance")
    return metric is not None and metric_name(metric) in kinds


def _counted(metric: dp.Metric | None) -> bool:
    if metric is None:
        return False
    return _of_records(metric) or str(metric.distance_type)[:1] in "iu"


def _refused(expected: str, got: Any, hint: str) -> AuditError:
    text = repr(got)
    shown = text if len(text) <= 40 else text[:37] + "..."
    return AuditError("OS501", "audit.d_in", expected=expected, got=shown, hint=hint)
