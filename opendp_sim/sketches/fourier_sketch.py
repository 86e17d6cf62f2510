"""Fourier sketch: sums of quantised cosines and sines of random frequencies.

Proof of the stability map and of the estimator: ``fourier_sketch.md``, beside this file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, KernelEstimates
from opendp_sim.core.claims import Block, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import InternalError, ParameterError, SpaceError
from opendp_sim.core.grid import PhaseProjection, chunks, count_ids
from opendp_sim.core.linear import public_product, table_product
from opendp_sim.core.mechanism import Mechanism, Source, one_of, param, register
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.space import Domain, Metric
from opendp_sim.sketches._classes import Classes, PerLabel
from opendp_sim.sketches._kernels import KERNELS, Gaussian as GaussianKernel, Kernel, Term
from opendp_sim.sketches._weighted_kernel import Weighted
from opendp_sim.spaces.checks import grid_rows, kept_distance
from opendp_sim.spaces.rows import GridRows, as_rows
from opendp_sim.spaces.sketch import Sketch

__all__ = ["FourierReader", "FourierSketch", "make_fourier_sketch", "then_fourier_sketch"]

_AMPLITUDE = 4096
"""S, the integer length of a feature pair: truncation then costs 0.02 % of the signal."""
_TOGETHER = 1024
"""Frequencies that share one chunk: more would make the chunks too short for the counting."""
_MOST_TURNS = 2.0**30
"""Turns a grid step beyond which folding would keep too few digits of a frequency."""
_LOW = 3
"""Columns up to which the Gauss transform is the better structure for the Gaussian kernel."""
_CELLS = 2**22
"""Most cells of a phase histogram that is held at once."""


@register
class FourierSketch(Mechanism):
    r"""Sum the cosine and the sine of D random phases of every record.

    Space
        Input: rows on an integer grid, with or without labels, under symmetric distance.
        Output: a flat int64 vector of two blocks: ``features`` of shape (L, D, 2), where (l, j, 0)
        and (l, j, 1) are the sums over class l of the truncated ``S cos`` and ``S sin`` of phase j,
        S = 4096; and ``total`` of shape (L,), ``count_weight`` times the number of records of
        class l. L is 1 without ``per_label``.

    Stability
        .. math:: L_1 = D a + w,\quad L_2 = \sqrt{D S^2 + w^2},\quad L_\infty = \max(m, w)

        per added or removed record, with a and m the largest :math:`|c| + |s|` and :math:`|c|` in
        the public integer table (a is at most :math:`\sqrt 2 S`). Exact in integers. L2 within
        truncation (0.04 %) of attained. Not monotone.

    Privacy
        None on its own. Chain with noise.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): `phases` is no power of
        two. SpaceError (OS201, OS202): not grid rows, another metric. (OS203): the grid is too fine
        for exact phases. (OS204): `per_label` without labels.

    Source
        [own] Lemma 1 in ``fourier_sketch.md``; random features are Rahimi and Recht's, the private
        sum of them is Wagner, Naamad and Mishra's.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
        >>> sketch = (space >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
        ...     >> sim.then_fourier_sketch(frequencies=3, seed=7, norm="l2", count_weight=5,
        ...                                kernel={"gaussian": {"bandwidth": 0.5}}))
        >>> sketch(np.zeros((4, 2)))[-1], round(sketch.map(1), 2)
        (20, 7094.48)
    """

    key: ClassVar[str] = "fourier_sketch"
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
    room = "sketches"
    offers = ("kernel_sums",)

    frequencies: Annotated[
        int,
        param(
            "Random frequencies; each has one cosine and one sine.", symbol="D", unit="frequencies",
            ge=1, le=65536,
            hint="zCDP: as many as compute allows, 1,000 to 8,000; pure: noise grows as sqrt(D).",
        ),
    ]  # fmt: skip
    kernel: Annotated[
        Kernel, one_of(*KERNELS, Weighted),
        param(
            "The kernel, with its bandwidth in data units.", symbol="k", unit="none",
            hint="write kernel: {gaussian: {bandwidth: 1.0}}, exponential, laplacian, rational, or "
            "weighted for a sum of them.",
        ),
    ]  # fmt: skip
    seed: Annotated[
        int,
        param(
            "Seed of the public frequencies. Not a secret; never derived from data.", symbol="s",
            unit="none", hint="any integer in [0, 2**63).", ge=0, lt=2**63,
        ),
    ]  # fmt: skip
    phases: Annotated[
        int,
        param(
            "Steps of a full turn, a power of two: the size of the public table.", symbol="P",
            unit="phases", default=64, ge=4, le=4096,
            hint="64 costs 0.04 % of the signal and no bias; fewer is hardly faster.",
        ),
    ] = 64  # fmt: skip
    per_label: PerLabel = False
    count_weight: Annotated[
        int | None,
        param(
            "Integer weight of the total count's own cell.", symbol="w", unit="none", default=None,
            ge=1, le=2**20, hint="default round(S sqrt(D / 20)): about 5 % of a zCDP budget.",
        ),
    ] = None  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``fourier_sketch.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        if self.phases & (self.phases - 1):
            raise ParameterError(
                "OS102", f"{self.key}.phases", expected="a power of two", got=self.phases,
                hint="write phases: 64.",
            )  # fmt: skip
        reader = FourierReader.draw(self, rows)
        size, weight, table = self.frequencies, self.weight, reader.table
        blocks = (
            Block("features", (reader.classes, size, 2),
                  l1=size * int(np.abs(table).sum(axis=1).max()),
                  l2_squared=size * _AMPLITUDE**2, linf=int(np.abs(table).max())),  # Lemma 1
            Block("total", (reader.classes,), l1=weight, l2_squared=weight**2, linf=weight),
        )  # fmt: skip
        return Stable(
            output=(output := Sketch(self.key, blocks)),
            accumulate=reader.accumulate,
            faces=output.faces,
            capabilities={"kernel_sums": reader},
            matrices=(reader.projection.folded, table),
            advice=self._advice(rows),
            expected={
                "noise per unit of cell noise": reader.noise_factor(),
                "sampling deviation per far record": math.sqrt(0.5) * reader.gain * reader.reach,
                "kernel steepness": self.kernel.steepness,
            },
        )

    def _advice(self, rows: GridRows) -> tuple[str, ...]:
        misled = kept_distance(rows, self.kernel.metric)
        if misled or rows.width > _LOW or not isinstance(self.kernel, GaussianKernel):
            return misled
        return (
            (
                "in up to three columns `gauss_transform_sketch` has the same kernel without sampling "
                "error: prefer it, also under pure differential privacy."
            ),
        )

    @property
    def weight(self) -> int:
        """The weight of the total's cell that is in force."""
        if self.count_weight is not None:
            return self.count_weight
        return max(1, round(_AMPLITUDE * math.sqrt(self.frequencies / 20)))


