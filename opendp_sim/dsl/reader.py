"""From plain data to the typed form, through every section; all findings in one go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

import opendp.prelude as dp

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.dsl import document as yaml
from opendp_sim.dsl.diagnostic import Notes
from opendp_sim.dsl.document import Document
from opendp_sim.dsl.fields import HOLE, Fields, mapping, shown, text
from opendp_sim.dsl.ir import VERSION, DataEntry, OutputDecl, Program, StageDecl, Unit
from opendp_sim.dsl.parameters import resolve_parameters
from opendp_sim.dsl.read_data import read_data
from opendp_sim.dsl.read_flow import read_flow
from opendp_sim.dsl.read_outputs import read_outputs
from opendp_sim.dsl.read_privacy import read_privacy

__all__ = ["SECTIONS", "Draft", "draft_of", "draft_of_file"]

SECTIONS = ("spec", "name", "params", "data", "privacy", "flow", "outputs")


@dataclass
class Draft:
    """What could be read of a program, which names are broken, and the findings so far."""

    program: Program
    broken: frozenset[str]
    notes: Notes
    document: Document | None
    unit: Unit | None = None
    """The privacy unit, known even where the rest of ``privacy`` could not be read."""


def draft_of_file(path: str | File, given: Mapping[str, Any] | None = None) -> Draft:
    """Read a spec file."""
    notes = Notes()
    file = File(path)
    document = yaml.read(file, notes)
    return _draft(document.data, given or {}, notes, document, str(file.parent))


def draft_of(
    data: Any, given: Mapping[str, Any] | None = None, folder: str = ".",
    document: Document | None = None, notes: Notes | None = None,
) -> Draft:  # fmt: skip
    """Read a program given as plain data (what YAML would hold)."""
    return _draft(data, given or {}, notes or Notes(), document, folder)


def _draft(
    data: Any, given: Mapping[str, Any], notes: Notes, document: Document | None, folder: str
) -> Draft:
    # Whoever runs a spec uses this package's mechanisms, which OpenDP counts as `contrib`.
    dp.enable_features("contrib")
    nothing = Program("", (), None, (), (), folder=folder)
    if not isinstance(data, dict):
        if not notes.findings:
            notes.error("OS304", "a spec is a mapping", (), label=f"got {shown(data)}",
                        help="`opendp-sim init FILE` writes a template.")  # fmt: skip
        return Draft(nothing, frozenset(), notes, document)
    body, values = resolve_parameters(data, given, notes)
    fields = Fields(body, (), notes, SECTIONS)
    _version(fields, notes)
    name = fields.take("name", text)
    entries = read_data(fields.take("data", mapping), notes)
    public_only = bool(entries) and all(e is not None and e.public for e in entries.values())
    privacy, unit = None, None
    if "privacy" in fields.value or not public_only:
        privacy, unit = read_privacy(fields.take("privacy", mapping), entries, notes)
    stages = read_flow(fields.take("flow", mapping), notes)
    outputs = read_outputs(fields.take("outputs", mapping), notes)
    _one_name_each(entries, stages, outputs, notes)
    program = Program(
        name=name if isinstance(name, str) else "", data=_good(entries), privacy=privacy,
        flow=_good(stages), outputs=_good(outputs),
        folder=folder, values=tuple(sorted(values.items())),
    )  # fmt: skip
    every: dict[str, Any] = entries | stages | outputs
    broken = frozenset(word for word, value in every.items() if value is None)
    return Draft(program, broken, notes, document, unit)


def _good(named: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(value for value in named.values() if value is not None)


def _version(fields: Fields, notes: Notes) -> None:
    version = fields.take("spec", text)
    if version is not HOLE and version != VERSION:
        notes.error("OS304", "another version of the language", ("spec",), label=f"got {version}",
                    help=f"write `spec: {VERSION}`.")  # fmt: skip


def _one_name_each(
    data: Mapping[str, DataEntry | None], stages: Mapping[str, StageDecl | None],
    outputs: Mapping[str, OutputDecl | None], notes: Notes,
) -> None:  # fmt: skip
    taken = dict.fromkeys(data, "data")
    for section, names in (("flow", stages), ("outputs", outputs)):
        for name in names:
            if name in taken:
                notes.error("OS303", f"`{name}` names two things", (section, name), part="key",
                            label=f"also under `{taken[name]}`", help="choose another name.")  # fmt: skip
            taken[name] = section
