"""What is planned: the record that a plan is, without the texts and the forms that it is shown in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger.postgres import is_shared
from opendp_sim.dsl.grammar.program import DataEntry, Privacy, Program
from opendp_sim.dsl.plan.accountant import Target
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.plan.solve import Loss
from opendp_sim.dsl.types.outputs import OutputType
from opendp_sim.dsl.types.records import Typed


@dataclass(frozen=True, repr=False)
class Planned:
    """Types, releases, losses and outputs of a program: what every text of a plan is made from."""

    program: Program
    types: Mapping[str, Typed]
    outputs: Mapping[str, OutputType]
    releases: Mapping[str, ReleasePlan]
    target: Target | None
    total: Loss
    """OpenDP's composition of all releases, in the program's measure."""
    claim: Loss | None
    """The total as (epsilon, delta), through OpenDP's conversion; under ``gdp`` by the exact curve."""
    path: str | None = None
    of_one: Loss = ()
    """OpenDP's composition at distance 1: one record, or one person."""

    @property
    def privacy(self) -> Privacy | None:
        """The program's privacy claim; None when all data is public."""
        return self.program.privacy if self.target is not None else None

    @property
    def charge(self) -> Charge | None:
        """What a ledger is charged."""
        return None if self.privacy is None else Charge(self.privacy.measure, self.total)

    @property
    def promised(self) -> dict[str, Any]:
        """What the promise in words is made from: the unit, the measure, the total and the claim."""
        if self.privacy is None:
            return {"public": True}
        claim = None if self.claim is None else list(self.claim)
        unit: dict[str, Any] = self.privacy.plain()
        return unit | {"total": list(self.total), "claim": claim}


def ledger_entry(plan: Planned) -> DataEntry | None:
    """Return the dataset that has a ledger."""
    return next((e for e in plan.program.data if e.ledger is not None), None)


def ledger_path(plan: Planned) -> File | None:
    """Return the ledger's file; relative paths start from the spec's folder, whoever runs it."""
    entry = ledger_entry(plan)
    if entry is None or entry.ledger is None:
        return None
    place = File(entry.ledger.file)
    return place if is_shared(place) else File(plan.program.folder) / place
