"""Define metrics on datasets and on vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from opendp_sim.core import dp
from opendp_sim.core.claims import norm_of
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.space import CAST_METRICS, FOREIGN_METRICS, Metric, MetricCast


@dataclass(frozen=True)
class Symmetric(Metric):
    """Number of records added or removed. Replacing one record is distance 2."""

    def native(self) -> dp.Metric:
        """Return OpenDP's ``symmetric_distance()``."""
        return _symmetric()


@dataclass(frozen=True)
class IdDistance(Metric):
    """Number of persons added or removed, each with all of their records.

    A person whose records changed was removed and added: distance 2. The analogue of OpenDP's
    ``symmetric_id_distance`` for datasets that are not data frames.
    """

    identifier_column: str


@dataclass(frozen=True)
class VectorNorm(Metric):
    """Measure L1, L2 or L∞ distance between integer vectors.

    Each run of cells is divided by its weight.

    Args:
        norm: ``"l1"``, ``"l2"`` or ``"linf"``.
        weights: runs of ``(cells, weight)``; empty when every weight is 1.
        monotone: for L∞, whether all differences have one sign, else the distance is infinite.
        steps: for L∞, instead: the fewest steps, added up by size, that lead from one vector to the
            other when each step moves cells up only, or down only. That is D(rises) + D(falls), where
            D(r) is the largest of r, or max(max r, ceil(sum r / touched)) with a bound on cells.
            Adding one user and removing another is distance 2 here, and infinite in OpenDP's
            monotone distance, so OpenDP has no equal metric.
        touched: for L∞ without weights, the most cells that one step moves, from 1 on; None for no
            bound. OpenDP's own metric knows no such bound, so a bounded one chains with nothing that
            does not state it too.

    Raises:
        ParameterError: OS102, a norm, weight, sign rule or bound that makes no metric.
    """

    norm: str
    weights: tuple[tuple[int, int], ...] = ()
    monotone: bool = False
    steps: bool = False
    touched: int | None = None

    def __post_init__(self) -> None:
        """Refuse an invalid metric."""
        norm_of(self.norm)
        signs = self.monotone, self.steps
        numbers = [n for run in self.weights for n in run]
        numbers += [] if self.touched is None else [self.touched]
        wrong = {
            "whole numbers from 1 on for weights and `touched`": any(
                type(n) is not int or n < 1 for n in numbers
            ),
            "weights as runs of (cells, weight)": any(len(run) != 2 for run in self.weights),
            "a bool for `monotone` and `steps`, and one of them at most": (
                set(map(type, signs)) != {bool} or all(signs)
            ),
            "`monotone` and `steps` for linf": any(signs) and self.norm != "linf",
            "`touched` beside `monotone` or `steps`": self.touched is not None and not any(signs),
            "no weights beside `steps` or `touched`": bool(
                self.weights and (self.steps or self.touched is not None)
            ),
        }
        for expected, broken in wrong.items():
            if broken:
                raise ParameterError(
                    "OS102", "metric", expected=expected, got="another metric",
                    hint='write VectorNorm("l2"), or VectorNorm("linf", steps=True, touched=3).',
                )  # fmt: skip

    def need_bound(self, d_in: int, where: str) -> None:
        """Refuse the infinite distance of added and removed records (OS206)."""
        if self.norm == "linf" and self.monotone and d_in > 1:
            raise SpaceError(
                "OS206", where, expected="an input distance of 1 before a monotone distance", got=d_in,
                hint="one record added and one removed move cells both ways, and OpenDP's monotone "
                "distance is then infinite. Ask at distance 1, or count with `vote_counts`, whose "
                "distance counts users.",
            )  # fmt: skip

    def native(self) -> dp.Metric | None:
        """Return OpenDP's metric if there is an equal one."""
        if self.weights or self.steps or self.touched is not None:
            return None
        return _native(self.norm, self.monotone)


@cache
def _symmetric() -> dp.Metric:
    return dp.symmetric_distance()


@cache
def _native(norm: str, monotone: bool) -> dp.Metric:
    if norm == "l1":
        return dp.l1_distance(T="i64")
    if norm == "l2":
        return dp.l2_distance(T=float)
    return dp.linf_distance(T="i64", monotonic=monotone)


def _read(metric: dp.Metric) -> Metric | None:
    if metric == _symmetric():
        return Symmetric()
    found = (
        VectorNorm("l1"),
        VectorNorm("l2"),
        VectorNorm("linf"),
        VectorNorm("linf", monotone=True),
    )
    return next((norm for norm in found if norm.native() == metric), None)


FOREIGN_METRICS.append(_read)


def _bound(metric: dp.Metric) -> MetricCast | None:
    """Return symmetric distance bounded by another metric (``casts.md``, Lemma 1)."""
    if metric in (dp.change_one_distance(), dp.hamming_distance()):
        return MetricCast(Symmetric(), lambda d_in: 2 * int(d_in))
    if metric == dp.insert_delete_distance():
        return MetricCast(Symmetric(), int)
    if isinstance(metric, dp.FrameDistance):
        inner = metric.inner_metric
        rows = MetricCast(Symmetric(), int) if inner == _symmetric() else _bound(inner)
        return rows and MetricCast(rows.metric, lambda d_in: rows.distance(_rows_of(d_in)))
    return None


def _bounds_of(d_in: Any) -> Sequence[Any]:
    return d_in if isinstance(d_in, list | tuple) else (d_in,)


def _rows_of(bounds: Any) -> int:
    """Return the rows by which frames differ (``casts.md``, Lemma 2)."""
    whole = [b.per_group for b in _bounds_of(bounds) if not b.by and b.per_group is not None]
    if not whole:
        raise SpaceError(
            "OS202", "cast.map", expected="a bound on the rows of a unit", got="bounds by group only",
            hint="give `unit_of(contributions=k)`, or `truncate_per_group(k)` for an identifier.",
        )  # fmt: skip
    return int(min(whole))


CAST_METRICS.append(_bound)


def unit_of_distance(metric: dp.Metric, d_in: Any) -> dict[str, Any] | None:
    """Return the unit that a distance between datasets protects."""
    if metric in (dp.change_one_distance(), dp.hamming_distance()):
        return {"replace": int(d_in), "of": "row"}
    if metric in (_symmetric(), dp.insert_delete_distance()):
        return {"add_remove": int(d_in), "of": "row"}
    own = getattr(metric, "descriptor", None)
    if isinstance(own, IdDistance):
        return {"add_remove": int(d_in), "of": own.identifier_column}
    if isinstance(metric, dp.FrameDistance):
        bounds = _bounds_of(d_in)  # others make fewer datasets neighbours than so many rows do
        whole = [b.per_group for b in bounds if not b.by and b.num_groups is None]
        known = len(whole) == len(bounds) == 1 and whole[0] is not None
        return unit_of_distance(metric.inner_metric, whole[0]) if known else None
    if isinstance(metric, dp.SymmetricIdDistance):
        return {"add_remove": int(d_in), "of": metric.identifier.meta.output_name()}
    return None
