"""The Walsh-Hadamard transform of integer rows: additions only, exact below 2**53.

Every partial sum is a signed sum of the row's own entries, so a bound on their absolute sum below
2**53 makes each float64 operation exact and the result independent of how rows are batched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import ParameterError
from opendp_sim.core.randomness import public_generator

__all__ = ["SampledHadamard", "signed_hadamard"]

_CELLS = 2**19


def signed_hadamard(
    values: NDArray[np.float64], signs: NDArray[np.int8], places: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the coordinates ``places`` of ``H diag(signs) x`` for each row x, shape (n, k).

    ``H`` is the D x D matrix of ``(-1)**popcount(i & j)``, D the least power of two that is at least
    the width; rows are padded with zeros.

    Args:
        values: shape (n, d), integers whose absolute values add up below 2**53 in each row.
        signs: shape (d,), -1 or 1.
        places: shape (k,), below D.
    """
    count, width = values.shape
    full = 1 << (width - 1).bit_length()
    out = np.empty((count, len(places)))
    for part in _parts(count, full):
        # Columns of the batch are rows of the work array: each step adds whole contiguous runs.
        work = np.zeros((full, part.stop - part.start))
        np.multiply(values[part].T, signs[:, None], out=work[:width])
        half = 1
        while half < full:
            pairs = work.reshape(full // (2 * half), 2, half, -1)
            total = pairs[:, 0] + pairs[:, 1]
            np.subtract(pairs[:, 0], pairs[:, 1], out=pairs[:, 1])
            pairs[:, 0] = total
            half *= 2
        out[part] = work[places].T
    out += 0.0  # one zero: the sign of zero would depend on the order of additions
    return out


def _parts(count: int, full: int) -> Iterator[slice]:
    step = max(1, _CELLS // full)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


@dataclass(frozen=True)
class SampledHadamard:
    """Random signs (d,), and which k coordinates of the transform are kept."""

    signs: NDArray[np.int8]
    places: NDArray[np.int64]

    @classmethod
    def draw(cls, key: str, seed: int, width: int, dimension: int) -> SampledHadamard:
        """Draw ``dimension`` coordinates for rows of ``width`` from the public seed of a mechanism.

        Raises:
            ParameterError (OS102): more coordinates than the transform has.
        """
        full = 1 << (width - 1).bit_length()
        if dimension > full:
            raise ParameterError(
                "OS102", f"{key}.dimension", expected=f"at most {full} columns", got=dimension,
                hint="use form: dense, or project to fewer columns.",
            )  # fmt: skip
        generator = public_generator(seed, key, "hadamard")
        signs = 2 * generator.integers(0, 2, size=width, dtype=np.int8) - 1
        return cls(signs, generator.permutation(full)[:dimension])

    @property
    def matrices(self) -> tuple[NDArray[np.generic], ...]:
        """The public matrices, for the release's fingerprint."""
        return self.signs, self.places

    def project(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Project rows."""
        return signed_hadamard(values, self.signs, self.places)

    def far(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Project public queries, which may lie outside the bounds."""
        return self.project(values)

    def middle(self, both: NDArray[np.float64]) -> tuple[int, int]:
        """Return the least and the greatest product with the sum of the bounds."""
        found = self.far(both[None, :])
        return int(found.min()), int(found.max())

    def norm_squared(self) -> int:
        """Bound the square of the largest factor: all of H lengthens by exactly sqrt(D)."""
        full = 1 << (len(self.signs) - 1).bit_length()
        return min(full, len(self.signs) * len(self.places))
