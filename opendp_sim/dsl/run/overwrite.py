"""Decide which files ``-o`` (none without ``--force``) and ``save:`` may replace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os.path import exists
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.certificate.certificate import digest_of, read_certificate
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.errors import DataError, SimError
from opendp_sim.core.system.file_kinds import kind_of_file
from opendp_sim.dsl.files.paths import beside, one_file
from opendp_sim.dsl.files.write import check_writable, unwritable
from opendp_sim.dsl.grammar.program import Program
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.certificate import certificate_path

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
    with suppress(SimError):
        record, _ = read_certificate(certificate_path(file))
        return is_program(plan.program, record.program, plan.program.folder)
    return False


def is_program(program: Program, stated: Any, folder: str) -> bool:
    """Return whether a certificate's program is this one.

    Raises:
        SimError: it is no program.
    """
    text = json.dumps(stated, sort_keys=True, separators=(",", ":"))
    if text == program.canonical:  # as this version writes it: nothing to parse
        return True
    return draft_of(stated, folder=folder).program.hash == program.hash


# --------------------------------------------------------------------------------------------------

_WHERE = "--output"
Kept = Iterable[tuple[str, File]]
"""(what it is, its path) of files that must stay as they are."""


def check_target(path: File, kept: Kept = (), *, force: bool = False) -> None:
    """Refuse a file that ``-o`` must not replace (OS609).

    Nothing is written but a trial file. ``force`` replaces a file that is there, but no ledger or store.
    """
    for what, file in kept:
        if one_file(path, file):
            raise _refused(
                path, "another file than this command is about", what, "choose another name."
            )
    try:
        there = path.is_file()
        database = there and kind_of_file(path).name in ("ledger", "store", "database")
    except (OSError, ValueError):
        raise unwritable(_WHERE, str(path)) from None
    if database:
        hint = "choose another name: a ledger or a store is replaced by no command."
        raise _refused(path, "no ledger or store there", "a database", hint)
    if there and not force:
        hint = "choose another name, or replace that file with --force."
        raise _refused(path, "no file there", "an existing file", hint)
    check_writable(path, _WHERE)


def kept_of(about: str) -> Kept:
    """Yield a command's file and its companions."""
    for file in beside(File(about)):
        yield "the file that it is about", file


def _refused(path: File, expected: str, got: str, hint: str) -> DataError:
    return DataError("OS609", _WHERE, expected=expected, got=f"{path}: {got}", hint=hint)


# --------------------------------------------------------------------------------------------------
# What `save:` may replace: an output of the same program.


def check_replaced(path: File, where: str) -> None:
    """Refuse to replace a file that no run wrote (OS609).

    A rerun replaces its own. A run leaves a certificate beside its output, which names it; one that
    was lost is missed for a release only, which is known by itself.
    """
    if path.is_file() and maker_of(path) is None:
        raise DataError(
            "OS609", where, expected="no file there, or an output of a run, with its certificate",
            got=f"{path}: a file that no run of this package is known to have written",
            hint="nothing was charged: move that file away, or choose another folder with --into.",
        )  # fmt: skip


def check_own(path: File, where: str, program: str, *, replaced: bool) -> bool:
    """Refuse to replace another program's release, which was paid for (OS609).

    A certificate whose file is away is such a run's record too. ``replaced`` lets it go. Returns whether
    no run is known to have written the file that is there.
    """
    there = path.is_file()
    maker = maker_of(path) if there else _certified(path)
    if not replaced and maker not in (None, _FREE, program):
        raise DataError(
            "OS609",
            where,
            expected="no file there, or an output of this program to replace",
            got=f"{path}: {'a release' if there else 'the certificate of a release'} of another "
            "program, which was paid for",
            hint="nothing was charged for this one: move that file away with its certificate, choose "
            "another folder (--into, `into=`), or let it be replaced (--replace, `replace=True`).",
        )
    return there and maker is None


_FREE = "public"
"""Stands for the program of an output that cost nothing."""


def _certified(path: File) -> str | None:
    """Return the program that a certificate beside a name is about."""
    with suppress(SimError, OSError):
        record, _ = read_certificate(certificate_path(path))
        return str(record.privacy.get("program", _FREE))
    return None


def maker_of(path: File) -> str | None:
    """Return the program's hash behind an output, or None."""
    claims: list[Mapping[str, Any]] = []
    with suppress(SimError, OSError):
        record, _ = read_certificate(certificate_path(path))
        if record.file.name == path.name and record.file.sha256 == digest_of(path):
            claims.append(record.privacy)
    with suppress(SimError):
        if not claims and path.suffix == ".npz":
            claims.append(Release.load(path).header["privacy"])
    if not claims:
        return None
    return str(claims[0].get("program", _FREE if claims[0].get("public") else "another"))
