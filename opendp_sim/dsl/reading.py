"""Read and plan a spec's text, with findings at their places."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.core.errors import SimError
from opendp_sim.dsl.files.paths import check_places
from opendp_sim.dsl.grammar.program import current_folder
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.plan import Plan, plan_of
from opendp_sim.dsl.text import yaml_document as yaml
from opendp_sim.dsl.text.diagnostic import Diagnostic, Notes, Refused
from opendp_sim.dsl.text.yaml_document import Document, Span

_FIRST = Span(1, 1, 1)
_KEPT = 256
"""Planned texts that are kept: going back to one costs nothing."""


@dataclass(frozen=True)
class Finding:
    """A diagnostic at its place."""

    span: Span
    code: str
    text: str


@dataclass(frozen=True)
class CheckedText:
    """Hold a spec's text, findings, and any plan."""

    document: Document
    findings: tuple[Finding, ...]
    plan: Plan | None


def read_spec(text: str, name: str, folder: str) -> CheckedText:
    """Check and plan a spec's text, collecting findings.

    No data is opened. The last plans are kept by text and folder; what they assumed of files (that
    queries are not the private file, that no output replaces an input) is looked at again each time.

    Args:
        text: the spec.
        name: its file's name, for messages.
        folder: the base of its relative paths.
    """
    try:
        seen = _planned(text, name, folder, current_folder())
        notes = Notes()
        if seen.plan is not None:
            check_places(seen.plan.program, notes, seen.document.name)
            notes.raise_if_any(seen.document)
    except _Unplanned as refused:
        return refused.seen
    except Refused as refused:
        found = tuple(_finding(seen.document, one) for one in refused.findings)
        return CheckedText(seen.document, found, None)
    return seen


class _Unplanned(Exception):  # noqa: N818 - no error: what is raised is not kept
    """Hold a text without a plan, which is read again each time."""

    def __init__(self, seen: CheckedText) -> None:
        super().__init__()
        self.seen = seen


@lru_cache(maxsize=_KEPT)
def _planned(text: str, name: str, folder: str, here: str) -> CheckedText:
    """Return a planned text, for one current folder."""
    del here
    notes = Notes()
    document = yaml.parse(text, name, notes)
    try:
        notes.raise_if_any(document)
        plan = plan_of(draft_of(document.data, folder=folder, document=document, notes=notes))
    except Refused as refused:
        found = tuple(_finding(document, one) for one in refused.findings)
        raise _Unplanned(CheckedText(document, found, None)) from None
    except SimError as error:
        found = (Finding(_FIRST, error.code, str(error)),)
        raise _Unplanned(CheckedText(document, found, None)) from None
    return CheckedText(document, (), plan)


def _finding(document: Document, found: Diagnostic) -> Finding:
    because = "".join(f"\n{cause.label}" for cause in found.causes)
    text = f"{found.title}: {found.label}{because}\nhelp: {found.help}"
    return Finding(document.locate(found.path, found.part), found.code, text)
