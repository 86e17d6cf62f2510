"""Stage a run's outputs until their charge is durable.

Complete and synchronised. A run that saves anything makes one private folder beside its outputs,
``.opendp_sim-<token>``. What it will publish is written there first; a list of it (``run.json``,
written last: a line of JSON, then its seal) says that everything is complete. After the charge, the
files are renamed to where they belong. A process that dies in between leaves the folder, and the next
``apply`` of the same plan, or ``apply --resume``, goes on from it. Proof: ``dsl/run/charge.md``.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path as File
from typing import Any, Literal, Self

from opendp_sim.accounting.atomic_files import fresh, replacing, sync_folder
from opendp_sim.accounting.certificate.certificate import statement_digest
from opendp_sim.accounting.certificate.lamport_signature import Seal, closed_by
from opendp_sim.accounting.file_schemas import (
    Digest,
    FileName,
    Plain,
    Strict,
    read_both,
    read_strictly,
)
from opendp_sim.core.errors import ReleaseError, refusing
from opendp_sim.core.system.lazy_import import filelock
from opendp_sim.core.system.regular_files import own_file

_NAME = re.compile(r"\.opendp_sim-([0-9a-f]{16})")
_LIST, _LOCK, _ROOM = "run.json", "lock", "room"
_OWN = re.compile(
    rf"{_LOCK}|{_ROOM}\d*|run\.json|\d+(\.[^./]*)?"
    r"|\.(run\.json|\d+(\.[^./]*)?)\.[0-9a-f]{16}\.part"
)
"""What a run calls the files of its folder: one with another file in it is somebody else's."""


class Saved(Strict):
    """Describe one output's staging place, target and kind."""

    output: str
    staged: FileName
    save: str
    sha256: Digest
    statement: Plain
    """What its certificate states (``accounting/certificate/certificate.md``)."""

    @property
    def digests(self) -> dict[str, str]:
        """What the charge holds of it."""
        return {"sha256": self.sha256, "statement": statement_digest(self.statement)}


class RunList(Strict):
    """List the program, reserve and files of a complete run."""

    format: Literal["opendp_sim/run/2"] = "opendp_sim/run/2"
    program: Digest
    reserve: int | None
    """The ledger's entry that was reserved for the run; None without a ledger."""
    ledger: str | None
    """The hash of that entry, which no other ledger holds."""
    signer: Digest | None
    """The public key of who signs; None for nobody."""
    files: list[Saved]


