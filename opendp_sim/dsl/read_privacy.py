"""The ``privacy`` section: unit, measure, budget, numerics."""

from __future__ import annotations

from typing import Any, cast

from opendp_sim.accounting.budget import MEASURES
from opendp_sim.dsl.diagnostic import Notes, Path
from opendp_sim.dsl.fields import HOLE, Fields, choice, integer, mapping, text
from opendp_sim.dsl.ir import DataEntry, Privacy, Unit
from opendp_sim.dsl.read_data import read_budget

__all__ = ["read_privacy"]


def read_privacy(
    section: Any, data: dict[str, DataEntry | None], notes: Notes
) -> tuple[Privacy | None, Unit | None]:
    """Return the privacy claim and its unit; each is None when it is wrong (reported)."""
    path: Path = ("privacy",)
    fields = Fields(section, path, notes, ("unit", "measure", "budget", "numerics"))
    measure = fields.take("measure", choice(*MEASURES))
    unit = _unit(fields.take("unit", mapping), (*path, "unit"), data, notes)
    known = None if measure is HOLE else measure
    budget = read_budget(fields.take("budget", mapping), (*path, "budget"), notes, known)
    numerics = fields.take("numerics", choice("exact", "idealized"), "exact")
    if unit is None or budget is None or HOLE in (measure, numerics):
        return None, unit
    return Privacy(unit, measure, budget, numerics), unit


def _unit(value: Any, path: Path, data: dict[str, DataEntry | None], notes: Notes) -> Unit | None:
    if value is HOLE:
        return None
    fields = Fields(value, path, notes, ("add_remove", "replace", "of"))
    given = [name for name in ("add_remove", "replace") if name in fields.value]
    of = fields.take("of", text, "row")
    if len(given) != 1:
        notes.error("OS305", "a unit is `add_remove` or `replace`", path,
                    label="neither, or both", help="write {add_remove: 1, of: row}.")  # fmt: skip
        return None
    count = fields.take(given[0], integer)
    if HOLE in (count, of):
        return None
    if not 1 <= count <= 10**6:
        notes.error("OS401", "a unit hides at least one record", (*path, given[0]),
                    label=f"got {count}", help="1 is usual; at most 1,000,000.")  # fmt: skip
        return None
    if of != "row" and not _names_a_person(of, data):
        identifiers = {
            e.records.privacy_id.name for e in data.values() if e and e.records.privacy_id
        }
        advice = f"write `of: {min(identifiers)}`" if identifiers else "write `of: row`"
        notes.error("OS303", "the unit names no column with `role: privacy_id`", (*path, "of"),
                    label=f"`{of}`", help=f"{advice}, or give that column the role.")  # fmt: skip
        return None
    return Unit(cast("Any", given[0]), count, of)


def _names_a_person(of: str, data: dict[str, DataEntry | None]) -> bool:
    broken = any(entry is None for entry in data.values())
    named = (entry.records.privacy_id for entry in data.values() if entry and not entry.public)
    return broken or any(column is not None and column.name == of for column in named)
