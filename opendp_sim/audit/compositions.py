"""Default drivers for OpenDP's interactive compositions and odometers: they are asked measurements.

The questions are noisy numbers of records at losses that the object itself accepts, so that a
composition that adds up wrongly shows in the answers. Which number is asked next depends on the last
answer; how much may be lost does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.datasets import records_of
from opendp_sim.audit.driver import REFUSED, Driver, unknown_questions
from opendp_sim.audit.key_questions import of_own
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.noise import NoiseLaw
from opendp_sim.audit.spaces import metric_name, some_dataset
from opendp_sim.audit.vectors import VECTOR_METRICS
from opendp_sim.core import dp
from opendp_sim.core.bridge import measure_of, plain_measurement
from opendp_sim.core.errors import AuditError, SpaceError

__all__ = ["of_composition", "of_odometer"]

_MOST_ANSWERS = 6
_PARTS = (1, 3 / 4, 2 / 3, 1 / 2, 2 / 5, 1 / 3, 1 / 4, 1 / 5, 1 / 6, 1 / 8, 1 / 10, 1 / 20, 1 / 100)
"""Of the whole loss, in the order in which they are asked for."""
_LOSSES = (0.5, 0.25, 0.25)
"""What an odometer is asked to lose, in its own measure, at the distance that was asked about."""
_ADDING = ("SymmetricDistance", "InsertDeleteDistance", "Symmetric")
_FAR = 2**20
Number = Callable[[Any], float]


def of_composition(obj: dp.Measurement, d_in: Any) -> Driver:
    """Ask for as much as is left, again and again, until nothing is accepted or six were answered.

    Raises:
        AuditError: OS501, it takes no measurement on its own space.
    """
    probes = _Probes(obj, d_in)
    whole = obj.map(d_in)
    most = float(whole[0] if isinstance(whole, tuple) else whole)
    losses = _accepted(obj(probes.some), probes, most)
    if not losses:
        raise unknown_questions("a queryable that takes no measurement on its own space")

    if not probes.trace(obj, losses)(probes.some).size:  # it answers, and evaluated none of them
        own = of_own(obj(probes.some), probes.pairs)
        if own is None:
            raise unknown_questions("a queryable that evaluates no measurement")
        return own

    def drive(queryable: Any) -> Any:
        heard: list[float] = []
        for loss in losses:
            like = bool(heard) and heard[-1] > 1
            try:
                heard.append(float(queryable(probes.make(loss, like=like))))
            except dp.OpenDPException:
                heard.append(REFUSED)
        return tuple(heard)

    shown = ", ".join(f"{loss:.3g}" for loss in losses)
    words = f"noisy numbers ({probes.words}) at losses {shown}, all that it accepts"
    return Driver(drive, words, probes.pairs, probes.trace(obj, losses), probes.law)


def _accepted(queryable: Any, probes: _Probes, most: float) -> list[float]:
    """Ask for as much as is left, again and again; return what was accepted, on a synthetic dataset.

    A composition that is sound accepts the same on every dataset.
    """
    losses: list[float] = []
    for _ in range(_MOST_ANSWERS):
        for part in _PARTS:
            try:
                queryable(probes.make(most * part, like=False))
            except dp.OpenDPException:
                continue  # refused: less
            losses.append(most * part)
            break
        else:
            break
    return losses


def of_odometer(obj: dp.Odometer, d_in: Any) -> Driver:
    """Ask three measurements; the loss that the odometer then states is the claim."""
    probes = _Probes(obj, d_in)

    def drive(queryable: Any) -> Any:
        heard: list[float] = []
        for loss in _LOSSES:
            heard.append(float(queryable(probes.make(loss, like=bool(heard) and heard[-1] > 1))))
        return tuple(heard)

    words = " and ".join(f"{loss:g}" for loss in _LOSSES)
    return Driver(
        drive,
        f"noisy numbers ({probes.words}) at losses {words}",
        probes.pairs,
        probes.trace(obj, _LOSSES),
        probes.law,
    )


class _Probes:
    """Measurements on the space of a composition: a number that one unit of distance moves by one."""

    def __init__(self, obj: Any, d_in: Any) -> None:
        self.domain, self.metric, self.measure = (
            obj.input_domain,
            obj.input_metric,
            obj.output_measure,
        )
        self.d_in = d_in
        try:
            self.kind = measure_of(obj)
            self.some = some_dataset(self.domain, self.metric, d_in)
        except (SpaceError, AuditError):
            raise unknown_questions("a space or a measure that no question is known for") from None
        self.pairs: tuple[Pair, ...] = ()
        self.numbers, self.words = self._numbers()
        self._made: dict[Any, dp.Measurement] = {}
        self._hidden: list[float] | None = None

    def _numbers(self) -> tuple[tuple[Number, Number], str]:
        if metric_name(self.metric) in (*VECTOR_METRICS, "VectorNorm"):
            return (_first, lambda data: -_first(data)), "the first cell, or its negative"
        records = records_of(self.domain)
        extreme = (records.source.corners or (records.source.simplest,))[-1]
        chosen = repr(extreme)
        if records.size is None and metric_name(self.metric) in _ADDING:
            less, more = records.build([]), records.build([extreme] * int(self.d_in))
            self.pairs = Pair(more, less, self.d_in), Pair(less, more, self.d_in)

        def alike(data: Any) -> float:
            return float(sum(repr(record) == chosen for record in records.split(data)))

        return (lambda data: float(len(records.split(data))), alike), (
            "of records, or of those like an extreme one"
        )

    def make(self, loss: float, *, like: bool) -> dp.Measurement:
        """Return a measurement of that loss; made once, since a run asks it again and again."""
        if (loss, like) not in self._made:
            self._made[loss, like] = self._measurement(loss, self.numbers[like])
        return self._made[loss, like]

    @property
    def law(self) -> NoiseLaw:
        """What is added to a number, over its scale."""
        return NoiseLaw("laplace" if "max" in self.kind else "gaussian", 1.0)

    def trace(self, obj: Any, losses: Sequence[float]) -> Callable[[Any], NDArray[np.float64]]:
        """Return the numbers of records that the answers would hide, each over its scale.

        Asked for one number only, whatever is answered: then the loss of the whole is exactly theirs.
        """

        def hidden(data: Any) -> NDArray[np.float64]:
            self._hidden = []
            try:
                queryable = obj(data)
                for loss in losses:
                    queryable(self.make(loss, like=False))
                return np.array(self._hidden)
            finally:
                self._hidden = None

        return hidden

    def _measurement(self, loss: float, number: Number) -> dp.Measurement:
        space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
        far = float(self.d_in)
        if loss <= 0:
            raise unknown_questions(
                "a release that claims no loss, so that no noise is small enough"
            )
        if self.kind in ("max_divergence", "approx_max_divergence"):
            scale = far / loss * (1 + 1e-12)
            noise = dp.m.make_laplace(*space, scale)
        elif self.kind in ("zero_concentrated_divergence", "approx_zero_concentrated_divergence"):
            scale = far / (2 * loss) ** 0.5 * (1 + 1e-12)
            noise = dp.m.make_gaussian(*space, scale)
        else:
            raise unknown_questions(f"a release under {self.kind.replace('_', ' ')}")
        approximate = self.kind.startswith("approx")

        def answer(data: Any) -> float:
            if self._hidden is None:
                return float(noise(number(data)))
            self._hidden.append(number(data) / scale)
            return 0.0

        def loss_at(distance: Any) -> Any:
            value = noise.map(float(distance))
            return (value, 0.0) if approximate else value

        return plain_measurement(self.domain, self.metric, self.measure, answer, loss_at)


def _first(data: Any) -> float:
    """Return the first cell of a vector, or a scalar, within bounds: clamping moves nothing apart."""
    cell = data if isinstance(data, int | float) else (data[0] if len(data) else 0)
    return float(min(max(cell, -_FAR), _FAR))
