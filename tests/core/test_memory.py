"""What the allocator keeps: in processes of their own, since one block changes it for good."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

BLOCKS = """
import resource
import numpy as np
from opendp_sim.core.memory import keep_freed_blocks

keep_freed_blocks()
before = resource.getrusage(resource.RUSAGE_SELF)
for _ in range(50):
    rows = [np.ones(7_400_000 // 8) for _ in range(3)]
    del rows
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before.ru_minflt)
"""


def faults() -> int:
    """Return how often the system had to hand out a page for fifty blocks of three arrays."""
    command = [sys.executable, "-c", BLOCKS]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left alone")
def test_pages_of_a_block_are_used_again() -> None:
    once = 3 * 7_400_000 // 4096
    assert faults() < 2 * once
