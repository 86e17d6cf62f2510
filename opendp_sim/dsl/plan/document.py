"""Write a plan as a document, refused after any change."""

from __future__ import annotations

import json
import os
from codecs import BOM_UTF8
from pathlib import Path as File
from typing import Literal

from opendp_sim.accounting.atomic_files import write_json
from opendp_sim.accounting.file_schemas import (
    Digest,
    PathText,
    Plain,
    Strict,
    is_heavy,
    read_strictly,
)
from opendp_sim.accounting.ledger.ledger import head_of
from opendp_sim.accounting.release.release import library_versions
from opendp_sim.core.errors import SpecError
from opendp_sim.core.system.file_kinds import kind_of_file
from opendp_sim.core.system.regular_files import regular
from opendp_sim.dsl.plan.plan import Plan, plan_file
from opendp_sim.dsl.plan.records import ledger_path
from opendp_sim.dsl.text.compare_documents import same, told_differences

PLAN_FORMAT = "opendp_sim/plan/1"


_STATED = ("name", "privacy", "stages")
_DERIVED = frozenset({"program", "attackers", "claim", "total", "conversion_delta", "memory_bytes"})
"""Parts of a plan that are told first, as a spec states them, and those that only follow."""


class _Document(Strict):
    format: Literal["opendp_sim/plan/1"]
    spec: PathText
    values: Plain
    versions: dict[str, str]
    ledger: Digest | None
    plan: Plain


def save_plan(plan: Plan, path: str | File) -> None:
    """Write the plan of a spec file as a document."""
    if plan.path is None:
        raise SpecError(
            "OS309", str(path), expected="a plan that was made from a spec file",
            got="a program written in Python", hint="save its `plain()` as a spec first.",
        )  # fmt: skip
    target = File(path)
    spec = os.path.relpath(File(plan.path).resolve(), target.resolve().parent)
    if not _is_text(spec):
        raise SpecError(
            "OS309", str(path), expected="a spec whose path is text, from the plan's folder",
            got="a path of other bytes",
            hint="write the plan beside the spec, or rename the folder.",
        )  # fmt: skip
    write_json(
        target,
        {
            "format": PLAN_FORMAT,
            "spec": spec,
            "values": dict(plan.program.values),
            "versions": library_versions(),
            "ledger": _head(plan),
            "plan": plan.plain(),
        },
    )


def _is_text(path: str) -> bool:
    """Return whether a path can be written."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_plan(path: str | File) -> bool:
    """Return whether a file is a plan document, which is JSON."""
    return kind_of_file(path).name == "plan"


def _read(path: str | File) -> bytes | None:
    """Return the text of a plan document; None for anything else."""
    try:
        text = regular(path).read_bytes()
        text = text.removeprefix(BOM_UTF8)
        if not text.lstrip().startswith(b"{") or is_heavy(text):  # parsed, it would fill the memory
            return None
        found = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return text if isinstance(found, dict) and found.get("format") == PLAN_FORMAT else None


def spec_of(path: str | File) -> tuple[File, Plain]:
    """Return a plan's spec path and parameters, without opening the spec."""
    found = _document(path)
    return File(path).parent / found.spec, found.values


def outputs_of_plan(path: str | File, plan: Plan) -> str | None:
    """Return the output folder of a plan document.

    Its own; None beside its spec. A document may be carried elsewhere and names its spec from there:
    what is saved never leaves the folder of the one who runs it. Data and ledger stay where the spec
    names them.
    """
    own = File(path).parent
    return None if own.resolve() == File(plan.program.folder).resolve() else str(own)


def _document(path: str | File) -> _Document:
    text = _read(path)
    if text is None:
        raise _no_plan(path)
    return read_strictly(
        _Document, text, lambda came: _moved(path, "a plan document as `plan -o` writes it", came)
    )


def _no_plan(path: str | File) -> SpecError:
    found = kind_of_file(path)
    then = f"; {found.then}" if found.then and found.name != "plan" else ""
    return SpecError(
        "OS309", str(path), expected="a plan document, as `plan -o` writes it",
        got=found.instead_of("plan"),
        hint=f"write one with `opendp-sim plan SPEC -o FILE.plan`{then}.",
    )  # fmt: skip


def load_plan(path: str | File, *, resuming: bool = False) -> Plan:
    """Plan again what the document planned, and refuse if anything differs (OS309).

    A run that is resumed has its own entries in the ledger by now.
    """
    found = _document(path)
    plan = plan_file(File(path).parent / found.spec, found.values)
    if plan.program.hash != found.plan.get("program"):
        raise _moved(
            path, "the spec that was planned", f"a spec that was edited since{_where(found, plan)}"
        )
    if library_versions() != found.versions:
        raise _moved(path, "the versions that were planned with", "other versions")
    if not resuming and _head(plan) != found.ledger:
        raise _moved(path, "the ledger as it was", "a ledger with other entries")
    if not same(json.loads(plan.canonical), found.plan):
        raise _moved(path, "the numbers that were planned", f"other numbers{_where(found, plan)}")
    return plan


def _where(found: _Document, plan: Plan) -> str:
    """Name the parts of the plan that differ."""
    ours = json.loads(plan.canonical)
    ours = {name: ours[name] for name in (*_STATED, *ours) if name in ours and name not in _DERIVED}
    theirs = {name: value for name, value in found.plan.items() if name not in _DERIVED}
    told = told_differences(ours, theirs, second="the plan document")
    return f": {told}" if told else ""


def _head(plan: Plan) -> str | None:
    path = ledger_path(plan)
    return None if path is None else head_of(path)


def _moved(path: str | File, expected: str, got: str) -> SpecError:
    return SpecError(
        "OS309", str(path), expected=expected, got=got,
        hint="look at `opendp-sim plan SPEC` again, and save it with -o.",
    )  # fmt: skip
