"""Define the record of a plan, without its texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger.postgres_connection import is_shared
from opendp_sim.dsl.grammar.program import DataEntry, Privacy, Program
from opendp_sim.dsl.plan.accountant import Target
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.plan.solve import Loss
from opendp_sim.dsl.types.checks import spend_of
from opendp_sim.dsl.types.outputs import OutputType
from opendp_sim.dsl.types.records import Typed

_CLOSE = 1 + Fraction(1, 2**36)
"""Shares are solved a part in 2**40 below themselves, and to adjacent floats of a scale."""


def charged(total: Loss, asked: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """Return the requested loss where the map's total is just below it.

    Never less than the total, part by part (Lemma 2 of ``accounting/composition.md``).
    """
    both = zip(map(Fraction, total), asked, strict=True)
    return tuple(most if have <= most <= have * _CLOSE else have for have, most in both)


@dataclass(frozen=True, repr=False)
class Planned:
    """Hold a program's types, releases, losses and outputs, for every text."""

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
    solved: str = ""
    """The number that was solved from an error, in a sentence."""

    @property
    def privacy(self) -> Privacy | None:
        """The program's privacy claim; None when all data is public."""
        return self.program.privacy if self.target is not None else None

    @property
    def charge(self) -> Charge | None:
        """Return a run's total or solved budget (Lemma 2)."""
        if self.privacy is None or self.target is None:
            return None
        return Charge(self.privacy.measure, charged(self.total, self._asked(self.target)))

    def _asked(self, target: Target) -> tuple[Fraction, ...]:
        """Return the sum of solved shares and other releases' losses."""
        shares = Fraction(0)
        given = [Fraction(0)] * len(target.exact)
        for release in self.releases.values():
            decl = release.typed.release
            if decl is not None and decl.solve is not None:
                shares += spend_of(decl)
            elif release.loss:
                given = [a + Fraction(b) for a, b in zip(given, release.loss, strict=True)]
        return tuple(shares * part + own for part, own in zip(target.exact, given, strict=True))

    @property
    def promised(self) -> dict[str, Any]:
        """Return the promise's unit, measure, total and claim."""
        if self.privacy is None:
            return {"public": True}
        claim = None if self.claim is None else list(self.claim)
        unit: dict[str, Any] = self.privacy.plain()
        return unit | {"total": list(self.total), "claim": claim}


def ledger_entry(plan: Planned) -> DataEntry | None:
    """Return the dataset that has a ledger."""
    return next((e for e in plan.program.data if e.ledger is not None), None)


def ledger_path(plan: Planned) -> File | None:
    """Return the ledger's file, relative to the spec's folder."""
    entry = ledger_entry(plan)
    if entry is None or entry.ledger is None:
        return None
    place = File(entry.ledger.file)
    return place if is_shared(place) else File(plan.program.folder) / place
