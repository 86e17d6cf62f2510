"""Describe integer vectors of named blocks, and bare integer vectors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core import dp
from opendp_sim.core.claims import Norm, Sensitivity, SketchBlock, sensitivity_of
from opendp_sim.core.errors import DataError, ParameterError
from opendp_sim.core.space import FOREIGN_DOMAINS, Domain, canonical_text
from opendp_sim.domains.metrics import VectorNorm


@dataclass(frozen=True)
class IntVector(Domain):
    """Vectors of int64; OpenDP's ``vector_domain(atom_domain(T="i64"), size)``."""

    cells: int | None = None

    def check(self, data: Any) -> None:
        """Refuse anything that is not a flat integer vector of this size."""
        array = np.asarray(data)
        masked = isinstance(data, np.ma.MaskedArray)  # nothing is missing from a sum
        fits = not masked and array.ndim == 1 and (array.dtype.kind in "iu" or array.size == 0)
        if not fits or self.cells not in (None, array.size):
            raise DataError(
                "OS602", "vector", expected="a flat int64 vector of the declared size",
                got="another shape or dtype", hint="pass the sketch as it was built.",
            )  # fmt: skip

    @property
    def size(self) -> int:
        """Number of cells (0 when unknown)."""
        return self.cells or 0

    @property
    def weights(self) -> tuple[tuple[int, int], ...]:
        """A bare vector is not weighted."""
        return ()

    def native(self) -> dp.Domain:
        """Return OpenDP's own vector domain."""
        if self.size >= 2**31:
            raise ParameterError(
                "OS103", "vector", expected="fewer than 2**31 cells, as OpenDP's vectors have",
                got=f"{self.size:,} cells", hint="lower the sizes of the sketch, or the labels.",
            )  # fmt: skip
        return _native(self.cells)


@lru_cache(256)
def _native(cells: int | None) -> dp.Domain:
    atom = dp.atom_domain(T="i64")
    return dp.vector_domain(atom) if cells is None else dp.vector_domain(atom, cells)


@dataclass(frozen=True)
class Sketch(Domain):
    """Describe the int64 sum of one feature vector a record.

    The vector is flat, and cut into named blocks.

    Args:
        key: the mechanism that makes it.
        blocks: arrays in the order in which they lie in the flat vector.
        monotone: whether a record only ever adds.
    """

    key: str
    blocks: tuple[SketchBlock, ...]
    monotone: bool = False

    @property
    def identifier(self) -> str:
        """The canonical rendering; blocks are rendered field by field."""
        blocks = tuple((b.name, b.shape, b.l1, b.l2_squared, b.linf, b.weight) for b in self.blocks)
        return f"opendp_sim/1::Sketch{{{canonical_text((self.key, self.monotone, blocks))}}}"

    @property
    def size(self) -> int:
        """Number of cells of all blocks."""
        return sum(block.size for block in self.blocks)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each named array."""
        return {block.name: block.shape for block in self.blocks}

    @property
    def sensitivity(self) -> Sensitivity:
        """The sensitivity to one record."""
        return sensitivity_of(self.blocks, monotone=self.monotone)

    @property
    def weights(self) -> tuple[tuple[int, int], ...]:
        """Runs of (cells, weight), or empty when all weights are 1."""
        runs = tuple((block.size, block.weight) for block in self.blocks)
        return () if all(weight == 1 for _, weight in runs) else runs

    def metric(self, norm: Norm) -> VectorNorm:
        """Return the output metric for one norm."""
        return VectorNorm(norm, self.weights, monotone=norm == "linf" and self.monotone)

    def check(self, data: Any) -> None:
        """Refuse anything that is not a flat integer vector of this size."""
        IntVector(self.size).check(data)

    def native(self) -> dp.Domain:
        """Return OpenDP's own vector domain, so that native noise chains."""
        return IntVector(self.size).native()

    def split(self, flat: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Cut a flat vector into its named blocks (views where possible)."""
        out, start = {}, 0
        for block in self.blocks:
            out[block.name] = np.asarray(flat[start : start + block.size]).reshape(block.shape)
            start += block.size
        return out


def _read(domain: dp.Domain) -> Domain | None:
    if not isinstance(domain, dp.VectorDomain):
        return None
    size = domain.size
    return IntVector(size) if domain == _native(size) else None


FOREIGN_DOMAINS.append(_read)
