"""Broken twins of the hybrid: the real code, in which one of its two parts does one thing wrong.

Each is looked at along one fixed transcript: wherever noise would be added, what the data brings is
noted in deviations of that noise, and the same public numbers are handed on whatever the data is.
The noise is Gaussian throughout, so that over every transcript the notes of neighbours may differ by
no more than the root of twice the claimed loss, exactly; sums without noise are noted at ``EXACT``.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import opendp.prelude as dp

from opendp_sim.audit import Subject
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.knn._impl import class_means as _knn_means, predictor as _knn_predictor
from opendp_sim.measurements.knn._impl.class_means import ClassMeans
from opendp_sim.measurements.knn._impl.privacy_filter import IndividualFilter
from opendp_sim.measurements.knn._impl.vote_noise import Stock
from opendp_sim.measurements.knn.hybrid_knn import Hybrid, HybridKnn
from opendp_sim.measurements.knn.ind_knn import IndKnn
from tests.audit.twins.entries import Control, Twin
from tests.audit.twins.faults import named

dp.enable_features("contrib")
GRID = GridRows(width=2, labels=(0, 1), lower=(-9,), upper=(9,))
RHO = 1.0
EXACT = 2.0**-20
"""The deviation that stands for no noise at all."""
SETTING = HybridKnn(rho=RHO, queries=4, size=2)
QUERIES = np.array([[9.0, 0.0], [0.0, 9.0]])
REFERENCE = np.array([[9.0, 0], [-9, 0], [0, 9], [0, -9], [9, 9], [-9, -9], [9, -9], [-9, 9]])
"""Public queries of mean zero, so that rows are seen as they are."""
MEANS = np.array([2000, -5000, 1800, 1500, 4000, 2400])
"""The released cells of the means, in the transcript looked at: unsure of the first query, sure of the other."""
COUNTS = (1, 3, -2, 7)


def rows(*records: tuple[int, int, int]) -> Rows:
    table = np.array(records, dtype=np.int64).reshape(-1, 3)
    return Rows(table[:, :2].astype(np.float64), table[:, 2])


def pairs() -> list[tuple[Rows, Rows]]:
    crowd = ((9, 0, 1), (9, 1, 0), (0, 9, 0), (-9, 0, 1), (5, 5, 0))
    out = [(rows(*crowd[:i], *crowd[i + 1 :]), rows(*crowd)) for i in range(len(crowd))]
    out += [(rows(), rows(one)) for one in crowd]
    return [pair for less, more in out for pair in ((more, less), (less, more))]


class Looked:
    """A hybrid along one transcript; subclasses break it."""

    rounds = 4
    cut: float | None = math.inf
    """What counts as unsure: everything, or (None) what the released means say."""
    purse = RHO / 2

    def __call__(self, data: Rows) -> Any:
        self.notes: list[Any] = []
        self.answers = 0
        with ExitStack() as patches:
            for patched in self.patches():
                patches.enter_context(patched)
            service = Hybrid(SETTING, GRID, data)
            service.refer(REFERENCE)
            service._cut = service._cut if self.cut is None else self.cut
            for number in range(self.rounds):
                self.before(service)
                found = service.predict(QUERIES[number % 2 : number % 2 + 1])
                self.note(found.deviations > 0, EXACT)  # who was asked is seen by everybody
                if not found.deviations[0]:
                    self.note(np.zeros(3), 1.0)
        return np.concatenate(self.notes)

    def note(self, cells: Any, scale: float) -> None:
        self.notes.append(np.asarray(cells, dtype=np.float64) / scale)

    def patches(self) -> list[Any]:
        neighbours = IndKnn(
            rho=self.purse,
            queries=4,
            size=2,
            threshold=0.5,
            levels=4,
            count_scale=1.5,
            vote_scale=0.5,
            minimum_count=1,
        )
        return [
            patch.object(HybridKnn, "neighbours_setting", property(lambda _: neighbours)),
            patch.object(_knn_means, "add_rounded_gaussian", self.of_means),
            patch.object(Stock, "noisy", lambda _, cells, scale: self.of_neighbours(cells, scale)),
        ]

    def of_means(self, cells: Any, scale: float) -> Any:
        self.note(cells, scale)
        return MEANS

    def of_neighbours(self, cells: Any, scale: float) -> Any:
        self.note(cells, scale)
        if len(cells) > 1:
            return np.array([2, -1])
        self.answers += 1
        return np.array([COUNTS[self.answers % len(COUNTS)]])

    def before(self, service: Hybrid) -> None:
        """Happens before each query."""


# --- each breaks one thing ------------------------------------------------------------------------


class MeansAtHalfScale(Looked):
    def of_means(self, cells: Any, scale: float) -> Any:
        return super().of_means(cells, scale / 2)


class WholeBudgetTwice(Looked):
    purse = RHO

    def patches(self) -> list[Any]:
        whole = property(lambda self: self.rho)
        return [*super().patches(), patch.object(HybridKnn, "means_rho", whole)]


class UnsureByTheData(Looked):
    """Who is asked follows from means without noise, which nobody released."""

    def before(self, service: Hybrid) -> None:
        pool = service._inner._pool
        labels = pool.labels[: pool.size]
        with patch.object(_knn_means, "add_rounded_gaussian", lambda cells, _: cells):
            exact = ClassMeans.release(pool.lens, pool.seen_rows, labels, 2, SETTING.means_rho)
        _, gaps = exact.leaders(exact.scores(service._see(QUERIES[:1])))
        service._cut = math.inf if gaps[0] > 0.01 else -math.inf


class Refilled(Looked):
    def before(self, service: Hybrid) -> None:
        inner = service._inner
        inner._purses = IndividualFilter(self.purse, len(inner._purses_now()))


class Trusting(IndividualFilter):
    """Lets an answer out in full and then charges what is left."""

    def affordable(self, who: Any, price: int) -> Any:
        return np.full(len(who), 2**20, dtype=np.int64) * (self._purses[who] > 0)

    def charge(self, who: Any, distances: Any, price: int) -> Any:
        wanted = distances.astype(object) ** 2 * price
        units = np.minimum(self._purses[who], wanted).astype(np.int64)
        self._purses[who] -= units
        return units


class AnsweredBeforeItsCharge(Looked):
    def patches(self) -> list[Any]:
        return [*super().patches(), patch.object(_knn_predictor, "IndividualFilter", Trusting)]


class MeansDrawnAgain(Looked):
    """As with a store that forgot them: every query releases the means again."""

    def before(self, service: Hybrid) -> None:
        service._means = None
        service._set_out()
        service._cut = math.inf


class OneNoise(Looked):
    """Votes share one draw of noise: all but the first show what changed, exactly."""

    def __call__(self, data: Rows) -> Any:
        self.first: Any = None
        return super().__call__(data)

    def of_neighbours(self, cells: Any, scale: float) -> Any:
        if len(cells) > 1 and self.first is not None:
            cells, scale = cells - self.first, EXACT
        elif len(cells) > 1:
            self.first = cells
        return super().of_neighbours(cells, scale)


class AsReleased(Looked):
    """Sound: the released means decide who is asked."""

    cut = None


def subject(run: Looked) -> Subject:
    return Subject(
        run=run,
        stability_map=lambda d: math.sqrt(2 * RHO) * d * (1 + 1e-9),
        output_metric=dp.l2_distance(T=float),
        name="hybrid_knn",
    )


_OPTIONS = {"pairs": pairs()}


def _twin(label: str, run: type[Looked]) -> Twin:
    make = lambda: subject(run())  # noqa: E731
    return Twin(**named(f"hybrid_knn/{label}"), make=make, options=_OPTIONS)


TWINS = [
    _twin("means_at_half_scale: noise of the means is half of what is charged", MeansAtHalfScale),
    _twin(
        "whole_budget_twice: means and neighbours are both given the whole budget", WholeBudgetTwice
    ),
    _twin(
        "unsure_by_the_data: who is asked follows from the data, not from what was released",
        UnsureByTheData,
    ),
    _twin("refilled: the neighbours start every query with full purses", Refilled),
    _twin(
        "answered_before_its_charge: votes leave in full, then what is left is charged",
        AnsweredBeforeItsCharge,
    ),
    _twin(
        "means_drawn_again: means are released again for every query, at one price", MeansDrawnAgain
    ),
    _twin("one_noise: noise of the votes is drawn once and kept", OneNoise),
]
CONTROLS = [
    Control(name="hybrid_knn/sound", make=lambda: subject(Looked()), options=_OPTIONS),
    Control(
        name="hybrid_knn/sound_as_released", make=lambda: subject(AsReleased()), options=_OPTIONS
    ),
]
