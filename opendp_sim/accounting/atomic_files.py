"""Write files atomically under names that nobody else has.

A file is written under a fresh hidden name in the folder of its target (created with ``O_EXCL``, so
that no link is followed and no other writer is met), synchronised, renamed over the target, and the
folder is synchronised before and after. A writer holds a lock on its hidden file; the next writer of
the same target removes hidden files that nobody holds, which are what a killed process left.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl

    LOCKS = True
except ImportError:  # not a POSIX system: leftovers stay, nothing else changes
    LOCKS = False


_TOKEN = 8
"""Random bytes in a hidden name."""


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def fresh(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Create a file, synchronised with its folder when complete.

    Bytes that are no UTF-8 are written as ``\udcff``: a charged run must not fail on what it released.
    """
    as_text = {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
    text = {} if "b" in mode else as_text
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, flags, 0o666)
    with os.fdopen(handle, mode, **text) as stream:  # type: ignore[call-overload]
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
    sync_folder(path.parent)


@contextmanager
def replacing(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Replace ``path`` when the block ends, or leave it unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(_TOKEN)}.part")
    try:
        with fresh(hidden, mode) as stream:
            _hold(stream)
            yield stream
        moved(hidden, path)
    finally:
        with suppress(OSError):
            hidden.unlink(missing_ok=True)


def moved(made: Path, target: Path) -> None:
    """Rename a complete file over its target, durably, across file systems too."""
    try:
        made.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with made.open("rb") as source, replacing(target) as stream:
            shutil.copyfileobj(source, stream)
        made.unlink()
    sync_folder(target.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` with sorted, indented JSON, atomically."""
    with replacing(path, "w") as stream:
        stream.write(json.dumps(value, indent=1, sort_keys=True) + "\n")


def _hold(stream: IO[Any]) -> None:
    """Lock a hidden file until it is closed, while it is written."""
    if LOCKS:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX)


def _sweep(path: Path) -> None:
    """Remove hidden files of this target that nobody writes any more."""
    if not LOCKS:
        return
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{{2 * _TOKEN}}}\.part")
    for left in path.parent.iterdir():
        if pattern.fullmatch(left.name):
            _remove_unheld(left)


def _remove_unheld(left: Path) -> None:
    with suppress(OSError):
        handle = os.open(left, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()
        finally:
            os.close(handle)
