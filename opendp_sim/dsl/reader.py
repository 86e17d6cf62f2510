"""From plain data to the typed form, through every section; all findings in one go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.core import dp
from opendp_sim.dsl import document as yaml
from opendp_sim.dsl.diagnostic import Notes
from opendp_sim.dsl.document import Document, Span
from opendp_sim.dsl.gaussian import rounded_stages
from opendp_sim.dsl.grammar.privacy import read_privacy
from opendp_sim.dsl.grammar.reading import missing, read_words
from opendp_sim.dsl.grammar.section import HOLE
from opendp_sim.dsl.ir import Program, Spec, Unit
from opendp_sim.dsl.parameters import resolve_parameters

__all__ = ["Draft", "draft_of", "draft_of_file"]


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
    data: Any,
    given: Mapping[str, Any] | None = None,
    folder: str = ".",
    document: Document | None = None,
    notes: Notes | None = None,
) -> Draft:
    """Read a program given as plain data (what YAML would hold)."""
    return _draft(data, given or {}, notes or Notes(), document, folder)


def _draft(
    data: Any, given: Mapping[str, Any], notes: Notes, document: Document | None, folder: str
) -> Draft:
    # Whoever runs a spec uses this package's mechanisms, which OpenDP counts as `contrib`.
    dp.enable_features("contrib")
    nothing = Program("", (), None, (), (), written_folder=folder)
    if not isinstance(data, dict):
        if not notes.findings:
            if document is not None and data is not None:
                document.lines = []  # it may be private, so that no message quotes a line of it
                document.spans.setdefault(((), "value"), Span(1, 1, 1))
            notes.error("OS304", "a spec is a mapping", (), label=_got(data),
                        help="`opendp-sim init FILE` writes a template.")  # fmt: skip
        return Draft(nothing, frozenset(), notes, document)
    body, values = resolve_parameters(data, given, notes)
    found, _ = read_words(Spec, body | {"privacy": HOLE}, (), notes)  # it is read with the data
    named = {word: found.get(word, {}) for word in ("data", "flow", "outputs")}
    entries = named["data"].values()
    privacy, unit = None, None
    if "privacy" in body:
        privacy, unit = read_privacy(body["privacy"], named["data"], notes)
    elif not entries or not all(e is not None and e.public for e in entries):
        missing(Spec.words()["privacy"], body, Spec.words(), (), notes)
    _one_name_each(named, notes)
    if privacy is not None and privacy.measure == "gdp":
        named["flow"] = rounded_stages(named["flow"], notes)
    good = {word: tuple(v for v in those.values() if v) for word, those in named.items()}
    program = Program(
        name=found.get("name", ""),
        privacy=privacy,
        data=good["data"],
        flow=good["flow"],
        outputs=good["outputs"],
        about=found.get("about"),
        written_folder=folder,
        values=tuple(sorted(values.items())),
    )
    broken = frozenset(n for those in named.values() for n, value in those.items() if value is None)
    return Draft(program, broken, notes, document, unit)


def _got(data: Any) -> str:
    """Say what came instead of a mapping: nothing of it is quoted."""
    if data is None:
        return "got nothing"
    what = "a list" if isinstance(data, list) else "a text or a number"
    return f"got {what}, of which nothing is shown"


def _one_name_each(named: Mapping[str, Mapping[str, Any]], notes: Notes) -> None:
    taken: dict[str, str] = {}
    for section, names in named.items():
        for name in names:
            if name in taken:
                notes.error("OS303", f"`{name}` names two things", (section, name), part="key",
                            label=f"also under `{taken[name]}`", help="choose another name.")  # fmt: skip
            taken[name] = section
