"""Declare the ``privacy`` section, unit, measure, budget and numerics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from opendp_sim.accounting.budget import Limit, MeasureName
from opendp_sim.dsl.grammar.budget import BUDGET, check_bounds
from opendp_sim.dsl.grammar.data import DataEntry
from opendp_sim.dsl.grammar.parse import read_words
from opendp_sim.dsl.grammar.section import Refusal, Section, word
from opendp_sim.dsl.text.diagnostic import Notes, Path, suggest


def _count(about: str) -> Any:
    return word(about, None, ge=1, le=10**6, refusal=Refusal(
        "a unit hides at least one record", "1 is usual; at most 1,000,000.", code="OS401",
    ))  # fmt: skip


class Unit(Section):
    """Declare the privacy unit.

    How many rows, or persons, are protected.
    """

    some_of: ClassVar = ("oneOf", ("add_remove", "replace"), Refusal(
        "a unit is `add_remove` or `replace`", "write {add_remove: 1, of: row}.", code="OS305",
        label="neither, or both",
    ))  # fmt: skip
    add_remove: int | None = _count("How many are added or removed.")
    replace: int | None = _count("How many are replaced: each is removed and another added.")
    of: str = word(
        "`row`, or the column that names a person with all records.", "row", min_length=1
    )

    @property
    def kind(self) -> Literal["add_remove", "replace"]:
        """Whether units are added and removed, or replaced."""
        return "replace" if self.add_remove is None else "add_remove"

    @property
    def count(self) -> int:
        """How many."""
        return self.add_remove or self.replace or 0

    @property
    def d_in(self) -> int:
        """Return the input distance, twice the count for replacing."""
        return self.count if self.kind == "add_remove" else 2 * self.count


class Privacy(Section):
    """What the whole program promises."""

    template: ClassVar[str] = """\
privacy:
  unit: {add_remove: 1, of: row}          # or {replace: 1}; of: a column with `role: privacy_id`
  # unit: {add_remove: 1, of: person}     # hides a whole person; needs bound_contributions below
  measure: gdp                            # gdp | pure | zcdp | approx_zcdp | approx
  budget: {epsilon: ???, delta: 1.0e-6}   # delta well below one over the number of people
                                          # under approx_zcdp, reserve: {mechanisms: 5.0e-7} of delta
"""
    unit: Unit = word("How many rows, or persons, are hidden.")
    measure: MeasureName = word(
        "How loss is measured. Under gdp (Gaussian DP) noise is a rounded normal variable and the total "
        "is converted by the exact curve: 5 to 9 % less noise than under zcdp. It takes rounded Gaussian "
        "noise, ind_knn, hybrid_knn, linear_model, linear_regression and whatever is pure; the others "
        "take selections too."
    )
    budget: Annotated[Limit, BUDGET] = word("What may be lost.")
    numerics: Literal["exact", "idealized"] = word(
        "`idealized` admits steps whose proof is about real numbers.", "exact"
    )


def read_privacy(
    section: Any, data: Mapping[str, DataEntry | None], notes: Notes
) -> tuple[Privacy | None, Unit | None]:
    """Return the privacy claim and its unit, or None for each."""
    path: Path = ("privacy",)
    found, whole = read_words(Privacy, section, path, notes)
    unit, budget = found.get("unit"), found.get("budget")
    if unit is not None and not _hides_somebody(unit, data, notes):
        unit, whole = None, False
    if budget is not None and "measure" in found:
        whole = check_bounds(budget, found["measure"], (*path, "budget"), notes) and whole
    return (Privacy(**found) if whole else None), unit


def _hides_somebody(unit: Unit, data: Mapping[str, DataEntry | None], notes: Notes) -> bool:
    """Return whether ``of`` is a row or names a person."""
    known = [entry for entry in data.values() if entry is not None]
    named = {e.records.privacy_id.name for e in known if e.records.privacy_id and not e.public}
    if unit.of == "row" or unit.of in named or len(known) < len(data):
        return True
    persons = {e.records.privacy_id.name for e in known if e.records.privacy_id}
    near = suggest(unit.of, ["row", *persons]).removesuffix("?")
    advice = near or (f"write `of: {min(persons)}`" if persons else "write `of: row`")
    notes.error("OS303", "the unit names no column with `role: privacy_id`",
                ("privacy", "unit", "of"), label=f"`{unit.of}`",
                help=f"{advice}{'? If not,' if near else ', or'} give that column the role.")  # fmt: skip
    return False
