"""Compare answers with their noise.

Only the verified file is read.

Before a run nothing is known of them, and a plan compares its errors with 100: a certificate knows more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import median

from opendp_sim.dsl.plan.errors import Wrong, how_wrong, size
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.report.answer import VALUE_COLUMNS, first_answers

_READ = 20_000
"""Rows that are read: what is said is of these."""
_NOISE = "noise_error"
"""The column that states the noise of each answer, in the answer's own unit."""


def spread_of(plan: Plan, output: str, file: Path) -> dict[str, str]:
    """Return each output's error beside its answers' size.

    Args:
        plan: the certificate's program.
        output: the certificate's output.
        file: the output's file, whose digest was compared.
    """
    found = first_answers(plan, output, file, _READ)
    if found is None:
        return {}
    name, rows = found
    error = how_wrong(plan).get(name)
    if error is None:
        return {}
    few = name != output or len(rows) == _READ
    some = f"the first {len(rows):,} questions" if few else "this file"
    if error.of_leads:
        told = _of_leads(error, _column(rows, ("margin",)), some)
    else:
        told = _of_answers(_column(rows, VALUE_COLUMNS), _column(rows, (_NOISE,)), some)
    return {name: f"{error.text}{error.more}. {told}"} if told else {}


def _of_leads(error: Wrong, leads: Sequence[float], some: str) -> str:
    """Count the leads, in records, that are not safe."""
    if not leads or median(leads) <= 0:
        return ""
    below = sum(lead < error.size for lead in leads)
    return (
        f"{_range('leads', leads, some)}: {below:,} of {len(leads):,} are below the safe lead, so noise "
        "may have decided them."
    )


def _of_answers(values: Sequence[float], noise: Sequence[float], some: str) -> str:
    """Compare answers with the noise beside them."""
    if not values or not noise or median(values) <= 0 or median(noise) <= 0:
        return ""
    share = _percent(median(noise) / median(values))
    return (
        f"{_range('answers', values, some)}. The size of their noise stands in the file beside each "
        f"answer, in the middle {size(median(noise))}, which is {share} of the middle answer: noise "
        "moves 2 of 3 answers by less than their size of noise, and 1 of 3 by more."
    )


def _range(what: str, numbers: Sequence[float], some: str) -> str:
    least, middle, most = (size(number) for number in (min(numbers), median(numbers), max(numbers)))
    return f"The {what} in {some} run from {least} to {most}, and the middle one is {middle}"


def _column(rows: Sequence[Mapping[str, str]], wanted: Sequence[str]) -> list[float]:
    """Return the first present column's numbers."""
    for value in wanted:
        names = [k for k in (rows[0] if rows else {}) if k == value or k.startswith(f"{value}:")]
        if names:
            numbers = (float(row[name]) for row in rows for name in names)
            return [number for number in numbers if isfinite(number)]
    return []


def _percent(share: float) -> str:
    return f"{float(f'{100 * share:.2g}'):g}%" if share < 10 else f"{size(share)} times as much"
