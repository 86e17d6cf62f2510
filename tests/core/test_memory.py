"""What the allocator keeps: in processes of their own, since one block changes it for good."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

BLOCKS = """
import resource
import sys
import threading
import numpy as np
from opendp_sim.core.memory import freed_blocks_kept

freed_blocks_kept().__enter__()
if len(sys.argv) > 3:
    freed_blocks_kept().__exit__(None, None, None)
before = resource.getrusage(resource.RUSAGE_SELF)

def work():
    for _ in range(20):
        rows = [np.ones(3_700_000 // 8) for _ in range(int(sys.argv[2]))]
        del rows

threads = [threading.Thread(target=work) for _ in range(int(sys.argv[1]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if not threads:
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before.ru_minflt)
"""


def faults(threads: int, arrays: int) -> int:
    """Return how often the system had to hand out a page for twenty blocks of arrays a thread."""
    command = [sys.executable, "-c", BLOCKS, str(threads), str(arrays)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.few(1)
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left alone")
@pytest.mark.parametrize(("threads", "arrays"), [(0, 6), (1, 20), (3, 20)])
def test_pages_of_a_block_are_used_again(threads: int, arrays: int) -> None:
    once = arrays * 3_700_000 // 4096
    assert faults(threads, arrays) < 2 * once * max(1, threads)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left alone")
def test_afterwards_the_heaps_of_threads_go_back() -> None:
    """What others allocate after a sum is theirs: an empty heap of a thread is not kept for ever."""
    once = 20 * 3_700_000 // 4096
    command = [sys.executable, "-c", BLOCKS, "3", "20", "left"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 6 * once
