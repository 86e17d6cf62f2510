"""Hold the voting records, rows, labels and owners, in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.row_products import exact_products, squared_norms
from opendp_sim.core.device.device import Device
from opendp_sim.measurements.knn._impl.features import Lens
from opendp_sim.measurements.knn._impl.resident import ResidentRows
from opendp_sim.measurements.knn._impl.sign_hashes import Coder

_PRODUCTS = 2**25
"""Products that are in memory at a time: a batch of 256 queries with up to 131,072 records."""
_GATHERED = 256
"""Rows that are gathered at a time, into memory that is used again for every query."""


class Pool:
    """Rows of one dataset under one lens. As secret as the dataset.

    Args:
        lens: how rows are seen.
        dtype: the float in which their products are exact.
        coder: sign hashes, or None.
        device: where a copy of the rows is compared with queries; None for the CPU.
    """

    def __init__(
        self,
        lens: Lens,
        dtype: type[np.floating[Any]],
        coder: Coder | None,
        device: Device | None = None,
    ) -> None:
        self.lens, self.dtype, self.coder = lens, dtype, coder
        self._resident: ResidentRows | None = None
        if device is not None and coder is None:
            self._resident = ResidentRows(device, dtype, lens.largest)
        width = lens.domain.width
        self._rows = np.empty((0, width), dtype=dtype)
        self._norms = np.empty(0, dtype=np.int64)
        self._least_norm = 0
        self._codes = (
            np.empty((0, 0), dtype=np.uint16)
            if coder is None
            else np.empty((coder.rows, 0), dtype=coder.dtype)
        )
        self._gathered = np.empty((_GATHERED, width), dtype=dtype)
        self.labels = np.empty(0, dtype=np.int64)
        self.owners = np.empty(0, dtype=np.int64)
        self.alive = np.empty(0, dtype=np.bool_)
        self.size = 0
        self.one_each = True
        """Whether no purse has more than one living record."""

    def __repr__(self) -> str:
        """Nothing that depends on data."""
        return "Pool(secret)"

    def add(self, values: NDArray[Any], labels: NDArray[Any], owners: NDArray[np.int64]) -> None:
        """Append records (grid rows); no other record is touched."""
        start, stop = self.size, self.size + len(values)
        self._reserve(stop)
        rows = self._rows[start:stop]
        rows[:] = self.lens.see(values, self.dtype)
        self._norms[start:stop] = squared_norms(rows).astype(np.int64)
        if stop > start:
            least = int(self._norms[start:stop].min())
            self._least_norm = min(self._least_norm, least) if start else least
        if self.coder is not None:
            self._codes[:, start:stop] = self.coder.codes(rows)
        if self._resident is not None:
            try:
                self._resident.extend(rows)
            except Exception:  # noqa: BLE001 - no room, or a failure: the CPU has the rows
                self._resident = None
        self.labels[start:stop], self.owners[start:stop] = labels, owners
        self.alive[start:stop] = True
        self.size = stop
        living = self.owners[:start][self.alive[:start]]
        alone = np.bincount(owners).max(initial=0) <= 1 and not np.isin(living, owners).any()
        self.one_each = self.one_each and bool(alone)

    def remove(self, owners: NDArray[np.int64]) -> None:
        """Remove every record of some owners."""
        self.alive[: self.size] &= ~np.isin(self.owners[: self.size], owners)

    def _reserve(self, wanted: int) -> None:
        """Grow the arrays by at least an eighth when they are full."""
        if wanted <= len(self._rows):
            return
        room = wanted if not self.size else max(wanted, self.size + self.size // 8 + 64)
        for name in ("_rows", "_norms", "labels", "owners", "alive"):
            old = getattr(self, name)
            new = np.zeros((room, *old.shape[1:]), dtype=old.dtype)
            new[: self.size] = old[: self.size]
            setattr(self, name, new)
        codes = np.zeros((len(self._codes), room), dtype=self._codes.dtype)
        codes[:, : self.size] = self._codes[:, : self.size]
        self._codes = codes

    @property
    def seen_rows(self) -> NDArray[Any]:
        """The seen rows, shape (n, d). Secret."""
        return self._rows[: self.size]

    # --- scores: exact integers -----------------------------------------------------------------

    def products(self, queries: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Yield each query's exact products with all rows, shape (n,)."""
        step = max(1, _PRODUCTS // max(1, self.size))
        for start in range(0, len(queries), step):
            yield from exact_products(queries[start : start + step], self._rows[: self.size])

    def near(
        self,
        queries: NDArray[Any],
        query_norms: NDArray[np.int64],
        thresholds: NDArray[np.int64],
        *,
        angular: bool,
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int64]]]:
        """Yield living records with scores from each query's threshold on."""
        limits = list(zip(query_norms.tolist(), thresholds.tolist(), strict=True))
        found = None
        if self._resident is not None and self._resident.size == self.size:
            least = [self._least_product(*limit, angular=angular) for limit in limits]
            found = self._resident.near(self._rows[: self.size], queries, np.array(least))
        if found is not None:
            for near, limit in zip(found, limits, strict=True):
                yield self._scored(*near, *limit, angular=angular)
            return
        for products, limit in zip(self.products(queries), limits, strict=True):
            yield self.nearby(products, *limit, angular=angular)

    def nearby(
        self, products: NDArray[Any], query_norm: int, threshold: int, *, angular: bool
    ) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Return the living records with score at least ``threshold``, and their scores."""
        least = self._least_product(query_norm, threshold, angular=angular)
        near = np.flatnonzero(products >= self.dtype(least))
        return self._scored(near, products[near], query_norm, threshold, angular=angular)

    def _least_product(self, query_norm: int, threshold: int, *, angular: bool) -> float:
        """Return the least product with which a score can reach a threshold."""
        most = 2**53 if self.dtype is np.float64 else 2**24
        # 2 p - norm reaches the threshold for no product below this, whatever the record's norm.
        least = threshold if angular else -(-(threshold + query_norm + self._least_norm) // 2)
        return float(min(max(least, -most), most))

    def _scored(
        self,
        near: NDArray[np.intp],
        products: NDArray[Any],
        query_norm: int,
        threshold: int,
        *,
        angular: bool,
    ) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Return the living of some records, with scores from the threshold on."""
        score = products.astype(np.int64)
        if not angular:
            score = 2 * score - self._norms[near] - query_norm
        keep = self.alive[near] & (score >= threshold)
        return near[keep], score[keep]

    def closeness(self, products: NDArray[Any], which: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return some records' scores, which fall with distance."""
        return 2 * products[which].astype(np.int64) - self._norms[which]

    def alike(self, codes: NDArray[Any], cosine: float) -> NDArray[np.bool_]:
        """Return which records' codes are like a query's, for a threshold's cosine."""
        if self.coder is None:
            return self.alive[: self.size]
        return self.coder.alike(self._codes[:, : self.size], codes, cosine)

    def _products_of(self, query: NDArray[Any], which: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return one query's exact products with some rows."""
        out = np.empty(len(which), dtype=np.int64)
        for start in range(0, len(which), _GATHERED):
            part = slice(start, min(start + _GATHERED, len(which)))
            rows = self._gathered[: part.stop - start]
            np.take(self._rows, which[part], axis=0, out=rows, mode="clip")
            out[part] = exact_products(query[None], rows)[0]
        return out

    def nearby_hashed(
        self,
        query: NDArray[Any],
        alike: NDArray[np.bool_],
        query_norm: int,
        threshold: int,
        *,
        angular: bool,
    ) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Return the same among the records whose codes are alike, shape (n,)."""
        found = np.flatnonzero(alike & self.alive[: self.size])
        product = self._products_of(query, found)
        score = product if angular else 2 * product - self._norms[found] - query_norm
        keep = score >= threshold
        return found[keep], score[keep]
