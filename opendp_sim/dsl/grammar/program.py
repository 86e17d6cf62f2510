"""Hold a program as frozen data.

One canonical JSON, one hash. YAML and Python both end here, with ``${params}`` resolved and every
default filled in, so that two programs have equal hashes exactly when they mean the same. The sections
are declared in ``grammar/``.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from opendp_sim.dsl.grammar.about import Provenance
from opendp_sim.dsl.grammar.bandwidths import CANONICAL, VERSION
from opendp_sim.dsl.grammar.budget import LedgerRef
from opendp_sim.dsl.grammar.data import DataEntry, SourceRef
from opendp_sim.dsl.grammar.flow import Expect, ReleaseDecl, StageDecl
from opendp_sim.dsl.grammar.outputs import OutputDecl
from opendp_sim.dsl.grammar.parameters import Parameter
from opendp_sim.dsl.grammar.parse import named_sections
from opendp_sim.dsl.grammar.privacy import Privacy, Unit
from opendp_sim.dsl.grammar.section import Refusal, Section, plain_of, word

__all__ = [
    "TEMPLATE",
    "VERSION",
    "DataEntry",
    "Expect",
    "LedgerRef",
    "OutputDecl",
    "Privacy",
    "Program",
    "Provenance",
    "ReleaseDecl",
    "SourceRef",
    "Spec",
    "StageDecl",
    "Unit",
]


class Spec(Section):
    """Hold a program, all of which is public."""

    template: ClassVar[str] = """\
# yaml-language-server: $schema=./schema.json
# A program for opendp_sim. Fill in every hole, then run `opendp-sim check` on this file.
# Everything written here is public: never put a value here that was read from the data.
spec: opendp_sim/2
name: ???                                 # a short name; it stands in certificates and ledgers
"""
    spec: Literal["opendp_sim/1", "opendp_sim/2"] = word(
        "The version of the language; 1 writes a Gaussian bandwidth h as h sqrt(2).",
        refusal=Refusal("another version of the language", f"write `spec: {VERSION}`."),
    )
    name: str = word("A short name; it stands in certificates and ledgers.", min_length=1)
    about: Provenance | None = word("What whoever decides about it has to know.", None)
    params: Annotated[dict[str, Parameter], named_sections(Parameter, None)] = word(
        "Public numbers that a command line can change.", {}
    )
    data: Annotated[dict[str, DataEntry], named_sections(DataEntry, Refusal(
        "`data` must name at least one dataset", "write `data: {name: {source: ..., columns: ...}}`.",
    ))] = word("Datasets by name.")  # fmt: skip
    privacy: Privacy | None = word(
        "The privacy of the whole program; needless where all data is public.", None
    )
    flow: Annotated[dict[str, StageDecl], named_sections(StageDecl, Refusal(
        "`flow` must name at least one stage", "write `flow: {name: {from: ..., steps: [...]}}`.",
    ))] = word("Stages by name; needless where outputs state theirs.", {})  # fmt: skip
    outputs: Annotated[dict[str, OutputDecl], named_sections(OutputDecl, Refusal(
        "a program needs at least one output",
        "write `outputs: {name: {from: ..., save: out/name.npz}}`.",
        code="OS305",
    ))] = word("What is computed, by name.")  # fmt: skip


TEMPLATE = "".join(
    section.template
    for section in (Spec, Provenance, Parameter, DataEntry, Privacy, StageDecl, OutputDecl)
)
"""What ``init`` writes: commented, with holes (``???``) that fail ``check``."""


def current_folder() -> str:
    """Return the current folder, or an empty text where it was removed."""
    try:
        return os.getcwd()  # noqa: PTH109 - a text
    except OSError:
        return ""


@dataclass(frozen=True)
class Program:
    """Hold a whole program.

    ``folder`` (the base of relative paths) and ``values`` are not hashed. A relative
    ``written_folder`` stays the folder that it named when the program was read, also after
    ``os.chdir``: else a run would charge another ledger.
    """

    name: str
    data: tuple[DataEntry, ...]
    privacy: Privacy | None
    flow: tuple[StageDecl, ...]
    outputs: tuple[OutputDecl, ...]
    about: Provenance | None = None
    written_folder: str = field(default=".", compare=False)
    values: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    """The public parameters that were in force, for the certificate."""
    former: bool = field(default=False, compare=False)
    """Whether a person wrote it in the former language."""
    home: str = field(default_factory=current_folder, compare=False, repr=False)
    """The current folder when the program was read."""

    @property
    def folder(self) -> str:
        """Return the base of relative paths, as written where possible."""
        here = current_folder() == self.home
        return self.written_folder if here else os.path.join(self.home, self.written_folder)  # noqa: PTH118 - a text

    def plain(self) -> dict[str, Any]:
        """Return the canonical spec, which reads as an equal program."""
        found: dict[str, Any] = {"spec": CANONICAL, "name": self.name}
        for section in ("data", "flow", "outputs"):
            found[section] = {one.name: plain_of(one) for one in getattr(self, section)}
        for name, one in (("privacy", self.privacy), ("about", self.about)):
            found |= {name: one.plain()} if one is not None else {}
        return found

    @cached_property
    def canonical(self) -> str:
        """The canonical JSON text, made once."""
        return json.dumps(self.plain(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @cached_property
    def hash(self) -> str:
        """Return the sha256 of the canonical JSON, which plans and charges contain."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    def entry(self, name: str) -> DataEntry | None:
        """Return the data entry called ``name``."""
        return next((entry for entry in self.data if entry.name == name), None)

    def stage(self, name: str) -> StageDecl | None:
        """Return the stage called ``name``."""
        return next((stage for stage in self.flow if stage.name == name), None)
