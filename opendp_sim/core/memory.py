"""What this machine can hold: sizes are known from parameters, and refused before anything is drawn.

And what its allocator keeps for the next block of rows.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from opendp_sim.core.errors import ParameterError

__all__ = ["check_memory", "keep_freed_blocks", "machine_memory", "process_memory"]

_KEPT = {-3: 2**25, -2: 2**26, -1: 2**26}
"""What glibc's ``mallopt`` is told: M_MMAP_THRESHOLD (its highest), M_TOP_PAD and M_TRIM_THRESHOLD."""


@cache
def machine_memory() -> int:
    """Return the bytes of memory that a process can have: the machine's, or its container's limit."""
    found = [2**63]
    with suppress(ValueError, OSError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ValueError, OSError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(found)


def process_memory() -> int:
    """Return the bytes that this process has held at most until now; 0 where nobody counts them.

    Read before private data is opened it says nothing about records; after that it does.
    """
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most) if sys.platform == "darwin" else 1024 * int(most)


def check_memory(needed: int, where: str, what: str, lower: str) -> None:
    """Raise OS103 if ``needed`` bytes are more than the machine has.

    Args:
        needed: a lower bound of the bytes.
        where: the mechanism.
        what: what takes them.
        lower: the parameters to lower.
    """
    if needed > machine_memory():
        raise ParameterError(
            "OS103", where, expected=f"{what} within the memory of {machine_memory():,} bytes",
            got=f"{needed:,} bytes", hint=f"lower {lower}.",
        )  # fmt: skip


@cache
def keep_freed_blocks() -> None:
    """Have the allocator keep what blocks of rows leave behind for the blocks that follow.

    glibc gives large blocks back to the system, which then hands out every page of the next block anew:
    a quarter of the time of a sum over columns, and more in threads, since pages are one at a time a
    process. So blocks of up to 32 MiB come from its heaps, of which no thread's goes back (a heap has
    64 MiB, ``M_TOP_PAD`` as many), and of the main one all but 64 MiB (``man mallopt``). It holds for
    the whole process. Other allocators are left as they are.
    """
    with suppress(AttributeError, ValueError, OSError):
        os.confstr("CS_GNU_LIBC_VERSION")
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, size in _KEPT.items():
            mallopt(parameter, size)
