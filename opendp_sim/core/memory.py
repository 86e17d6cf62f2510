"""Check sizes, known from parameters, before drawing; set the allocator."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import cache
from pathlib import Path
from typing import cast

from opendp_sim.core.errors import ParameterError

_WHILE = {-3: 2**25, -1: 2**26 + 2**25, -2: 2**26}
"""What glibc's ``mallopt`` is told: M_MMAP_THRESHOLD (its highest), M_TRIM_THRESHOLD and M_TOP_PAD.

The second is the sum of the others: a heap grows by a block and the pad, all of which it then keeps."""
_AFTER = {-2: 2**17}
"""The default of M_TOP_PAD."""


@cache
def machine_memory() -> int:
    """Return the machine's or container's memory, in bytes."""
    found = [2**63]
    with suppress(ValueError, OSError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ValueError, OSError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(found)


def process_memory() -> int:
    """Return the process's peak memory in bytes, 0 if unknown.

    Read before private data is opened it says nothing about records; after that it does. Linux'
    ``ru_maxrss`` is that of the process that started this one too, if it was larger.
    """
    with suppress(OSError, LookupError, ValueError):
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most) if sys.platform == "darwin" else 1024 * int(most)


def check_memory(needed: int, where: str, what: str, lower: str) -> None:
    """Raise OS103 if ``needed`` bytes are more than the machine has.

    ``where`` is the mechanism, ``what`` takes them, ``lower`` are the parameters to lower.
    """
    if needed > machine_memory():
        raise ParameterError(
            "OS103", where, expected=f"{what} within the memory of {machine_memory():,} bytes",
            got=f"{needed:,} bytes", hint=f"lower {lower}.",
        )  # fmt: skip


class _Kept:
    """Set the allocator while blocks of rows are summed.

    glibc gives large blocks back to the system, which then hands out every page of the next block anew:
    a quarter of the time of a sum over columns, and more in threads, since pages are one at a time a
    process. So blocks of up to 32 MiB come from its heaps, of which no thread's goes back meanwhile (a
    heap has 64 MiB, ``M_TOP_PAD`` as many), and of the main one all but 96 MiB (``man mallopt``).
    Afterwards threads' heaps go back again when they are empty; the other two settings stay, about
    those that glibc comes to by itself once a block of 32 MiB was freed. Other allocators are left as
    they are.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                _tell_allocator(_WHILE)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                _tell_allocator(_AFTER)

    def forked(self) -> None:
        """Begin anew in a fork, whose parent may have had the lock."""
        self._lock = threading.Lock()


_KEPT = _Kept()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_KEPT.forked)


def freed_blocks_kept() -> AbstractContextManager[None]:
    """Reuse freed blocks' memory for the blocks that follow."""
    return _KEPT


def _tell_allocator(settings: Mapping[int, int]) -> None:
    if (mallopt := _mallopt()) is not None:
        for parameter, size in settings.items():
            mallopt(parameter, size)


@cache
def _mallopt() -> Callable[[int, int], int] | None:
    """Return glibc's ``mallopt``, None of another C library."""
    with suppress(AttributeError, ValueError, OSError):
        os.confstr("CS_GNU_LIBC_VERSION")
        return cast("Callable[[int, int], int]", ctypes.CDLL(None).mallopt)
    return None
