"""Refuse pipes and devices, which cannot be read twice."""

from __future__ import annotations

import errno
import os
import stat
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path

_STORE = b"SQLite format 3"
ZERO = "a zero byte"


def decode_text(raw: bytes) -> str | None:
    """Return a file's text, or None for other content.

    Such as a store, a picture, an archive or another table. What is no text may be private data, and
    no message quotes any of it.
    """
    if raw.startswith(_STORE) or b"\0" in raw:
        return None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def first_odd(raw: bytes) -> tuple[int, int]:
    """Return line and column, from 1, of the first undecodable byte."""
    start = raw.find(b"\0")
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        start = error.start if start < 0 else min(start, error.start)
    before = None if start < 0 else decode_text(raw[:start])
    if before is None or raw.startswith(_STORE):
        return 1, 1
    lines = before.split("\n")
    return len(lines), len(lines[-1]) + 1


def no_text(raw: bytes) -> str:
    """Return the reason why bytes are no UTF-8 text."""
    head = raw[:64]
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or (
        len(head) > 3 and (not any(head[1::2]) or not any(head[::2]))
    ):
        return "UTF-16"
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes that are not UTF-8"
    return ZERO


def is_odd(path: str | os.PathLike[str]) -> bool:
    """Return whether a path leads to a pipe, socket or device."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - an odd path is no error here
    except (OSError, ValueError):
        return False  # opening it says what is wrong
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def regular(path: str | os.PathLike[str]) -> Path:
    """Return a file's path; pipes, sockets and devices raise OSError."""
    if is_odd(path):
        raise OSError(errno.EINVAL, "no regular file")
    return Path(path)


def own_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file with this one name.

    Links and files with several names are refused. Whoever kept a second name could change it later,
    and a link leads to a file of somebody else.

    Raises:
        OSError: there is none, or a link, a second name, a pipe, a socket, a device or a folder.
    """
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise OSError(errno.EINVAL, "no file of its own")
    return Path(path)