class RunFolder:
    """Hold a private folder of one process, removed on release unless kept."""

    def __init__(self, path: File, lock: Any, *, keep: bool = False) -> None:
        self.path, self._lock, self._keep = path, lock, keep

    @classmethod
    def make(cls, beside: File, room: int, names: int = 0) -> RunFolder:
        """Create a folder, and reserve bytes and names on its disk.

        Raises:
            OSError: there is no such room; nothing was looked at.
        """
        beside.mkdir(parents=True, exist_ok=True)
        path = beside / f".opendp_sim-{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        made = cls(path, filelock.FileLock(path / _LOCK, timeout=0, thread_local=False))
        try:
            made._lock.acquire()
            with fresh(path / _ROOM) as stream:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(stream.fileno(), 0, max(room, 1))
            for number in range(names):
                os.close(os.open(path / f"{_ROOM}{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except BaseException:
            made.release()
            raise
        return made

    @cached_property
    def seal(self) -> Seal:
        """Return the seal of the files' list.

        A ledger has its digest before the run; without a ledger there is none.
        """
        return Seal()

    @property
    def token(self) -> str:
        """What names the run, in the ledger too."""
        return self.path.name.rpartition("-")[2]

    def give_room(self) -> None:
        """Release the reserved part of the disk to new files."""
        for held in self.path.glob(f"{_ROOM}*"):
            held.unlink(missing_ok=True)

    def complete(self, listed: RunList) -> None:
        """Write the sealed list of the complete files, and keep the folder."""
        text = json.dumps({**vars(listed), "files": [*map(vars, listed.files)]}).encode()
        sealed = b"" if listed.ledger is None else self.seal.close(text)
        with replacing(self.path / _LIST) as stream:
            stream.write(text + b"\n" + sealed)
        sync_folder(self.path.parent)
        self._keep = True

    def open_list(self, seal: str) -> RunList:
        """Return another process's list, checked against the ledger's ``seal``.

        Raises:
            ReleaseError (OS701): the list or its seal was changed, or is no list.
        """
        with refusing(lambda _: changed(self), OSError):
            text, _, shown = own_file(self.path / _LIST).read_bytes().partition(b"\n")
        if not closed_by(seal, text, shown):
            raise changed(self)
        return RunList.model_validate(read_both(RunList, text, _changed)[1])  # digests: of these

    def done(self) -> None:
        """Mark everything as published, so that ``release`` removes the folder."""
        self._keep = False

    def release(self) -> None:
        """Release the folder, removing it unless files wait."""
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


def kept_folders(beside: File) -> Iterator[RunFolder]:
    """Yield complete folders of dead processes, removing the others.

    Raises:
        ReleaseError (OS701): a folder cannot be read. It may hold a run that was paid for; passed
            over, it would be paid for again.
    """
    if not beside.is_dir():
        return
    for path in sorted(beside.iterdir()):
        if not is_run_folder(path.name) or path.is_symlink() or not path.is_dir():
            continue
        lock = filelock.FileLock(path / _LOCK, timeout=0, thread_local=False)
        unreadable = partial(_unreadable, path)
        with refusing(unreadable, OSError):
            if _is_foreign(path) or not _taken(lock):
                continue
        with RunFolder(path, lock, keep=True) as found:
            with refusing(unreadable, OSError):
                listed = (path / _LIST).exists()
            if listed:
                yield found
            else:
                found.done()


def is_run_folder(name: str) -> bool:
    """Say whether a folder is called as that of a run."""
    return _NAME.fullmatch(name) is not None


def _is_foreign(path: File) -> bool:
    """Return whether a folder has foreign files."""
    with suppress(PermissionError, FileNotFoundError):
        names = os.listdir(path)  # noqa: PTH208 - names alone
        return _LIST not in names and not all(map(_OWN.fullmatch, names))
    return False


def _taken(lock: Any) -> bool:
    """Acquire a folder's lock, or return False."""
    with suppress(filelock.Timeout, PermissionError, FileNotFoundError):
        lock.acquire()
        return True
    return False


def _unreadable(path: File, _error: OSError) -> ReleaseError:
    return ReleaseError(
        "OS701", str(path), expected="the folder of an earlier run, which can be read",
        got="a disk that refused to read it",
        hint="nothing new was charged. Try again; remove the folder if its run is not wanted: what it "
        "was charged stands.",
    )  # fmt: skip


def complete_run(path: File) -> RunList | None:
    """Return a folder's list, whose seal is not checked, or None."""
    with suppress(OSError, ReleaseError):
        text = own_file(path / _LIST).read_bytes().partition(b"\n")[0]
        return read_strictly(RunList, text, _changed)
    return None


def unfinished_runs(folder: File, program: str) -> Iterator[tuple[File, int]]:
    """Yield each charged run of a program, its private folder and reserve."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        found = complete_run(path) if is_run_folder(path.name) else None
        if found is not None and found.reserve is not None and found.program == program:
            yield path, found.reserve


def changed(folder: RunFolder) -> ReleaseError:
    """Return the refusal of a folder with changed files (OS701)."""
    return _changed(f"changed or missing ones in {folder.path}")


def _changed(got: str) -> ReleaseError:
    return ReleaseError(
        "OS701", "the kept files", expected="the files of an unfinished run, as it left them", got=got,
        hint="its charge stands; remove the folder to give the run up, and run it anew.",
    )  # fmt: skip
