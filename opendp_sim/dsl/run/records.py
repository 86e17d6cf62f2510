"""Hold a run's results, which ``publish.py`` fills."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.ledger.ledger import Entry
from opendp_sim.dsl.plan.plan import Plan


@dataclass(repr=False)
class Applied:
    """Hold the results of a run.

    Results by output name, the releases that they come from, files written, stores of sessions, the
    ledger's entry. ``resumed`` is the entry whose unfinished run was finished: nothing ran and nothing
    was charged, and ``results`` holds what was released then, read from its files, where they are
    releases.
    """

    plan: Plan
    results: dict[str, Any] = field(default_factory=dict)
    released: dict[str, Any] = field(default_factory=dict)
    files: dict[str, File] = field(default_factory=dict)
    certificates: dict[str, File] = field(default_factory=dict)
    stores: dict[str, File] = field(default_factory=dict)
    charge: Entry | None = None
    spent: str | None = None
    left: str | None = None
    resumed: int | None = None

    def plain(self) -> dict[str, Any]:
        """Return the files, certificates and cost as plain data, no result."""
        charge = self.charge
        cost = {"spent": self.spent, "left": self.left}
        return {
            "files": {name: str(path) for name, path in self.files.items()},
            "certificates": {name: str(path) for name, path in self.certificates.items()},
            "stores": {name: str(path) for name, path in self.stores.items()},
            "ledger": None if charge is None else {"entry": charge.seq, "head": charge.hash} | cost,
        }

    def __repr__(self) -> str:
        """Return the written files and the cost."""
        said = [f"{name} -> {file}" for name, file in self.files.items()]
        said += [f"{name} not saved" for name in self.results if name not in self.files]
        said += [f"{name} asked from {store}" for name, store in self.stores.items()]
        cost = "no ledger counted it" if self.spent is None else f"spent {self.spent}"
        said += [cost] if self.left is None else [cost, f"left {self.left}"]
        return f"Applied({self.plan.program.name}: {'; '.join(said)})"
