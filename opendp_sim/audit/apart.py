"""How far apart two datasets are in an input metric: no claim speaks of pairs beyond its distance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from opendp_sim.audit.datasets import records_of
from opendp_sim.audit.distances import measure_distance
from opendp_sim.audit.looks import metric_distance
from opendp_sim.audit.neighbours import RECORD_METRICS
from opendp_sim.audit.spaces import metric_name, person_place
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError

__all__ = ["distance_apart"]

_NORMS = {"l1": "L1Distance", "l2": "L2Distance", "linf": "LInfDistance"}
_NUMBERS = ("AbsoluteDistance", "L1Distance", "L2Distance", "LInfDistance")
_MOST = 5000
"""Records of a side up to which insertions and deletions are counted: that takes their product."""


def distance_apart(
    left: Any, right: Any, metric: dp.Metric | None, domain: dp.Domain | None
) -> tuple[str, Any]:
    """Return the distance as ``measure_distance`` counts, and the metric it is of; None if unknown.

    What cannot be taken apart raises whatever it raises.
    """
    name = "" if metric is None else metric_name(metric)
    if metric is None:
        return name, None
    if name == "IdDistance" and domain is not None:
        place, split = person_place(domain, metric), records_of(domain).split
        return "SymmetricDistance", _persons(split(left), split(right), place)
    if name in RECORD_METRICS or name == "Symmetric":
        split = _splitter(domain)
        left, right = split(left), split(right)
        long = max(len(left), len(right)) > _MOST and name == "InsertDeleteDistance"
        name = (
            "SymmetricDistance" if long or name == "Symmetric" else name
        )  # of long ones: never more
        return name, measure_distance(name, left, right)
    if name == "VectorNorm" and metric.descriptor.touched is None:
        return _NORMS[metric.descriptor.norm], metric_distance(metric)(left, right)
    return name, metric_distance(metric)(left, right) if name in _NUMBERS else None


def _splitter(domain: dp.Domain | None) -> Callable[[Any], list[Any]]:
    """Take a dataset apart as its domain says; of an unknown one only what is a list."""
    try:
        return list if domain is None else records_of(domain).split
    except AuditError:
        return _listed


def _listed(data: Any) -> list[Any]:
    if isinstance(data, (list, tuple)):
        return list(data)
    raise TypeError


def _persons(left: list[Any], right: list[Any], place: int) -> int:
    """Count the persons who come or go; one whose records changed does both."""
    sides = _by_person(left, place), _by_person(right, place)
    count = 0
    for who in {**sides[0], **sides[1]}:
        mine, other = (side.get(who, []) for side in sides)
        if measure_distance("SymmetricDistance", mine, other):
            count += bool(mine) + bool(other)
    return count


def _by_person(records: list[Any], place: int) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for record in records:
        found[record[place]].append(record)
    return dict(found)
