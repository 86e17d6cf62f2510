"""Sign hashes: which records are looked at is a function of the record, so candidates are free.

Hyperplanes have small integer entries, so the sign of a product is exact and a record's codes do
not depend on other records. Codes are compared column by column; there is no index to rebuild.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.mechanism import Option, param
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.row_products import exact_products

__all__ = ["SEARCHES", "Exact", "Search", "SignHashes", "Tables", "chosen"]

_ENTRY = 32.0
"""Deviation of a hyperplane's integer entries; directions are within 1 % of Gaussian ones."""
_BITS = range(4, 17)
_TABLES = 256


class Search(Option):
    """How the records near a query are found."""


class Exact(Search):
    """Every record is compared."""

    key: ClassVar[str] = "exact"


class SignHashes(Search):
    """Only records that share all bits of some table with the query are compared."""

    key: ClassVar[str] = "sign_hashes"
    recall: Annotated[
        float,
        param(
            "Probability that a record exactly at the threshold is found (nearer ones: higher).",
            symbol="r", unit="probability", default=0.9, gt=0.0, lt=1.0,
            hint="0.9 is usual; tables and bits follow from it and from the threshold.",
        ),
    ] = 0.9  # fmt: skip
    tables: Annotated[
        int | None,
        param(
            "Hash tables; nothing to choose them for `recall`.", symbol="L", unit="tables",
            default=None, ge=1, le=_TABLES, hint="leave it out unless you measured.",
        ),
    ] = None  # fmt: skip
    bits: Annotated[
        int | None,
        param(
            "Sign bits a table.", symbol="b", unit="bits", default=None, ge=1, le=16,
            hint="leave it out unless you measured.",
        ),
    ] = None  # fmt: skip
    seed: Annotated[
        int,
        param(
            "Seed of the public hyperplanes.", symbol="s", unit="none", default=0, ge=0, lt=2**63,
            hint="any integer in [0, 2**63).",
        ),
    ] = 0  # fmt: skip


SEARCHES = (Exact, SignHashes)


@dataclass(frozen=True)
class Tables:
    """Drawn hyperplanes: ``tables`` x ``bits`` of them, shape (tables * bits, d)."""

    tables: int
    bits: int
    planes: NDArray[np.float32]

    @classmethod
    def draw(cls, seed: int, tables: int, bits: int, width: int) -> Tables:
        """Draw integer hyperplanes whose products with normalised rows are exact in float32."""
        generator = public_generator(seed, "ind_knn", "planes")
        planes = np.rint(_ENTRY * generator.standard_normal((tables * bits, width)).clip(-8, 8))
        return cls(tables, bits, planes.astype(np.float32))

    @staticmethod
    def longest(width: int) -> float:
        """Bound the L2 norm of a hyperplane: entries are cut at 8 deviations."""
        return 8 * _ENTRY * math.sqrt(width)

    def codes(self, seen: NDArray[Any]) -> NDArray[np.uint16]:
        """Return the codes of seen rows, shape (tables, n)."""
        out = np.empty((self.tables, len(seen)), dtype=np.uint16)
        step = max(1, 2**22 // len(self.planes))
        for start in range(0, len(seen), step):
            part = slice(start, min(start + step, len(seen)))
            signs = exact_products(self.planes, seen[part]) >= 0.0
            bits = signs.reshape(self.tables, self.bits, -1).astype(np.uint16)
            for place in range(1, self.bits):
                bits[:, 0] |= bits[:, place] << place
            out[:, part] = bits[:, 0]
        return out

    def recall(self, cosine: float) -> float:
        """Return the probability that a row at this cosine is found."""
        return _found(_agree(cosine), self.tables, self.bits)


def _agree(cosine: float) -> float:
    """Return the probability that one sign bit agrees."""
    return 1.0 - math.acos(min(1.0, max(-1.0, cosine))) / math.pi


def _found(agree: float, tables: int, bits: int) -> float:
    return -math.expm1(tables * math.log1p(-min(agree**bits, 1 - 1e-12)))


def chosen(search: SignHashes, cosine: float, width: int) -> tuple[int, int] | None:
    """Return the cheapest (tables, bits) that keep ``recall`` at ``cosine``; None if exact is cheaper.

    Costs for a lone query, measured, in time per record: 20 units a column to stream all rows from
    memory, 3 a table to compare codes, 40 a column for each row gathered that collides by chance.
    """
    if search.tables is not None and search.bits is not None:
        return search.tables, search.bits
    agree = _agree(cosine)
    best, cost = None, 20.0 * width
    for bits in _BITS if search.bits is None else (search.bits,):
        tables = search.tables or math.ceil(
            math.log1p(-search.recall) / math.log1p(-min(agree**bits, 1 - 1e-12))
        )
        if tables > _TABLES:
            continue
        chance = _found(0.5, tables, bits)
        here = 3.0 * tables + 40.0 * width * chance
        if here < cost or search.bits is not None or search.tables is not None:
            best, cost = (tables, bits), here
    return best
