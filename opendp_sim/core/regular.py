"""Files that can be read to their end, and again: a pipe may never end, and a device has no size."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["is_odd", "regular"]


def is_odd(path: str | os.PathLike[str]) -> bool:
    """Say whether a pipe, socket or device is at a path, links followed; a folder is none of them."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - an odd path is no error here
    except (OSError, ValueError):
        return False  # opening it says what is wrong
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def regular(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that is about to be read, unless reading it could last for ever.

    Raises:
        OSError: a pipe, a socket or a device is there.
    """
    if is_odd(path):
        raise OSError(errno.EINVAL, "no regular file")
    return Path(path)