def phase_table(phases: int) -> NDArray[np.int64]:
    """Return the truncated ``S (cos, sin)`` at the middle of each phase: shape (P, 2).

    One octant is computed and mirrored, so that the table turns into itself (Lemma 2 needs it);
    ``c^2 + s^2 <= S^2`` is asserted in integers (Lemma 1 needs that, and nothing about floats).
    """
    quarter = phases // 4
    angles = (np.arange((quarter + 1) // 2) + 0.5) * (2.0 * math.pi / phases)
    cosines, sines = np.empty(quarter), np.empty(quarter)
    for j, angle in enumerate(angles):
        cosines[j] = sines[quarter - 1 - j] = math.floor(_AMPLITUDE * math.cos(angle))
        sines[j] = cosines[quarter - 1 - j] = math.floor(_AMPLITUDE * math.sin(angle))
    first = np.stack([cosines, sines], axis=1).astype(np.int64)
    turned = np.stack([-first[:, 1], first[:, 0]], axis=1)
    table = np.concatenate([first, turned, -first, -turned])
    if int(np.square(table).sum(axis=1).max()) > _AMPLITUDE**2:
        raise InternalError(
            "OS903", "fourier_sketch.table", expected="pairs no longer than S", got="a longer pair",
            hint="report this: the mathematics library of this machine is out of order.",
        )  # fmt: skip
    return table


@dataclass(frozen=True)
class FourierReader(Classes):
    """The public frequencies of one bound sketch: builds it, and reads a release of it."""

    mechanism: FourierSketch
    rows: GridRows
    projection: PhaseProjection
    table: NDArray[np.int64]
    terms: tuple[Term, ...]

    @classmethod
    def draw(cls, mechanism: FourierSketch, rows: GridRows) -> FourierReader:
        """Draw the frequencies of ``mechanism.seed`` for this grid."""
        turn, count = mechanism.phases, mechanism.frequencies
        kernel: Kernel = mechanism.kernel
        generator = public_generator(mechanism.seed, mechanism.key, "frequencies")
        terms = kernel.split(count, f"{mechanism.key}.frequencies")
        drawn = [term.kernel.frequencies(generator, rows.width, term.size) for term in terms]
        steps = np.concatenate(drawn, axis=1) * (rows.unit * turn / (2.0 * math.pi))
        if not np.abs(steps).max() <= turn * _MOST_TURNS:
            raise SpaceError(
                "OS203", f"{mechanism.key}.input_domain",
                expected="frequencies of at most 2**30 turns a grid step",
                got="a bandwidth far below the grid", hint="widen the bandwidth or refine the grid.",
            )  # fmt: skip
        # Coordinates are integers, so a whole turn per grid step is no turn: heavy tails fold back.
        steps -= turn * np.rint(steps / turn)
        offset = public_generator(mechanism.seed, mechanism.key, "offsets").random(count) * turn
        where = f"{mechanism.key}.input_domain"
        fitted = PhaseProjection.fit(steps, offset, rows.magnitude, where)
        return cls(mechanism, rows, fitted, phase_table(turn), terms)

    @property
    def per_label(self) -> bool:
        """Whether there is one structure a label."""
        return self.mechanism.per_label

    @property
    def distance(self) -> str:
        """The distance that the kernel is a function of."""
        kernel: Kernel = self.mechanism.kernel
        return kernel.metric

    @cached_property
    def response(self) -> float:
        """The first Fourier coefficient of the table as a step function (Lemma 2)."""
        turn = self.mechanism.phases
        angles = (np.arange(turn) + 0.5) * (2.0 * math.pi / turn)
        inner = self.table[:, 0] * np.cos(angles) + self.table[:, 1] * np.sin(angles)
        return float(inner.mean() * np.sinc(1.0 / turn))

    @property
    def gain(self) -> float:
        """``S`` over the response: how much quantised phases lengthen a unit feature."""
        return _AMPLITUDE / self.response

    @property
    def reach(self) -> float:
        """Deviation of an estimate per unit of each frequency's: ``1/sqrt(D)`` for one term."""
        return math.sqrt(sum(term.weight**2 / term.size for term in self.terms))

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows = as_rows(data)
        count, classes = self.mechanism.frequencies, self.classes
        features = out[: classes * count * 2].reshape(classes, count, 2)
        labels = rows.labels if self.mechanism.per_label else None
        matrix = self.projection.workspace()
        together = max(1, min(_TOGETHER, _CELLS // (classes * self.mechanism.phases)))
        for start in range(0, count, together):
            some = slice(start, min(start + together, count))
            histogram = self._histogram(
                rows.values, labels, matrix[some], self.projection.base[some]
            )
            features[:, some] += table_product(histogram, self.table).transpose(1, 0, 2)
        sizes = [len(rows)] if labels is None else np.bincount(labels, minlength=classes)
        out[features.size :] += self.mechanism.weight * np.asarray(sizes, dtype=np.int64)

    def _histogram(
        self,
        values: NDArray[np.float64],
        labels: NDArray[np.int64] | None,
        matrix: NDArray[np.float64],
        base: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Count the records in each phase: shape (some frequencies, L, P)."""
        turn = self.mechanism.phases
        raw = np.zeros((len(matrix), self.classes, turn), dtype=np.int64)
        for part in chunks(len(values), len(matrix)):
            ids = self.projection.ids(values[part], matrix, modulus=turn)
            count_ids(ids, None if labels is None else labels[part], raw)
        # Ids carry `base`; turn each histogram back by it.
        back = (np.arange(turn) + base[:, None]) & (turn - 1)
        return np.take_along_axis(raw, back[:, None, :], axis=2)

    # --- reading --------------------------------------------------------------------------------

    def estimate(self, released: Arrays, queries: Any, groups: int = 1) -> KernelEstimates:
        """Return unbiased estimates of the kernel sums (Lemma 2 of ``fourier_sketch.md``)."""
        values = as_rows(queries).values
        features = np.asarray(released["features"], dtype=np.float64) / self.response
        count = self.mechanism.frequencies
        groups = min(groups, *(term.size for term in self.terms))
        sums = np.zeros((groups, self.classes, len(values)))
        variance = np.zeros((self.classes, len(values)))
        doubt = np.zeros_like(variance)
        c, s = features[:, :, 0], features[:, :, 1]
        for part in chunks(len(values), count):
            angle = self.projection.phases(values[part]) * (2.0 * math.pi / self.mechanism.phases)
            cosine, sine = np.cos(angle), np.sin(angle)
            for term in self.terms:
                for group in range(groups):
                    of = slice(term.place.start + group, term.place.stop, groups)
                    found = public_product(c[:, of], cosine[of]) + public_product(
                        s[:, of], sine[of]
                    )
                    sums[group, :, part] += found * (term.weight / len(cosine[of]))
                own = term.place
                spread = _variance(c[:, own], s[:, own], cosine[own], sine[own])
                spread *= term.weight**2 * count / term.size
                variance[:, part] += spread
                doubt[:, part] += spread * spread / max(1, term.size - 1)
        # Satterthwaite: D - 1 for one term, less for terms of unlike sizes.
        certain = (doubt == 0.0) | ~np.isfinite(doubt)
        freedom = np.where(certain, max(1, count - 1), variance**2 / np.where(certain, 1.0, doubt))
        return KernelEstimates(sums, variance, count, freedom)

    def totals(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the released sizes per class and their deviation per unit of cell noise."""
        weight = self.mechanism.weight
        return np.asarray(released["total"], dtype=np.float64) / weight, 1.0 / weight

    def noise_factor(self) -> float:
        """Return the noise deviation of an estimate per unit of cell noise (Lemma 4)."""
        return self.reach / self.response

    def bias(self) -> float:
        """Zero: the estimate is unbiased (Lemma 2)."""
        return 0.0

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kernel at real distances."""
        kernel: Kernel = self.mechanism.kernel
        return kernel.value(distance)

    def sketch_deviation(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the deviation without noise (Lemma 5), per query, from real distances (n, q)."""
        variance = np.zeros_like(distance)
        for weight, kernel, place in self.terms:
            second = self.gain**2 * (1.0 + kernel.value(2.0 * distance)) / 2.0
            share = weight**2 / (place.stop - place.start)
            variance += share * (second - np.square(kernel.value(distance)))
        spread: NDArray[np.float64] = np.sqrt(variance).sum(axis=0)
        return spread


def _variance(
    c: NDArray[np.float64], s: NDArray[np.float64],
    cosine: NDArray[np.float64], sine: NDArray[np.float64],
) -> NDArray[np.float64]:  # fmt: skip
    """Return the sample variance of ``c cos + s sin`` over the frequencies: shape (L, q).

    One frequency tells nothing about its own error: infinite.
    """
    count = len(cosine)
    if count == 1:
        return np.full((len(c), cosine.shape[1]), math.inf)
    mean = (public_product(c, cosine) + public_product(s, sine)) / count
    power = public_product(c * c, cosine * cosine) + public_product(s * s, sine * sine)
    power += public_product(2.0 * c * s, cosine * sine)
    found: NDArray[np.float64] = np.maximum(power / count - mean * mean, 0.0)
    return found * (count / (count - 1))


make_fourier_sketch, then_fourier_sketch = constructors(FourierSketch)
