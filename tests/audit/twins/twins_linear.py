"""Broken twins of the linear models: the real run, in which one thing is done as on a bad day.

Each is looked at along one fixed transcript: wherever noise would be added, what the data brings is noted
in deviations of that noise, and the same public numbers are handed on whatever the data is. All noise is
Gaussian, so over every transcript the notes of neighbours may differ by no more than the root of twice the
claimed loss, exactly; what leaves without noise is noted at ``EXACT``.
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
from opendp_sim.domains.standard import Standard
from opendp_sim.measurements.linear import linear_regression as _line
from opendp_sim.measurements.linear._impl import descent as _descent
from opendp_sim.measurements.linear._impl.descent import ScaledRecords
from opendp_sim.measurements.linear._impl.scaled import ScaledRows
from opendp_sim.measurements.linear.linear_model import LinearModel
from tests.audit.twins.entries import Control, Twin
from tests.audit.twins.faults import named

dp.enable_features("contrib")
GRID = GridRows(width=2, labels=(0, 1, 2), lower=(-90,), upper=(90,))
RHO = 1.0
EXACT = 2.0**-10


def rows(*records: tuple[int, int, int]) -> Rows:
    table = np.array(records, dtype=np.int64).reshape(-1, 3)
    return Rows(table[:, :2].astype(np.float64), table[:, 2])


def pairs() -> list[tuple[Rows, Rows]]:
    crowd = ((90, 0, 1), (90, 90, 0), (0, -90, 0), (-90, 1, 2), (5, 5, 0), (0, 0, 2))
    out = [(rows(*crowd[:i], *crowd[i + 1 :]), rows(*crowd)) for i in range(len(crowd))]
    out += [(rows(), rows(one)) for one in crowd]
    return [pair for less, more in out for pair in ((more, less), (less, more))]


class Looked:
    """A run along one transcript; subclasses break it."""

    rows = "length"
    whiten = "no"
    rho = RHO
    steps = 4

    def __call__(self, data: Rows) -> Any:
        self.notes: list[Any] = []
        self.calls = 0
        setting = LinearModel(rho=self.rho, steps=self.steps, rows=self.rows, whiten=self.whiten)
        descent = setting.descent(GRID)
        with ExitStack() as patches:
            for patched in self.patches():
                patches.enter_context(patched)
            labels = np.asarray(data.labels)
            seen = ScaledRecords(self.scaled(descent.scaled, data.values), labels)
            self.after(descent.run(seen, self.noise), seen)
        return np.concatenate(self.notes)

    def scaled(self, scaled: ScaledRows, values: Any) -> Any:
        return scaled(values)

    def patches(self) -> list[Any]:
        return []

    def noise(self, cells: Any, scale: float) -> Any:
        self.note(cells, scale)
        self.calls += 1
        # The public transcript: numbers of about the size of the noise, other ones in each step.
        turn = np.arange(cells.size).reshape(cells.shape) + self.calls
        return np.rint(scale * np.cos(1.7 * turn)).astype(np.int64)

    def note(self, cells: Any, scale: float) -> None:
        self.notes.append(np.ravel(np.asarray(cells, dtype=np.float64)) / scale)

    def after(self, released: Any, seen: ScaledRecords) -> None:
        """Happens when the weights are there."""


class ByColumns(Looked):
    rows = "columns"


class Whitened(Looked):
    rows, whiten = "columns", "yes"


# --- each breaks one thing ------------------------------------------------------------------------


class StepsForOne(Looked):
    """Every step has the noise that one step alone would need."""

    def noise(self, cells: Any, scale: float) -> Any:
        return super().noise(cells, scale / math.sqrt(self.steps))


class ResidualsAsLong(Looked):
    """Only the residuals: the scale of the noise reads the same constant."""

    def patches(self) -> list[Any]:
        usual = _descent.residuals

        def longer(*args: Any) -> Any:
            with patch.object(_descent, "CLIP", 3 * 4096):
                return usual(*args)

        return [patch.object(_descent, "residuals", longer)]


class MomentsForFree(Whitened):
    """The whole loss goes to the moments, and again to the gradients."""

    def patches(self) -> list[Any]:
        whole = property(lambda self: _descent.Fraction(self.rho))
        scale = property(
            lambda self: _descent.sqrt_up(
                self.steps * self.gradient_square / (2 * _descent.Fraction(self.rho))
            )
        )
        kind = _descent.Descent
        return [patch.object(kind, "_whitening_rho", whole), patch.object(kind, "scale", scale)]


class MomentsWithoutNoise(Whitened):
    def noise(self, cells: Any, scale: float) -> Any:
        return super().noise(cells, EXACT if self.calls == 0 else scale)


class LossIsTold(Looked):
    """The training accuracy of the released weights is logged."""

    def after(self, released: Any, seen: ScaledRecords) -> None:
        found = np.argmax(seen.rows @ released.reshape(3, 3).astype(np.float64), axis=1)
        self.note([(found == seen.labels).sum()], EXACT)


class StopsEarly(Looked):
    """The number of steps depends on how many records are wrong still."""

    def __call__(self, data: Rows) -> Any:
        wrong = len(data) % 2
        out = super().__call__(data)
        return np.concatenate([out, [wrong / EXACT]])


class MeanGradient(Looked):
    """Divides by the true number of records; the scale is for a sum."""

    def patches(self) -> list[Any]:
        plain = _descent.gradient

        def mean(rows: Any, labels: Any, weights: Any, f: int) -> Any:
            return np.rint(6 * plain(rows, labels, weights, f) / max(len(rows), 1)).astype(np.int64)

        return [patch.object(_descent, "gradient", mean)]


# --- a line in two stages: what is noted along a transcript, with one thing broken -----------------


class Line(Looked):
    """A run of `linear_regression` along one transcript: the last column is the target."""

    def __call__(self, data: Rows) -> Any:
        self.notes: list[Any] = []
        self.calls = 0
        two = _line.TwoStages(Standard(GRID, 1.5), 2, self.rho, self.steps, 0.4)
        with ExitStack() as patches:
            for patched in self.patches():
                patches.enter_context(patched)
            two.run(self.rows_of(two, data.values), self.noise)
        return np.concatenate(self.notes)

    def rows_of(self, two: Any, values: Any) -> Any:
        return _line.scaled_rows(two.standard, values)


class LineStepsForOne(Line):
    """Every step has the noise that one step alone would need."""

    def noise(self, cells: Any, scale: float) -> Any:
        return super().noise(cells, scale / math.sqrt(self.steps))


class TargetsAsLong(Line):
    """Targets take the place of residuals: as long as the radius lets them be."""

    def patches(self) -> list[Any]:
        def whole(rows: Any, target: int, weights: Any, largest: int) -> Any:
            inputs = np.delete(rows, target, axis=1).astype(np.float64)
            return (inputs.T @ rows[:, target]).astype(np.int64)

        return [patch.object(_line, "residual_gradient", whole)]


class LongRows(Line):
    """Rows are not shortened to the radius that the noise is for."""

    def rows_of(self, two: Any, values: Any) -> Any:
        return _line.scaled_rows(Standard(GRID), values)


class BothStagesWhole(Line):
    """The whole loss goes to the moments, and again to the gradients."""

    def noise(self, cells: Any, scale: float) -> Any:
        return super().noise(cells, scale / math.sqrt(2))


class ClippedByTheLargest(Line):
    """Residuals are clipped at the largest one that the data has."""

    def patches(self) -> list[Any]:
        usual = _line.residual_gradient

        def by_data(rows: Any, target: int, weights: Any, largest: int) -> Any:
            return usual(rows, target, weights, max(largest, int(np.abs(rows).max(initial=0))))

        return [patch.object(_line, "residual_gradient", by_data)]


class LineMean(Line):
    """Gradients are divided by the true number of records, and the noise is not."""

    def patches(self) -> list[Any]:
        usual = _line.residual_gradient

        def mean(rows: Any, target: int, weights: Any, largest: int) -> Any:
            found = usual(rows, target, weights, largest)
            return np.rint(6 * found / max(len(rows), 1)).astype(np.int64)

        return [patch.object(_line, "residual_gradient", mean)]


def subject(run: Looked) -> Subject:
    return Subject(
        run=run,
        stability_map=lambda d: math.sqrt(2 * RHO) * d * (1 + 1e-9),
        output_metric=dp.l2_distance(T=float),
        name="linear_regression" if isinstance(run, Line) else "linear_model",
    )


_OPTIONS = {"pairs": pairs()}


def _twin(label: str, run: type[Looked]) -> Twin:
    make = lambda: subject(run())  # noqa: E731
    of = "linear_regression" if issubclass(run, Line) else "linear_model"
    return Twin(**named(f"{of}/{label}"), make=make, options=_OPTIONS)


TWINS = [
    _twin("steps_for_one: noise is set for one gradient and T are released", StepsForOne),
    _twin("residuals_as_long: residuals are not shortened", ResidualsAsLong),
    _twin("moments_for_free: moments and gradients are both given the whole loss", MomentsForFree),
    _twin("moments_without_noise: the whitening matrix is that of the data", MomentsWithoutNoise),
    _twin("loss_is_told: the training accuracy is told beside the weights", LossIsTold),
    _twin("stops_early: the number of steps depends on the records", StopsEarly),
    _twin("mean_gradient: the gradient is divided by the true number of records", MeanGradient),
    _twin("line_for_one: noise is set for one gradient and T are released", LineStepsForOne),
    _twin("targets_as_long: a gradient is of targets, which nothing clips", TargetsAsLong),
    _twin("long_rows: rows are longer than the radius that noise is for", LongRows),
    _twin("whole_twice: moments and gradients are both given the whole loss", BothStagesWhole),
    _twin("mean_of_residuals: a gradient is divided by the true number of records", LineMean),
    _twin("clipped_by_data: residuals are clipped at the data's largest", ClippedByTheLargest),
]
CONTROLS = [
    Control(name="linear_model/sound", make=lambda: subject(Looked()), options=_OPTIONS),
    Control(
        name="linear_model/sound_by_columns", make=lambda: subject(ByColumns()), options=_OPTIONS
    ),
    Control(name="linear_model/sound_whitened", make=lambda: subject(Whitened()), options=_OPTIONS),
    Control(name="linear_regression/sound", make=lambda: subject(Line()), options=_OPTIONS),
]
