"""Hash signs to select records to compare.

Selection is a function of the record, so candidates are free. Hyperplanes have small integer entries,
so the sign of a product is exact and a record's codes do not depend on other records. Codes are
compared column by column; there is no index to rebuild.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.row_products import exact_dtype, exact_products, squared_norms
from opendp_sim.core.mechanism import Option, param
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.system.lazy_import import special
from opendp_sim.measurements.knn._impl.features import normalised_norm

_ENTRY = 32.0
"""Deviation of a hyperplane's integer entries; directions are within 1 % of Gaussian ones."""
_BITS = range(4, 17)
_TABLES = 256
_RAREST = 1e-12
"""Probability of sharing a table below which no number of tables helps: opposite thresholds."""


class NeighbourSearch(Option):
    """How the records near a query are found."""


class ExactSearch(NeighbourSearch):
    """Every record is compared."""

    key: ClassVar[str] = "exact"


class SignHashes(NeighbourSearch):
    """Compare only records that share a table's bits with the query."""

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
    seed: Seed = 0


class SignCodes(NeighbourSearch):
    """Compare only records with codes near the query's."""

    key: ClassVar[str] = "sign_codes"
    recall: Annotated[
        float,
        param(
            "Probability that a record exactly at the threshold is found (nearer ones: higher).",
            symbol="r", unit="probability", default=0.9, gt=0.0, lt=1.0,
            hint="0.9 is usual; how many bits may differ follows, query by query.",
        ),
    ] = 0.9  # fmt: skip
    words: Annotated[
        int,
        param(
            "Words of 64 sign bits in a code.", symbol="w", unit="words", default=4, ge=1, le=64,
            hint="4 is usual; more where thresholds are at cosines below 0.3.",
        ),
    ] = 4  # fmt: skip
    seed: Seed = 0


SEARCHES = (ExactSearch, SignHashes, SignCodes)


class Coder(Protocol):
    """Code rows by public parameters, and compare codes with a query's."""

    dtype: ClassVar[type[np.unsignedinteger[Any]]]

    @property
    def rows(self) -> int:
        """Entries of a code."""
        ...

    def codes(self, seen: NDArray[Any]) -> NDArray[Any]:
        """Return the codes of seen rows, shape (rows, n)."""
        ...

    def alike(self, codes: NDArray[Any], query: NDArray[Any], cosine: float) -> NDArray[np.bool_]:
        """Return which codes (rows, n) resemble the query's (rows,)."""
        ...

    def recall(self, cosine: float) -> float:
        """Return the probability to find a row at this cosine."""
        ...


def _planes(seed: int, count: int, width: int) -> NDArray[Any]:
    """Draw integer hyperplanes in a float with exact products."""
    generator = public_generator(seed, "ind_knn", "planes")
    planes = np.rint(_ENTRY * generator.standard_normal((count, width)).clip(-8, 8))
    longest = math.sqrt(squared_norms(planes).max())
    return planes.astype(exact_dtype(longest, normalised_norm(width), "ind_knn"))


def longest_plane(width: int) -> float:
    """Bound the L2 norm of a hyperplane cut at 8 deviations."""
    return 8 * _ENTRY * math.sqrt(width)


