"""Metrics: symmetric distance, the same by person, and the norms, plain or weighted by block."""

from __future__ import annotations

from dataclasses import dataclass

import opendp.prelude as dp

from opendp_sim.core.space import FOREIGN_METRICS, Metric

__all__ = ["IdDistance", "Symmetric", "VectorNorm"]


@dataclass(frozen=True)
class Symmetric(Metric):
    """Number of records added or removed. Replacing one record is distance 2."""

    def native(self) -> dp.Metric:
        """Return OpenDP's ``symmetric_distance()``."""
        return dp.symmetric_distance()


@dataclass(frozen=True)
class IdDistance(Metric):
    """Number of persons added or removed, each with all of their records.

    A person whose records changed was removed and added: distance 2. The analogue of OpenDP's
    ``symmetric_id_distance`` for datasets that are not data frames.
    """

    identifier_column: str


@dataclass(frozen=True)
class VectorNorm(Metric):
    """L1, L2 or L∞ distance between integer vectors, each run of cells divided by its weight.

    Args:
        norm: ``"l1"``, ``"l2"`` or ``"linf"``.
        weights: runs of ``(cells, weight)``; empty when every weight is 1.
        monotone: for L∞, whether all differences have one sign.
        touched: for L∞, the most cells that one step moves; None for no bound. OpenDP's own metric
            knows no such bound, so a bounded one chains with nothing that does not state it too.
    """

    norm: str
    weights: tuple[tuple[int, int], ...] = ()
    monotone: bool = False
    touched: int | None = None

    def native(self) -> dp.Metric | None:
        """Return OpenDP's metric when no cell is weighted and no bound on cells is stated."""
        if self.weights or self.touched is not None:
            return None
        if self.norm == "l1":
            return dp.l1_distance(T="i64")
        if self.norm == "l2":
            return dp.l2_distance(T=float)
        return dp.linf_distance(T="i64", monotonic=self.monotone)


def _read(metric: dp.Metric) -> Metric | None:
    if metric == dp.symmetric_distance():
        return Symmetric()
    found = (
        VectorNorm("l1"),
        VectorNorm("l2"),
        VectorNorm("linf"),
        VectorNorm("linf", monotone=True),
    )
    return next((norm for norm in found if norm.native() == metric), None)


FOREIGN_METRICS.append(_read)
