"""How large the answers of a verified file are, beside their noise: only what was released is read.

Before a run nothing is known of them, and a plan compares its errors with 100: a certificate knows more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import median

from opendp_sim.dsl.how_wrong import how_wrong, size
from opendp_sim.dsl.plan import Plan
from opendp_sim.report.answered import VALUES, rows_of

__all__ = ["spread_of"]

_READ = 20_000
"""Rows that are read: what is said is of these."""


def spread_of(plan: Plan, output: str, file: Path) -> dict[str, str]:
    """Return, by output, how wrong its answers are beside how large those in the file are.

    Args:
        plan: the certificate's program.
        output: the certificate's output.
        file: the output's file, whose digest was compared.
    """
    found = rows_of(plan, output, file, _READ)
    if found is None:
        return {}
    name, rows = found
    error, values = how_wrong(plan).get(name), _values(rows)
    if getattr(plan.outputs[name].decl.post[-1], "normalise", False):
        return {}  # shares of the records, beside an error in records
    if error is None or not error.size or error.noun != "records" or not values:
        return {}
    least, middle, most = min(values), median(values), max(values)
    if middle <= 0:
        return {}
    some = (
        f"the first {len(rows):,} questions"
        if name != output or len(rows) == _READ
        else "this file"
    )
    of = "leads" if error.of_leads else "answers"
    told = (
        f"{error.text}{error.more}. The {of} in {some} run from {size(least)} to {size(most)}, half of "
        f"them below {size(middle)}: "
    )
    if error.of_leads:
        below = sum(value < error.size for value in values)
        return {name: f"{told}{_percent(below / len(values))} of them are not safe by this rule."}
    return {name: f"{told}of that the noise is {_percent(error.size / middle)}."}


def _values(rows: Sequence[Mapping[str, str]]) -> list[float]:
    """Return the answers of all rows: of a classifier its leads."""
    for value in ("margin", *VALUES):
        names = [k for k in (rows[0] if rows else {}) if k == value or k.startswith(f"{value}:")]
        if names:
            numbers = (float(row[name]) for row in rows for name in names)
            return [number for number in numbers if isfinite(number)]
    return []


def _percent(share: float) -> str:
    return f"{float(f'{100 * share:.2g}'):g}%" if share < 10 else f"{size(share)} times as much"