def _signs(planes: NDArray[Any], seen: NDArray[Any]) -> Iterator[tuple[slice, Any]]:
    """Yield parts of the rows with sides of planes, (planes, part)."""
    step = max(1, 2**22 // len(planes))
    for start in range(0, len(seen), step):
        part = slice(start, min(start + step, len(seen)))
        yield part, exact_products(planes, seen[part]) >= 0.0


@dataclass(frozen=True)
class PackedSigns:
    """Hold row codes of ``rows`` words of 64 bits, compared bitwise."""

    rows: int
    wanted: float
    planes: NDArray[Any]
    dtype: ClassVar[type[np.unsignedinteger[Any]]] = np.uint64

    @classmethod
    def draw(cls, search: SignCodes, width: int) -> PackedSigns:
        """Draw the hyperplanes of ``search.seed``."""
        return cls(search.words, search.recall, _planes(search.seed, 64 * search.words, width))

    def codes(self, seen: NDArray[Any]) -> NDArray[np.uint64]:
        """Return the codes of seen rows, shape (rows, n)."""
        out = np.empty((self.rows, len(seen)), dtype=np.uint64)
        for part, signs in _signs(self.planes, seen):
            packed = np.packbits(signs, axis=0, bitorder="little")
            out[:, part] = np.ascontiguousarray(packed.T).view(np.uint64).T
        return out

    @cached_property
    def _reaches(self) -> NDArray[np.float64]:
        """The largest share of differing bits for which each radius suffices, ascending."""
        bits = 64 * self.rows
        radius = np.arange(bits)
        reaches: NDArray[np.float64] = 1.0 - special.betaincinv(
            bits - radius, radius + 1, self.wanted
        )
        return reaches

    def radius(self, cosine: float) -> int:
        """Return the most differing bits for this cosine."""
        return int(np.searchsorted(self._reaches, 1.0 - _agree(cosine)))

    def alike(self, codes: NDArray[Any], query: NDArray[Any], cosine: float) -> NDArray[np.bool_]:
        """Return which codes differ from the query's in at most ``radius`` bits."""
        apart = np.bitwise_count(codes[0] ^ query[0]).astype(np.uint16)
        for word in range(1, self.rows):
            apart += np.bitwise_count(codes[word] ^ query[word])
        near: NDArray[np.bool_] = apart <= self.radius(cosine)
        return near

    def recall(self, cosine: float) -> float:
        """Return the probability that a row at this cosine is found."""
        bits, radius = 64 * self.rows, self.radius(cosine)
        if radius >= bits:
            return 1.0
        # The binomial distribution function of the bits that differ, as an incomplete beta function.
        agree = 1.0 - (1.0 - _agree(cosine))
        return float(special.betainc(bits - radius, radius + 1, agree))


@dataclass(frozen=True)
class HashTables:
    """Hold ``rows`` tables of ``bits`` hyperplanes, of which one must agree."""

    rows: int
    bits: int
    planes: NDArray[Any]
    dtype: ClassVar[type[np.unsignedinteger[Any]]] = np.uint16

    @classmethod
    def draw(cls, seed: int, tables: int, bits: int, width: int) -> HashTables:
        """Draw the hyperplanes of a seed."""
        return cls(tables, bits, _planes(seed, tables * bits, width))

    def codes(self, seen: NDArray[Any]) -> NDArray[np.uint16]:
        """Return the codes of seen rows, shape (rows, n)."""
        out = np.empty((self.rows, len(seen)), dtype=np.uint16)
        for part, signs in _signs(self.planes, seen):
            bits = signs.reshape(self.rows, self.bits, -1).astype(np.uint16)
            for place in range(1, self.bits):
                bits[:, 0] |= bits[:, place] << place
            out[:, part] = bits[:, 0]
        return out

    def alike(self, codes: NDArray[Any], query: NDArray[Any], cosine: float) -> NDArray[np.bool_]:
        """Return which codes share a table's whole value with the query's."""
        del cosine
        shared: NDArray[np.bool_] = (codes == query[:, None]).any(axis=0)
        return shared

    def recall(self, cosine: float) -> float:
        """Return the probability that a row at this cosine is found."""
        return _found(_agree(cosine), self.rows, self.bits)


def _agree(cosine: float) -> float:
    """Return the probability that one sign bit agrees."""
    return 1.0 - math.acos(min(1.0, max(-1.0, cosine))) / math.pi


def _found(agree: float, tables: int, bits: int) -> float:
    return -math.expm1(tables * math.log1p(-min(agree**bits, 1 - 1e-12)))


def chosen(search: SignHashes, cosine: float, width: int) -> tuple[int, int] | None:
    """Return the cheapest (tables, bits) that keep ``recall`` at ``cosine``.

    None if exact search is cheaper. Costs for a lone query, measured, in time per record: 1 unit a
    column to stream all rows from memory, 0.4 a table to compare codes, 3 a column for each row
    gathered that collides by chance.
    """
    if search.tables is not None and search.bits is not None:
        return search.tables, search.bits
    agree = _agree(cosine)
    best, cost = None, 1.0 * width
    for bits in _BITS if search.bits is None else (search.bits,):
        together = min(agree**bits, 1 - 1e-12)
        if search.tables is None and together < _RAREST:
            continue
        tables = search.tables or math.ceil(math.log1p(-search.recall) / math.log1p(-together))
        if tables > _TABLES:
            continue
        chance = _found(0.5, tables, bits)
        here = 0.4 * tables + 3.0 * width * chance
        if here < cost or search.bits is not None or search.tables is not None:
            best, cost = (tables, bits), here
    return best
