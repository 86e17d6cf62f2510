"""Read arrays in numpy's format from several threads at once.

numpy has Python make a syntax tree of an array's header, which another thread may disturb
(``core/system/syntax_trees.py``). That is no fault of the file, and a charge may stand behind it:
so the reading is
done again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from opendp_sim.core.system.syntax_trees import tried_again

T = TypeVar("T")


class ArrayHeader(NamedTuple):
    """What stands before the entries of an array."""

    version: tuple[int, int]
    shape: tuple[int, ...]
    columns_first: bool
    dtype: np.dtype[Any]


def header_of(stream: IO[bytes]) -> ArrayHeader:
    """Read an array's header up to its first entry, or raise ValueError."""

    def read() -> ArrayHeader:
        version = npy.read_magic(stream)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        return ArrayHeader(version, *header(stream))

    return _from_here(stream, read)


def array_of(stream: IO[bytes]) -> NDArray[Any]:
    """Read one array of numbers or texts, or raise ValueError."""
    return _from_here(stream, lambda: npy.read_array(stream, allow_pickle=False))


def arrays_of(stream: IO[bytes]) -> dict[str, NDArray[Any]]:
    """Read an archive's arrays by name; damaged ones raise any exception."""
    with np.load(stream, allow_pickle=False) as held:
        return {name: tried_again(partial(held.__getitem__, name)) for name in held.files}


def _from_here(stream: IO[bytes], read: Callable[[], T]) -> T:
    here = stream.tell() if stream.seekable() else None

    def once() -> T:
        if here is not None:
            stream.seek(here)
        return read()

    return once() if here is None else tried_again(once)
