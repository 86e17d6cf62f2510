"""Decide which files ``-o`` and ``save:`` may replace.

A file of the kind that is written, and nothing needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from os.path import exists
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.certificate.certificate import digest_of, read_certificate
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.errors import DataError, SimError
from opendp_sim.dsl.files.paths import beside, kept_files, one_file
from opendp_sim.dsl.files.write import check_writable, unwritable
from opendp_sim.dsl.grammar.program import VERSION, Program
from opendp_sim.dsl.grammar.reader import draft_of, draft_of_file
from opendp_sim.dsl.plan.document import is_plan, spec_of
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.certificate import certificate_path
from opendp_sim.dsl.text.diagnostic import Refused

# --------------------------------------------------------------------------------------------------
# What stands where a run will write: files of an earlier run, and whether it was of the same program.
#
# Certificates are public, and only they are read: data is not.


@dataclass(frozen=True)
class Earlier:
    """Describe existing output files and the run behind them.

    Attributes:
        names: the outputs.
        same: whether a certificate beside one of them says that the same program ran, on the same source
            with the same losses.
    """

    names: tuple[str, ...] = ()
    same: bool = False


def earlier_of(plan: Plan, into: str | None) -> Earlier:
    """Return what an earlier run left where ``plan`` will write."""
    folder = File(plan.program.folder if into is None else into)
    saved = {name: output.decl.save for name, output in plan.outputs.items()}
    there = {
        name: folder / save
        for name, save in saved.items()
        if save is not None and exists(folder / save)  # noqa: PTH110 - false of a name too long
    }
    return Earlier(tuple(there), any(_ran(plan, file) for file in there.values()))


def _ran(plan: Plan, file: File) -> bool:
    """Say whether a file's certificate is of this program."""
    try:
        record, _ = read_certificate(certificate_path(file))
        draft = draft_of(record.program, folder=str(plan.program.folder))
    except SimError:
        return False
    return draft.program.hash == plan.program.hash


# --------------------------------------------------------------------------------------------------

_WHERE = "--output"
_READ = 2**26
"""Bytes; what is longer was not written by these commands."""

Kept = Iterable[tuple[str, File]]
"""(what it is, its path) of files that must stay as they are."""


def check_target(path: File, kind: str, kept: Kept) -> None:
    """Refuse a file that ``-o`` must not replace (OS609).

    Nothing is written but a trial file.

    Args:
        path: where the command would write.
        kind: what it would write: one of ``_KINDS``; an ``answer`` has no mark of its own, and so
            replaces no file at all.
        kept: the command's arguments, and what their program reads and keeps.
    """
    for what, file in kept:
        if one_file(path, file):
            raise _refused(
                path, "another file than this command is about", what, "choose another name."
            )
    try:
        foreign = path.is_file() and not (path.stat().st_size <= _READ and _KINDS[kind](path))
    except (OSError, ValueError):
        raise unwritable(_WHERE, str(path)) from None
    if foreign:
        held = "no file there" if kind == "answer" else f"no file there, or a {kind} to replace"
        raise _refused(
            path, held, "an existing file", "delete it if it is not needed, or choose another name."
        )
    check_writable(path, _WHERE)


def check_replaced(path: File, where: str) -> None:
    """Refuse to replace a file that no run wrote (OS609).

    A rerun replaces its own.

    A run leaves a certificate beside its output, which names it; one that was lost is missed for a
    release only, which is known by itself.
    """
    if path.is_file() and _maker(path) is None:
        raise DataError(
            "OS609",
            where,
            expected="no file there, or an output of a run, with its certificate",
            got=f"{path}: a file that no run of this package is known to have written",
            hint="nothing was charged: move that file away, or choose another folder with --into.",
        )


def check_own(path: File, where: str, program: str) -> None:
    """Refuse to replace another program's release (OS609).

    It was paid for.

    Args:
        path: where the output goes.
        where: what is named there.
        program: the hash of the program that runs. A rerun of it replaces its own.
    """
    maker = _maker(path) if path.is_file() else None
    if maker not in (None, _FREE, program):
        raise DataError(
            "OS609",
            where,
            expected="no file there, or an output of this program to replace",
            got=f"{path}: a release of another program, which was paid for",
            hint="nothing was charged for this one: move that file away with its certificate, choose "
            "another folder (--into, `into=`), or let it be replaced (--replace, `replace=True`).",
        )


_FREE = "public"
"""Stands for the program of an output that cost nothing."""


def _maker(path: File) -> str | None:
    """Return the program's hash behind an output, or None."""
    claims: list[Mapping[str, Any]] = []
    with suppress(SimError, OSError):
        record, _ = read_certificate(certificate_path(path))
        if record.file.name == path.name and record.file.sha256 == digest_of(path):
            claims.append(record.privacy)
    with suppress(SimError):
        if not claims and path.suffix == ".npz":
            claims.append(Release.load(path).header["privacy"])
    return str(claims[0].get("program", _FREE)) if claims else None


def kept_by(program: Program, spec: str | None) -> Kept:
    """Yield every file that a program needs.

    The spec, its inputs, ledgers and stores, and outputs.
    """
    yield from kept_files(program, spec)


def kept_of(about: str) -> Kept:
    """Yield every file that a command's file needs.

    The file, its companions, and its program's files.

    Args:
        about: a spec, plan, certificate, ledger, release or audit; one that cannot be read yields
            itself, and the command refuses it later.
    """
    for file in beside(File(about)):
        yield "the file that it is about", file
    with suppress(SimError, Refused, OSError, ValueError):
        yield from _needed(File(about))


def _needed(file: File) -> Kept:
    if file.name.endswith(".certificate.json"):
        record, _ = read_certificate(file)
        yield "the output that is certified", file.parent / record.file.name
        program = draft_of(record.program, folder=str(file.parent)).program
        saves = [
            File(each.save) for each in program.outputs if each.name == record.output and each.save
        ]
        deep = len(saves[0].parts) - 1 if saves else 0
        for folder in (file.parent, *file.resolve().parents[deep : deep + 1]):  # as `verify` looks
            yield from kept_by(replace(program, written_folder=str(folder)), None)
    elif file.suffix in (".ledger", ".npz", ".json", ".session"):
        return
    elif is_plan(file):
        spec, values = spec_of(file)
        yield from kept_by(draft_of_file(spec, values).program, str(spec))
    else:
        yield from kept_by(draft_of_file(file).program, str(file))


def _refused(path: File, expected: str, got: str, hint: str) -> DataError:
    return DataError("OS609", _WHERE, expected=expected, got=f"{path}: {got}", hint=hint)


def _is_page(path: File) -> bool:
    head = path.read_bytes()[:4096]
    return head.startswith(b"<!doctype html>") and b"<title>Privacy report: " in head


def _is_picture(path: File) -> bool:
    marks = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    text = path.read_bytes()
    mark = marks.get(path.suffix)
    return mark is not None and text.startswith(mark) and b"Matplotlib" in text


def _is_schema(path: File) -> bool:
    with suppress(ValueError, RecursionError):
        found: Any = json.loads(path.read_bytes())
        return isinstance(found, dict) and found.get("$id") == VERSION and "$schema" in found
    return False


_KINDS: Mapping[str, Callable[[File], bool]] = {
    "plan": is_plan,
    "page of `report`": _is_page,
    "picture of `plot`": _is_picture,
    "schema": _is_schema,
    "answer": lambda _: False,
}
