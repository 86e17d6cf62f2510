"""The typed intermediate form: frozen data, one canonical JSON, one hash.

YAML and Python both end here, with ``${params}`` resolved and every default filled in, so that two
programs have equal hashes exactly when they mean the same.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from opendp_sim.accounting.budget import Budget, MeasureName
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.spaces.records import Column, Records

__all__ = [
    "VERSION", "DataEntry", "Expect", "LedgerRef", "OutputDecl", "Privacy", "Program", "ReleaseDecl",
    "SourceRef", "StageDecl", "Unit", "step_plain",
]  # fmt: skip

VERSION = "opendp_sim/1"
Plain = dict[str, Any]


def step_plain(mechanism: Mechanism) -> Plain:
    """Return a step in its canonical form, every parameter written out."""
    return {mechanism.key: mechanism.spec()}


def _drop(entry: Plain) -> Plain:
    return {name: value for name, value in entry.items() if value is not None}


@dataclass(frozen=True, slots=True)
class SourceRef:
    """Where records or public queries come from: a kind of source and its argument."""

    kind: str
    argument: Any

    def plain(self) -> Plain:
        """The spec's form."""
        return {self.kind: self.argument}


@dataclass(frozen=True, slots=True)
class LedgerRef:
    """The ledger that a dataset is charged to, and the limit it keeps."""

    file: str
    limit: Budget

    def plain(self) -> Plain:
        """The spec's form."""
        return {"file": self.file, "limit": self.limit.plain()}


@dataclass(frozen=True, slots=True)
class DataEntry:
    """A dataset: source, declared columns, how records are taken in, whether it is public."""

    name: str
    source: SourceRef
    records: Records
    ingest: Literal["refuse", "enforce", "assume"] = "refuse"
    ledger: LedgerRef | None = None
    public: bool = False

    def plain(self) -> Plain:
        """The spec's form."""
        return _drop({
            "source": self.source.plain(),
            "columns": {column.name: _column(column) for column in self.records.columns},
            "ingest": self.ingest,
            "ledger": self.ledger.plain() if self.ledger else None,
            "public": self.public,
        })  # fmt: skip


def _column(column: Column) -> Plain:
    return _drop({
        "dtype": column.dtype,
        "bounds": list(column.bounds) or None,
        "keys": list(column.keys) or None,
        "role": column.role,
    })  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unit:
    """The privacy unit: how many rows, or persons, are hidden."""

    kind: Literal["add_remove", "replace"]
    count: int
    of: str = "row"

    @property
    def d_in(self) -> int:
        """Input distance: replacing is removing and adding."""
        return self.count if self.kind == "add_remove" else 2 * self.count

    def plain(self) -> Plain:
        """The spec's form."""
        return {self.kind: self.count, "of": self.of}


@dataclass(frozen=True, slots=True)
class Privacy:
    """The claim that the whole program makes."""

    unit: Unit
    measure: MeasureName
    budget: Budget
    numerics: Literal["exact", "idealized"] = "exact"

    def plain(self) -> Plain:
        """The spec's form."""
        return {
            "unit": self.unit.plain(), "measure": self.measure, "budget": self.budget.plain(),
            "numerics": self.numerics,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReleaseDecl:
    """How a stage leaves the private side.

    ``mechanism`` is the record's key and ``params`` its parameters without the one that is solved.
    ``spend`` is the share of the budget, None when the scale is given.
    """

    kind: Literal["noise", "mechanism", "none"]
    key: str | None = None
    params: tuple[tuple[str, Any], ...] = ()
    solve: str | None = None
    spend: Fraction | None = None

    def plain(self) -> Plain | str:
        """The spec's form."""
        if self.kind == "none":
            return "none"
        spend = None if self.spend is None else str(self.spend)
        params = {name: _thaw(value) for name, value in self.params}
        if self.kind == "noise":
            scale = "solve" if self.solve else params.pop("scale")
            return _drop({"noise": self.key, "scale": scale, **params, "spend": spend})
        return _drop({"mechanism": {self.key: params}, "spend": spend})


def _thaw(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_thaw(item) for item in value]
    return {k: _thaw(v) for k, v in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class Expect:
    """What the author believes about a stage; the types must agree."""

    stability: int | None = None
    faces: tuple[tuple[str, float], ...] = ()

    def plain(self) -> Plain:
        """The spec's form."""
        return _drop({"stability": self.stability, "faces": dict(self.faces) or None})


@dataclass(frozen=True, slots=True)
class StageDecl:
    """One stage of the flow."""

    name: str
    source: str
    steps: tuple[Mechanism, ...] = ()
    release: ReleaseDecl | None = None
    expect: Expect | None = None

    def plain(self) -> Plain:
        """The spec's form."""
        return _drop({
            "from": self.source,
            "steps": [step_plain(step) for step in self.steps] or None,
            "release": self.release.plain() if self.release else None,
            "expect": self.expect.plain() if self.expect else None,
        })  # fmt: skip


@dataclass(frozen=True, slots=True)
class OutputDecl:
    """What is computed from a release, and where it goes."""

    name: str
    source: str
    post: tuple[Mechanism, ...] = ()
    query: SourceRef | None = None
    save: str | None = None
    serve: str | None = None
    store: str | None = None
    public_queries: SourceRef | None = None

    def plain(self) -> Plain:
        """The spec's form."""
        return _drop({
            "from": self.source,
            "post": [step_plain(step) for step in self.post] or None,
            "query": self.query.plain() if self.query else None,
            "save": self.save, "serve": self.serve, "store": self.store,
            "public_queries": self.public_queries.plain() if self.public_queries else None,
        })  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A whole program. ``folder`` (what paths are relative to) and ``values`` are not hashed."""

    name: str
    data: tuple[DataEntry, ...]
    privacy: Privacy | None
    flow: tuple[StageDecl, ...]
    outputs: tuple[OutputDecl, ...]
    folder: str = field(default=".", compare=False)
    values: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    """The public parameters that were in force, for the certificate."""

    def plain(self) -> Plain:
        """The canonical spec: reading it again gives an equal program."""
        return _drop({
            "spec": VERSION,
            "name": self.name,
            "data": {entry.name: entry.plain() for entry in self.data},
            "privacy": self.privacy.plain() if self.privacy else None,
            "flow": {stage.name: stage.plain() for stage in self.flow},
            "outputs": {output.name: output.plain() for output in self.outputs},
        })  # fmt: skip

    @property
    def canonical(self) -> str:
        """The canonical JSON text."""
        return json.dumps(self.plain(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @property
    def hash(self) -> str:
        """sha256 of the canonical JSON: what a plan, a charge and a certificate name."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    def entry(self, name: str) -> DataEntry | None:
        """Return the data entry called ``name``."""
        return next((entry for entry in self.data if entry.name == name), None)

    def stage(self, name: str) -> StageDecl | None:
        """Return the stage called ``name``."""
        return next((stage for stage in self.flow if stage.name == name), None)

    def output(self, name: str) -> OutputDecl | None:
        """Return the output called ``name``."""
        return next((output for output in self.outputs if output.name == name), None)
