"""Stage a run's outputs until their charge is durable.

Complete and synchronised. A run that saves anything makes one private folder beside its outputs,
``.opendp_sim-<token>``. What it will publish is written there first; a list of it (``run.json``,
written last) says that everything is complete. After the charge, the files are renamed to where they
belong. A process that dies in between leaves the folder, and the next ``apply`` of the same plan, or
``apply --resume``, goes on from it. Proof: ``dsl/run/charge.md``.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path as File
from typing import Any, Literal, Self

from opendp_sim.accounting.atomic_files import fresh, replacing, sync_folder
from opendp_sim.accounting.certificate.lamport_signature import Seal, closed_by
from opendp_sim.accounting.file_schemas import Digest, FileName, Strict, read_strictly
from opendp_sim.core.errors import ReleaseError
from opendp_sim.core.system.lazy_import import filelock
from opendp_sim.core.system.regular_files import own_file

_NAME = re.compile(r"\.opendp_sim-([0-9a-f]{16})")
_LIST, _LOCK, _ROOM, _SEAL = "run.json", "lock", "room", "seal"
_OWN = re.compile(
    rf"{_LOCK}|{_ROOM}\d*|{_SEAL}|run\.json|\d+(\.[^./]*)?(\.statement)?"
    r"|\.(run\.json|\d+(\.[^./]*)?)\.[0-9a-f]{16}\.part"
)
"""What a run calls the files of its folder: one with another file in it is somebody else's."""


class Saved(Strict):
    """Describe one output's staging place, target and kind."""

    output: str
    staged: FileName
    save: str
    sha256: Digest
    statement: Digest
    """The digest of what its certificate states (``accounting/certificate/certificate.md``)."""


class _List(Strict):
    format: Literal["opendp_sim/run/1"]
    program: Digest
    reserve: int | None
    """The ledger's entry that was reserved for the run; None without a ledger."""
    ledger: str | None
    """The hash of that entry, which no other ledger holds."""
    signed: bool
    signer: Digest | None = None
    """The public key of who signs; None for nobody, and in lists of versions that did not keep it."""
    files: list[Saved]


class RunFolder:
    """Hold a private folder of one process, removed on release unless kept."""

    def __init__(self, path: File, lock: Any, *, keep: bool = False) -> None:
        self.path, self._lock, self._keep = path, lock, keep
        self.listed: _List | None = None

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
                _allocate(stream.fileno(), room)
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

    def complete(
        self,
        files: Sequence[Saved],
        *,
        program: str,
        reserve: int | None,
        ledger: str | None,
        signer: str | None,
    ) -> None:
        """Write the list of the complete files, and keep the folder."""
        listed = _List(
            format="opendp_sim/run/1",
            program=program,
            reserve=reserve,
            ledger=ledger,
            signed=signer is not None,
            signer=signer,
            files=list(files),
        )
        text = json.dumps(listed.model_dump(), indent=1, sort_keys=True)
        if (
            ledger is not None
        ):  # without one nothing holds the seal's digest, and no list is taken up
            with fresh(self.path / _SEAL) as stream:
                stream.write(self.seal.close(text.encode()))
        with replacing(self.path / _LIST, "w") as stream:
            stream.write(text)
        sync_folder(self.path.parent)
        self.listed, self._keep = listed, True

    def open_list(self, seal: str | None) -> None:
        """Read another process's list, checked against the ledger's ``seal``.

        An entry from before there were seals has none: its charge holds the digests of the files then.

        Raises:
            ReleaseError (OS701): the list or its seal was changed, or is no list.
        """
        try:
            text = own_file(self.path / _LIST).read_bytes()
            shown = b"" if seal is None else own_file(self.path / _SEAL).read_bytes()
        except OSError:
            raise changed(self) from None
        if seal is not None and not closed_by(seal, text, shown):
            raise changed(self)
        self.listed = _listed(text)

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
        if _is_foreign(path):
            continue
        lock = filelock.FileLock(path / _LOCK, timeout=0, thread_local=False)
        if not _taken(lock, path):
            continue
        found = RunFolder(path, lock, keep=True)
        with found:
            if _has_list(path):
                yield found
            else:
                found.done()


def is_run_folder(name: str) -> bool:
    """Say whether a folder is called as that of a run."""
    return _NAME.fullmatch(name) is not None


def _is_foreign(path: File) -> bool:
    """Return whether a folder has foreign files."""
    try:
        names = os.listdir(path)  # noqa: PTH208 - names alone
        return _LIST not in names and not all(map(_OWN.fullmatch, names))
    except (PermissionError, FileNotFoundError):
        return False
    except OSError:
        pass
    raise _unreadable(path)


def _taken(lock: Any, path: File) -> bool:
    """Acquire a folder's lock, or return False."""
    try:
        lock.acquire()
    except (filelock.Timeout, PermissionError, FileNotFoundError):
        return False
    except OSError:
        pass
    else:
        return True
    raise _unreadable(path)


def _has_list(path: File) -> bool:
    try:
        return (path / _LIST).exists()
    except OSError:
        pass
    raise _unreadable(path)


def _unreadable(path: File) -> ReleaseError:
    return ReleaseError(
        "OS701", str(path), expected="the folder of an earlier run, which can be read",
        got="a disk that refused to read it",
        hint="nothing new was charged. Try again; remove the folder if its run is not wanted: what it "
        "was charged stands.",
    )  # fmt: skip


def listed_program(path: File, *, charged: bool = False) -> str | None:
    """Return the program of a folder's complete run, or None."""
    with suppress(OSError, ReleaseError):
        listed = _listed(own_file(path / _LIST).read_bytes())
        return listed.program if listed.ledger is not None or not charged else None
    return None


def unfinished_run(folder: File, program: str) -> int | None:
    """Return the reserve of a program's charged run, or None."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if is_run_folder(path.name) and listed_program(path, charged=True) == program:
            with suppress(OSError, ReleaseError):
                return _listed(own_file(path / _LIST).read_bytes()).reserve
    return None


def _listed(text: bytes) -> _List:
    return read_strictly(_List, text, _changed)


def changed(folder: RunFolder) -> ReleaseError:
    """Return the refusal of a folder with changed files (OS701)."""
    return _changed(f"changed or missing ones in {folder.path}")


def _changed(got: str) -> ReleaseError:
    return ReleaseError(
        "OS701", "the kept files", expected="the files of an unfinished run, as it left them", got=got,
        hint="its charge stands; remove the folder to give the run up, and run it anew.",
    )  # fmt: skip


def _allocate(handle: int, size: int) -> None:
    """Take ``size`` bytes of the disk, where the system can do so."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, max(size, 1))
