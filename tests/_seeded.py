"""Noise of a fixed stream, for tests that measure what noise does to answers.

They cannot fail by chance; that noise is drawn afresh and has its law is tested in `measurements/noise`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


def stream(seed: int) -> Callable[[int], NDArray[np.uint8]]:
    """Return a source of bytes for ``add_gaussian`` and ``add_laplace``."""
    rng = np.random.default_rng(seed)
    return lambda count: rng.integers(0, 256, count, dtype=np.uint8)
