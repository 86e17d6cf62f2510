"""Where the outputs of a run wait, complete and synchronised, until their charge is durable.

A run that saves anything makes one private folder beside its outputs, ``.opendp_sim-<token>``. What it
will publish is written there first; a list of it (``run.json``, written last) says that everything is
complete. After the charge, the files are renamed to where they belong. A process that dies in between
leaves the folder, and the next ``apply`` of the same plan, or ``apply --resume``, goes on from it.
Proof: ``charging.md``, beside this file.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path as File
from typing import Literal, Self

from filelock import FileLock, Timeout

from opendp_sim.accounting.atomic_files import fresh, sync_folder, write_json
from opendp_sim.accounting.strict_models import Digest, FileName, Strict, read_strictly
from opendp_sim.core.errors import ReleaseError

__all__ = ["RunFolder", "Saved", "kept_folders", "listed_program"]

_NAME = re.compile(r"\.opendp_sim-([0-9a-f]{16})")
_PROGRAM = re.compile(rb'"program":\s*"([0-9a-f]{64})"')
_LIST, _LOCK, _ROOM = "run.json", "lock", "room"


class Saved(Strict):
    """One output of a run: where it waits, where it goes, and what it is."""

    output: str
    staged: FileName
    save: str
    sha256: Digest
    statement: Digest
    """The digest of what its certificate states (``accounting/certificate.md``)."""


class _List(Strict):
    format: Literal["opendp_sim/run/1"]
    program: Digest
    reserve: int | None
    """The ledger's entry that was reserved for the run; None without a ledger."""
    ledger: str | None
    """The hash of that entry, which no other ledger holds."""
    signed: bool
    files: list[Saved]


class RunFolder:
    """A private folder that one process holds; it is removed when it is let go of, unless kept."""

    def __init__(self, path: File, lock: FileLock, *, keep: bool = False) -> None:
        self.path, self._lock, self._keep = path, lock, keep
        self.listed: _List | None = None

    @classmethod
    def make(cls, beside: File, room: int) -> RunFolder:
        """Make one, and hold ``room`` bytes of the disk for what is to come.

        Raises:
            OSError: there is no such room; nothing was looked at.
        """
        beside.mkdir(parents=True, exist_ok=True)
        path = beside / f".opendp_sim-{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        made = cls(path, FileLock(path / _LOCK, timeout=0, thread_local=False))
        made._lock.acquire()
        try:
            with fresh(path / _ROOM) as stream:
                _allocate(stream.fileno(), room)
        except BaseException:
            made.release()
            raise
        return made

    @property
    def token(self) -> str:
        """What names the run, in the ledger too."""
        return self.path.name.rpartition("-")[2]

    def give_room(self) -> None:
        """Give the held part of the disk to the files that are written now."""
        (self.path / _ROOM).unlink(missing_ok=True)

    def complete(
        self, files: Sequence[Saved], *, program: str, reserve: int | None, ledger: str | None,
        signed: bool,
    ) -> None:  # fmt: skip
        """Write the list of the files, all of which are complete: from here on the folder is kept."""
        listed = _List(format="opendp_sim/run/1", program=program, reserve=reserve, ledger=ledger,
                       signed=signed, files=list(files))  # fmt: skip
        sync_folder(self.path)
        write_json(self.path / _LIST, listed.model_dump())
        sync_folder(self.path.parent)
        self.listed, self._keep = listed, True

    def done(self) -> None:
        """Say that everything was published: the folder goes when it is let go of."""
        self._keep = False

    def release(self) -> None:
        """Let go of the folder; remove it unless it holds what is still to be published."""
        try:
            if not self._keep:
                # The list first: without it nobody takes a half removed folder for a complete one.
                with suppress(OSError):
                    (self.path / _LIST).unlink(missing_ok=True)
                shutil.rmtree(self.path, ignore_errors=True)
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of it."""
        self.release()


def kept_folders(beside: File, program: str, *, ledger: bool) -> Iterator[RunFolder]:
    """Yield the complete folders of a program that no process holds; remove incomplete ones.

    Args:
        beside: the folder that ``save:`` paths start from.
        program: the hash; folders of other programs are left alone.
        ledger: whether the program has a ledger. Without one there is nothing to go on with: a run
            is simply repeated, and what it left is removed.
    """
    if not beside.is_dir():
        return
    for path in sorted(beside.iterdir()):
        if _NAME.fullmatch(path.name) is None or path.is_symlink() or not path.is_dir():
            continue
        lock = FileLock(path / _LOCK, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except (OSError, Timeout):
            continue
        found = RunFolder(path, lock, keep=True)
        with found:
            if _of_another(path, program):
                continue
            listed = _read(path)
            if listed is None or (listed.program == program and not ledger):
                found.done()
            elif listed.program == program:
                found.listed = listed
                yield found


def listed_program(path: File) -> str | None:
    """Return the program of a complete run whose folder this is, if it was charged to a ledger."""
    with suppress(OSError, ReleaseError):
        listed = _read(path) if _NAME.fullmatch(path.name) else None
        return None if listed is None or listed.ledger is None else listed.program
    return None


def _of_another(path: File, program: str) -> bool:
    """Say whether the list names another program, also where the rest of it is damaged.

    A damaged list then stops nobody but the program whose run it is.
    """
    try:
        named = _PROGRAM.search((path / _LIST).read_bytes())
    except FileNotFoundError:
        return False
    return named is not None and named[1].decode() != program


def _read(path: File) -> _List | None:
    """Return the list of a folder; None where the run had not completed it.

    Raises:
        ReleaseError (OS701): there is one, and it is no list.
    """
    try:
        text = (path / _LIST).read_bytes()
    except FileNotFoundError:
        return None
    return read_strictly(_List, text, lambda where: ReleaseError(
        "OS701", str(path / _LIST), expected="the list of a run as `apply` writes it",
        got=f"another value at {where}",
        hint="the file was changed; remove its folder if the run is not wanted: its charge stands.",
    ))  # fmt: skip


def _allocate(handle: int, size: int) -> None:
    """Take ``size`` bytes of the disk, where the system can do so."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, max(size, 1))
