"""Build a Fourier sketch from rows, and read it (``fourier_sketch.md``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.grid import PhaseProjection, chunks, chunks_in_room
from opendp_sim.core.arithmetic.lazy_matrices import AT_ONCE, Drawn
from opendp_sim.core.arithmetic.linear import public_product, table_product
from opendp_sim.core.capabilities import Arrays, HalfOfDraws, KernelEstimates, Place
from opendp_sim.core.device.device import Cells, Device, OnDevice
from opendp_sim.core.errors import InternalError, SpaceError
from opendp_sim.core.memory import check_memory
from opendp_sim.core.randomness import public_generator
from opendp_sim.domains.rows import GridRows, as_rows
from opendp_sim.transformations.sketches._impl.classes import PerClassReader
from opendp_sim.transformations.sketches.kernels._impl.kernels import DensityKernel, Term
from opendp_sim.transformations.sketches.moments.second_moments import MomentsBeside

# --------------------------------------------------------------------------------------------------
# The random frequencies and phases of a Fourier sketch, drawn from its public seed.
#
# Proofs: ``fourier_sketch.md``.

_MOST_TURNS = 2.0**30
"""Turns a grid step beyond which folding would keep too few digits of a frequency."""


class FourierParameters(Protocol):
    """Declare the public parameters of the sketch to read.

    Those of ``FourierSketch``.
    """

    key: ClassVar[str]

    @property
    def kernel(self) -> DensityKernel:
        """The kernel whose sums are estimated."""
        ...

    @property
    def frequencies(self) -> int:
        """How many random frequencies there are (D)."""
        ...

    @property
    def seed(self) -> int:
        """The public seed of the frequencies."""
        ...

    @property
    def phases(self) -> int:
        """Steps of a full turn (P)."""
        ...

    @property
    def per_label(self) -> bool:
        """Whether there is one structure a label."""
        ...

    @property
    def count_weight(self) -> int | None:
        """The integer weight of the total's cell, where it is asked for."""
        ...

    @property
    def weight(self) -> int:
        """The weight that random frequencies have."""
        ...


def drawn_phases(
    mechanism: FourierParameters, rows: GridRows, terms: tuple[Term, ...], *, orthogonal: bool
) -> PhaseProjection:
    """Return the seed's frequencies and phases, on the finest exact grid.

    ``terms`` are the kernels whose spectra are drawn from, and how many frequencies each has, drawn at
    right angles if ``orthogonal``. A bandwidth far below the grid is refused (OS203).
    """
    turn, count = mechanism.phases, mechanism.frequencies
    generator = public_generator(mechanism.seed, mechanism.key, "frequencies")
    draws = [t.kernel.orthogonal if orthogonal else t.kernel.frequencies for t in terms]
    drawn = [
        draw(generator, rows.width, term.size) for draw, term in zip(draws, terms, strict=True)
    ]
    steps = np.concatenate(drawn, axis=1) * (rows.unit * turn / (2.0 * math.pi))
    where = f"{mechanism.key}.input_domain"
    if not np.abs(steps).max() <= turn * _MOST_TURNS:
        raise SpaceError(
            "OS203", where, expected="frequencies of at most 2**30 turns a grid step",
            got="a bandwidth far below the grid", hint="widen the bandwidth or refine the grid.",
        )  # fmt: skip
    # Coordinates are integers, so a whole turn per grid step is no turn: heavy tails fold back.
    steps -= turn * np.rint(steps / turn)
    offset = public_generator(mechanism.seed, mechanism.key, "offsets").random(count) * turn
    return PhaseProjection.fit(steps, offset, rows.magnitude, where)


# --------------------------------------------------------------------------------------------------

_FAR = 2.0**40
"""Turns of a query beyond which every kernel here is zero, and phases are not exact."""

AMPLITUDE = 4096
"""S, the integer length of a feature pair: truncation then costs 0.02 % of the signal."""
_TOGETHER = 1024
"""Frequencies that share one chunk: more would make the chunks too short for the counting."""
_CELLS = 2**22
"""Most cells of a phase histogram that is held at once."""
FEWEST_DRAWS = 200
"""Draws from which on two halves are offered: fewer tell too little of weights and of their own error."""


