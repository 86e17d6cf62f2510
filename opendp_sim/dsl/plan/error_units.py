"""Return the unit of each expected error, as of one axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from opendp_sim.dsl.plan.expected_error import error_forecasts
from opendp_sim.dsl.plan.records import Planned
from opendp_sim.dsl.types.error_terms import BESIDE

_OF_MEANS = {"noise_error of the sum", "noise_error times records"}
"""Errors of sums that a mean divides: what is drawn is the mean's, for a stated number of records."""
_OWN = "units of the column"
"""The unit of answers about columns of several ranges, whose errors are stated in parts of a range."""
_SUMS = {
    "noise of a sum of products": "sums of products, to which a record adds at most 1",
    "noise of the summed loss": "the summed loss",
}
"""Errors of sums that have a unit of their own, whatever the answers are counted in."""


def unit_of_answers(plan: Planned, output: str, column: str = "") -> str:
    """Return the unit of an output's answers, or an empty text.

    Args:
        plan: the plan.
        output: the output's name, or that of a question asked later.
        column: of answers in several units, the column meant.
    """
    if output not in plan.outputs:
        return error_forecasts(plan)[output].unit
    own = next(
        (q for q in (p.quantities.get(column) for p in plan.outputs[output].posts) if q), None
    )
    if own is not None:
        return _OWN if own.unit.startswith("parts of ") else own.unit
    return next((post.unit for post in reversed(plan.outputs[output].posts) if post.unit), "")


def error_unit(plan: Planned, name: str) -> str | None:
    """Return the unit of a named error curve, or None."""
    output, _, error = name.partition(": ")
    unit = unit_of_answers(plan, output) or "the answer's own unit"
    if error == "noise_error":
        return unit
    if error in _OF_MEANS:
        return f"{unit}, for means of {BESIDE[0]} records"
    return _SUMS.get(error)


def divisor_of(name: str) -> int:
    """Return the divisor of a drawn error, 1 except for means."""
    return BESIDE[0] if name.partition(": ")[2] in _OF_MEANS else 1


def of_one_unit(
    plan: Planned, errors: Mapping[str, Sequence[float]]
) -> tuple[str, dict[str, Sequence[float]], tuple[str, ...]]:
    """Return the first unit with its errors, and the other errors' names.

    No budget changes what one record may be off by, whose unit is another than a sum's.
    """
    units = {name: error_unit(plan, name) for name in errors}
    first = next((unit for unit in units.values() if unit is not None), "")
    kept: dict[str, Sequence[float]] = {
        name: [value / divisor_of(name) for value in errors[name]]
        for name in errors
        if units[name] == first
    }
    return first, kept if first else {}, tuple(_left_out(errors, kept if first else {}))


def _left_out(errors: Mapping[str, Sequence[float]], kept: Mapping[str, object]) -> Iterator[str]:
    yield from (name for name in errors if name not in kept)