def phase_table(phases: int) -> NDArray[np.int64]:
    """Return ``S (cos, sin)`` at phases' middles (P, 2), truncated.

    One octant is computed and mirrored, so that the table turns into itself (Lemma 2 needs it); ``c^2 +
    s^2 <= S^2`` is asserted in integers (Lemma 1 needs that, and nothing about floats).
    """
    quarter = phases // 4
    angles = (np.arange((quarter + 1) // 2) + 0.5) * (2.0 * math.pi / phases)
    cosines, sines = np.empty(quarter), np.empty(quarter)
    for j, angle in enumerate(angles):
        cosines[j] = sines[quarter - 1 - j] = math.floor(AMPLITUDE * math.cos(angle))
        sines[j] = cosines[quarter - 1 - j] = math.floor(AMPLITUDE * math.sin(angle))
    first = np.stack([cosines, sines], axis=1).astype(np.int64)
    turned = np.stack([-first[:, 1], first[:, 0]], axis=1)
    table = np.concatenate([first, turned, -first, -turned])
    if int(np.square(table).sum(axis=1).max()) > AMPLITUDE**2:
        raise InternalError(
            "OS903", "fourier_sketch.table", expected="pairs no longer than S", got="a longer pair",
            hint="report this: the mathematics library of this machine is out of order.",
        )  # fmt: skip
    return table


@dataclass(frozen=True)
class FourierReader(PerClassReader):
    """Build one sketch from public frequencies, and read its release."""

    mechanism: FourierParameters
    rows: GridRows
    table: NDArray[np.int64]
    terms: tuple[Term, ...]
    orthogonal: bool = False
    drawn: PhaseProjection | None = None
    """The frequencies, of a part of a sketch's; None for all of the seed."""

    @classmethod
    def bound(
        cls, mechanism: FourierParameters, rows: GridRows, *, orthogonal: bool = False
    ) -> FourierReader:
        """Return the reader of ``mechanism`` on this grid, with lazy frequencies."""
        count, kernel = mechanism.frequencies, mechanism.kernel
        lower = "`frequencies`, or the columns (`jl_projection`)"
        check_memory(8 * rows.width * count, mechanism.key, "the frequencies", lower)
        terms = kernel.split(count, f"{mechanism.key}.frequencies")
        reader = cls(mechanism, rows, phase_table(mechanism.phases), terms, orthogonal)
        if rows.width * count <= AT_ONCE:
            _ = reader.projection
        return reader

    @property
    def matrices(self) -> Drawn:
        """The public matrices, for the release's fingerprint."""
        nbytes = 8 * (self.rows.width + 1) * self.mechanism.frequencies + self.table.nbytes
        return Drawn(nbytes, lambda: (self.projection.folded, self.table))

    @cached_property
    def projection(self) -> PhaseProjection:
        """The frequencies and phases of the seed, on the finest exact grid."""
        if self.drawn is not None:
            return self.drawn
        return drawn_phases(self.mechanism, self.rows, self.terms, orthogonal=self.orthogonal)

    @property
    def per_label(self) -> bool:
        """Whether there is one structure a label."""
        return self.mechanism.per_label

    @cached_property
    def moments(self) -> MomentsBeside | None:
        """Return the rows' moments beside the features, where there are any."""
        return None

    @property
    def distance(self) -> str:
        """The distance that the kernel is a function of."""
        kernel: DensityKernel = self.mechanism.kernel
        return kernel.metric

    @cached_property
    def response(self) -> float:
        """Return the first Fourier coefficient of the step table (Lemma 2)."""
        turn = self.mechanism.phases
        angles = (np.arange(turn) + 0.5) * (2.0 * math.pi / turn)
        inner = self.table[:, 0] * np.cos(angles) + self.table[:, 1] * np.sin(angles)
        return float(inner.mean() * np.sinc(1.0 / turn))

    @cached_property
    def coarseness(self) -> float:
        """Return a pair's largest relative distance from the smooth (Lemma 9).

        A pair stands for an arc of phases, and is farthest from one of its ends.
        """
        angles = np.arange(self.mechanism.phases + 1) * (2.0 * math.pi / self.mechanism.phases)
        smooth = self.response * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        ends = (smooth[:-1] - self.table, smooth[1:] - self.table)
        return max(float(np.hypot(*end.T).max()) for end in ends) / self.response

    @property
    def gain(self) -> float:
        """Return ``S`` over the response, a unit feature's quantised length."""
        return AMPLITUDE / self.response

    @property
    def reach(self) -> float:
        """Return an estimate's deviation per unit of each frequency's."""
        return math.sqrt(sum(term.weight**2 / term.size for term in self.terms))

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows = as_rows(data)
        labels = rows.labels if self.mechanism.per_label else None
        self._add(lambda matrix: self._counted(rows.values, labels, matrix), len(rows), labels, out)

    def accumulate_on(
        self,
        device: Device,
        values: OnDevice,
        labels: NDArray[np.int64] | None,
        out: NDArray[np.int64],
    ) -> None:
        """Add the features of rows in a device's memory to ``out``."""
        own, turn = labels if self.mechanism.per_label else None, self.mechanism.phases

        def counted(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
            return device.count(values, Cells(matrix, turn, modulus=turn), own, self.classes)

        self._add(counted, len(values), own, out)

    def _add(
        self,
        counted: Callable[[NDArray[np.float64]], NDArray[np.int64]],
        size: int,
        labels: NDArray[np.int64] | None,
        out: NDArray[np.int64],
    ) -> None:
        """Add up features from counts of phases, and the records."""
        count, classes = self.mechanism.frequencies, self.classes
        features = out[: classes * count * 2].reshape(classes, count, 2)
        matrix = self.projection.workspace()
        together = max(1, min(_TOGETHER, _CELLS // (classes * self.mechanism.phases)))
        for start in range(0, count, together):
            some = slice(start, min(start + together, count))
            histogram = self._turned_back(counted(matrix[some]), self.projection.base[some])
            features[:, some] += table_product(histogram, self.table).transpose(1, 0, 2)
        sizes = [size] if labels is None else np.bincount(labels, minlength=classes)
        totals = out[features.size : features.size + classes]
        totals += self.mechanism.weight * np.asarray(sizes, dtype=np.int64)

    def _counted(
        self,
        values: NDArray[np.float64],
        labels: NDArray[np.int64] | None,
        matrix: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Count records by shifted phase, shape (some frequencies, L, P)."""
        turn = self.mechanism.phases
        raw = np.zeros((len(matrix), self.classes, turn), dtype=np.int64)
        for part, room in chunks_in_room(len(values), values.shape[1], len(matrix)):
            own = None if labels is None else labels[part]
            self.projection.count(values[part], own, raw, matrix=matrix, room=room, modulus=turn)
        return raw

    def _turned_back(self, raw: NDArray[np.int64], base: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return counts by phase; ids carry ``base``."""
        turn = self.mechanism.phases
        back = (np.arange(turn) + base[:, None]) & (turn - 1)
        return np.take_along_axis(raw, back[:, None, :], axis=2)

    # --- reading --------------------------------------------------------------------------------

    def estimate(self, released: Arrays, queries: Any, groups: int = 1) -> KernelEstimates:
        """Return unbiased estimates of the kernel sums (Lemma 2 of ``fourier_sketch.md``)."""
        values = as_rows(queries).values
        features = np.asarray(released["features"], dtype=np.float64) / self.response
        count = self.terms[-1].place.stop
        groups = min(groups, *(term.size for term in self.terms))
        sums = np.zeros((groups, self.classes, len(values)))
        variance = np.zeros((self.classes, len(values)))
        doubt = np.zeros_like(variance)
        c, s = features[:, :, 0], features[:, :, 1]
        for part in chunks(len(values), count):
            phases = self.projection.phases(values[part])
            angle = phases * (2.0 * math.pi / self.mechanism.phases)
            cosine, sine = np.cos(angle), np.sin(angle)
            # Floats lose the fraction of a vast phase, and with it the sign of every term alike.
            lost = np.abs(phases) >= _FAR
            cosine[lost], sine[lost] = 0.0, 0.0
            for term in self.terms:
                for group in range(groups):
                    of = slice(term.place.start + group, term.place.stop, groups)
                    found = public_product(c[:, of], cosine[of]) + public_product(
                        s[:, of], sine[of]
                    )
                    sums[group, :, part] += found * (term.weight / len(cosine[of]))
                own = term.place
                spread = sample_variance(c[:, own], s[:, own], cosine[own], sine[own])
                spread *= term.weight**2 * count / term.size
                variance[:, part] += spread
                doubt[:, part] += spread * spread / max(1, term.size - 1)
        # Satterthwaite: D - 1 for one term, less for terms of unlike sizes.
        certain = (doubt == 0.0) | ~np.isfinite(doubt)
        freedom = np.where(certain, max(1, count - 1), variance**2 / np.where(certain, 1.0, doubt))
        hidden, grain, skew = self._hidden(groups)
        records = np.maximum(self.totals(released)[0], 0.0)
        return KernelEstimates(
            sums, variance, count, freedom, hidden * records, grain=grain * records, skew=skew
        )

    @property
    def in_halves(self) -> bool:
        """Whether there are two halves.

        Orthogonal draws are not independent of one another.
        """
        return not self.orthogonal and min(term.size for term in self.terms) >= FEWEST_DRAWS

    @cached_property
    def halves(self) -> tuple[HalfOfDraws, HalfOfDraws] | None:
        """Return every other frequency of each term, and the others."""
        if not self.in_halves:
            return None
        first, second = (
            np.concatenate([np.arange(t.place.start + at, t.place.stop, 2) for t in self.terms])
            for at in (0, 1)
        )
        return self._half(first, 0), self._half(second, 1)

    def _half(self, place: NDArray[np.intp], at: int) -> HalfOfDraws:
        ends = np.cumsum([len(range(t.place.start + at, t.place.stop, 2)) for t in self.terms])
        starts = [0, *ends[:-1]]
        terms = tuple(
            term._replace(place=slice(int(start), int(end)))
            for term, start, end in zip(self.terms, starts, ends, strict=True)
        )
        own = replace(self, terms=terms, drawn=self.projection.some(place))

        def cells(values: NDArray[np.float64], some: Place | None = None) -> NDArray[np.int64]:
            drawn = own.projection if some is None else own.projection.some(some)
            return self.table[drawn.floors(values, self.mechanism.phases)]

        return HalfOfDraws(place, own, cells)

    def _hidden(self, groups: int) -> tuple[float, float, float]:
        """Return a record's part hidden by repetitions, steps' part and skewness.

        A frequency of a heavy-tailed spectrum that sees a small distance is rare: no drawn one may.
        """
        hidden = grain = skew = 0.0
        for term in self.terms:
            share = 2.0 * abs(term.weight) * self.terms[-1].place.stop / term.size
            if math.isinf(term.kernel.skewness):
                hidden += self.gain * share
            else:
                grain += self.coarseness * share
                skew = max(skew, term.kernel.skewness / math.sqrt(max(1, term.size // groups)))
        return hidden, grain, skew

    def totals(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the released sizes by class and their noise per cell deviation."""
        weight = self.mechanism.weight
        return np.asarray(released["total"], dtype=np.float64) / weight, self.count_factor()

    def medians_of(self, groups: int) -> int:
        """Return the number of groups of `estimate`, 1 without draws."""
        return min(groups, *(term.size for term in self.terms))

    def count_factor(self) -> float:
        """Return the record count's deviation per unit of cell noise."""
        return 1.0 / self.mechanism.weight

    def with_count(self) -> float:
        """Return the covariance of an estimate and the unread count."""
        return 0.0

    def noise_factor(self) -> float:
        """Return an estimate's noise per unit of cell noise (Lemma 4)."""
        return self.reach / self.response

    def bias(self, queries: Any = None) -> float:
        """Return zero, as the estimate is unbiased (Lemma 2)."""
        del queries
        return 0.0

    def change(self, moved: float) -> float:
        """Bound a kernel value's change when its distance changes by ``moved``."""
        kernel: DensityKernel = self.mechanism.kernel
        return min(moved * kernel.slope, sum(abs(weight) for weight, *_ in self.terms))

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kernel at real distances."""
        kernel: DensityKernel = self.mechanism.kernel
        return kernel.value(distance)

    def sketch_deviation(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the deviation without noise of real distances (n, q) (Lemma 5)."""
        variance = np.zeros_like(distance)
        for weight, kernel, place in self.terms:
            second = self.gain**2 * (1.0 + kernel.value(2.0 * distance)) / 2.0
            share = weight**2 / (place.stop - place.start)
            variance += share * (second - np.square(kernel.value(distance)))
        spread: NDArray[np.float64] = np.sqrt(variance).sum(axis=0)
        return spread


def sample_variance(
    c: NDArray[np.float64],
    s: NDArray[np.float64],
    cosine: NDArray[np.float64],
    sine: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return ``c cos + s sin``'s variance over frequencies, (L, q), infinite for one."""
    count = len(cosine)
    if count == 1:
        return np.full((len(c), cosine.shape[1]), math.inf)
    mean = (public_product(c, cosine) + public_product(s, sine)) / count
    power = public_product(c * c, cosine * cosine) + public_product(s * s, sine * sine)
    power += public_product(2.0 * c * s, cosine * sine)
    found: NDArray[np.float64] = np.maximum(power / count - mean * mean, 0.0)
    return found * (count / (count - 1))
