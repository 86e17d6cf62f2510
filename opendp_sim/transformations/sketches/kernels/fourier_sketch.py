"""Release sums of quantised cosines and sines (``fourier_sketch.md``, ``_impl/lattice.md``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opendp_sim.core.claims import SketchBlock, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.device.device import Device, OnDevice
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import LATER, Mechanism, Proof, one_of, param, register
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import grid_rows, kept_distance
from opendp_sim.domains.rows import GridRows
from opendp_sim.domains.sketch import Sketch
from opendp_sim.transformations.sketches._impl.classes import PerLabel
from opendp_sim.transformations.sketches.kernels._impl.fourier import AMPLITUDE, FourierReader
from opendp_sim.transformations.sketches.kernels._impl.kernels import (
    DENSITY_KERNELS,
    DensityKernel,
    GaussianKernel,
    OneKernel,
    Term,
)
from opendp_sim.transformations.sketches.kernels._impl.lattice import LatticeReader
from opendp_sim.transformations.sketches.moments.second_moments import MomentsBeside

# --------------------------------------------------------------------------------------------------
# Weighted sums of kernels in one release: each frequency serves one term, weights stay outside.
#
# The lemma is Lemma 6 of ``fourier_sketch.md``.

_LEAST = 2
"""Frequencies a term must have: one alone has no sample variance, and so no standard error."""
_Weight = Annotated[float, Field(ge=-1e6, le=1e6)]


class Weighted(DensityKernel):
    """Sum kernels ``w_1 k_1 + w_2 k_2 + ...``.

    Weights of either sign: one release, no budget split. Every frequency belongs to one term, in
    numbers proportional to ``|w_i|``; the weight and its sign multiply released cells only, so that
    the noise costs ``sum |w_i|`` times a single kernel's.
    """

    key: ClassVar[str] = "weighted"
    terms: Annotated[
        tuple[tuple[_Weight, Annotated[OneKernel, one_of(*DENSITY_KERNELS)]], ...],
        param(
            "Pairs of a weight and a kernel; all kernels of one distance (l2, or l1).", symbol="w_i",
            unit="none", min_length=1, max_length=64,
            hint="write terms: [[2.0, {gaussian: {bandwidth: 1.0}}], [-1.0, {gaussian: "
            "{bandwidth: 1.5}}]].",
        ),
    ]  # fmt: skip

    @property
    def metric(self) -> str:
        """The terms' distance."""
        return self.terms[0][1].metric

    @property
    def steepness(self) -> float:
        """At most ``sum |w_i|`` times the terms' own."""
        return sum(abs(weight) * kernel.steepness for weight, kernel in self.terms)

    @property
    def slope(self) -> float:
        """At most ``sum |w_i|`` times the terms' own."""
        return sum(abs(weight) * kernel.slope for weight, kernel in self.terms)

    def split(self, count: int, where: str) -> tuple[Term, ...]:
        """Split the frequencies in proportion to ``|w_i|`` (Lemma 6)."""
        self._check(count, where)
        numbers = shares(np.abs([weight for weight, _ in self.terms]), count)
        ends = np.cumsum(numbers)
        return tuple(
            Term(weight, kernel, slice(int(end - number), int(end)))
            for (weight, kernel), number, end in zip(self.terms, numbers, ends, strict=True)
        )

    def value(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``sum w_i k_i``."""
        found: NDArray[np.float64] = np.zeros_like(distance, dtype=np.float64)
        for weight, kernel in self.terms:
            found += weight * kernel.value(distance)
        return found

    def _check(self, count: int, where: str) -> None:
        metrics = {kernel.metric for _, kernel in self.terms}
        if len(metrics) > 1:
            raise ParameterError(
                "OS102", f"{where.rpartition('.')[0]}.kernel", expected="kernels of one distance",
                got="kernels of l1 and of l2", hint="release one sketch for each distance.",
            )  # fmt: skip
        if count < _LEAST * len(self.terms):
            raise ParameterError(
                "OS102", where, expected=f"at least {_LEAST * len(self.terms)}", got=count,
                hint="every term of a weighted kernel needs frequencies of its own.",
            )  # fmt: skip


def shares(weights: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Split ``count`` in proportion to ``weights``, at least two each."""
    spare, total = count - _LEAST * len(weights), float(weights.sum())
    part = weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))
    given = np.floor(part * spare).astype(np.int64)
    most_cut = np.argsort(given - part * spare, kind="stable")
    given[most_cut[: spare - int(given.sum())]] += 1
    return given + _LEAST


# --------------------------------------------------------------------------------------------------


@register
class FourierSketch(Mechanism):
    r"""Sum the cosine and the sine of D phases of every record.

    Space
        Input: rows on an integer grid, with or without labels, under symmetric distance.
        Output: a flat int64 vector of two blocks: ``features`` of shape (L, D, 2), where (l, j, 0)
        and (l, j, 1) are the sums over class l of the truncated ``S cos`` and ``S sin`` of phase j,
        S = 4096; and ``total`` of shape (L,), ``count_weight`` times the number of records of
        class l. L is 1 without ``per_label``. On a lattice (``features``) D is what it needs, at most
        ``frequencies``, phase j is an exact integer, its pair is of length 2**18 times an integer
        multiplier of its own, and the total's cell is weighted to be frequency 0 too.

    Stability
        Of random frequencies (of a lattice: Lemma 3 of ``_impl/lattice.md``)

        .. math:: L_1 = D a + w,\quad L_2 = \sqrt{D S^2 + w^2},\quad L_\infty = \max(m, w)

        per added or removed record, with a and m the largest :math:`|c| + |s|` and :math:`|c|` in
        the public integer table (a is at most :math:`\sqrt 2 S`). Exact in integers. L2 within
        truncation (0.04 %) of attained. Not monotone.

    Privacy
        None on its own. Chain with noise.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): `phases` is no power of
        two, or no lattice is `deterministic`. SpaceError (OS201, OS202): not grid rows, another
        metric. (OS203): the grid is too fine for exact phases. (OS204): `per_label` without labels.

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
    in_short: ClassVar[str] = "Turn every record into a few waves, and add the waves up."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "sketches"
    offers = ("kernel_sums",)

    frequencies: Annotated[
        int,
        param(
            "Frequencies, at most; each has one cosine and one sine.", symbol="D", unit="frequencies",
            ge=1, le=65536,
            hint="zCDP: as many as compute allows, 1,000 to 8,000; pure: noise grows as sqrt(D), and in "
            "up to three columns `gauss_transform_sketch` may have less.",
        ),
    ]  # fmt: skip
    kernel: Annotated[
        DensityKernel, one_of(*DENSITY_KERNELS, Weighted),
        param(
            "The kernel, with its bandwidth in data units.", symbol="k", unit="none",
            hint="write kernel: {gaussian: {bandwidth: 1.0}}, exponential, laplacian, rational, or "
            "weighted for a sum of them.",
        ),
    ]  # fmt: skip
    seed: Seed
    phases: Annotated[
        int,
        param(
            "Steps of a full turn, a power of two: the size of the public table.", symbol="P",
            unit="phases", default=64, ge=4, le=4096,
            hint="64 costs 0.04 % of the signal; 1024 narrows intervals with public points.",
        ),
    ] = 64  # fmt: skip
    features: Annotated[
        Literal["auto", "random", "orthogonal", "deterministic"],
        param(
            "How frequencies are chosen: drawn at random, each by itself or orthogonal in blocks, or the "
            "lattice on which a Gaussian kernel's sum is exact; auto takes the lattice, whole or with "
            "a drawn tail, where it has less error, else random ones.",
            symbol="F", unit="none", default="auto",
            hint="auto; orthogonal may err less in many columns, with intervals as wide.",
        ),
    ] = "auto"  # fmt: skip
    per_label: PerLabel = False
    count_weight: Annotated[
        int | None,
        param(
            "Integer weight of the total count's own cell.", symbol="w", unit="none", default=None,
            ge=1, le=2**20, hint="default round(S sqrt(D / 20)): about 5 % of a zCDP budget.",
        ),
    ] = None  # fmt: skip

    moments: Annotated[
        bool,
        LATER,
        param(
            "Whether sums of products of the rows' columns are released beside the features, of all "
            "classes together, for about a twentieth of the budget: points that are grown from the "
            "release (`public: grown`) are first drawn from their Gaussian.",
            symbol="M", unit="none", default=False,
            hint="true from 4 columns on, up to about 64; `public: auto` then grows points. Where no two "
            "halves of 200 draws are (an exact lattice) nothing is added, and nothing is spent.",
        ),
    ] = False  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``fourier_sketch.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        if self.phases & (self.phases - 1):
            raise ParameterError(
                "OS102", f"{self.key}.phases", expected="a power of two", got=self.phases,
                hint="write phases: 64.",
            )  # fmt: skip
        lattice = self._lattice(rows)
        reader = self._random(rows) if lattice is None else lattice
        if isinstance(reader, FourierReader):
            block, weight = self._random_block(reader), self.weight
            spread = math.sqrt(0.5) * reader.gain * reader.reach
        else:
            block, weight = reader.features_block, reader.weight
            spread = reader.spread()
        total = SketchBlock(
            "total", (reader.classes,), l1=weight, l2_squared=weight**2, linf=weight
        )
        told: dict[str, float] = {}
        ways: Ways = reader.accumulate, reader.accumulate_on
        blocks: tuple[SketchBlock, ...] = (block, total)
        if self.moments and reader.in_halves:
            moments = MomentsBeside.of(rows, block.l2_squared)
            vars(reader).update(moments=moments)
            ways, blocks = _beside(reader, moments), (*blocks, moments.block)
            share = moments.block.l2_squared / moments.block.weight**2
            told["share of moments"] = share / float(
                Sketch(self.key, blocks).sensitivity.l2_squared
            )
        return Stable(
            output=(output := Sketch(self.key, blocks)),
            accumulate=ways[0],
            on_device=ways[1],
            sensitivity=output.sensitivity,
            capabilities={"kernel_sums": reader},
            matrices=reader.matrices,
            constants=() if lattice is None else tuple(lattice.multipliers.tolist()),
            advice=self._advice(rows),
            expected={
                "noise per unit of cell noise": reader.noise_factor(),
                "sampling deviation per far record": spread,
                "error per record": float(reader.bias()),
                "kernel steepness": self.kernel.steepness,
            }
            | told,
        )

    def _random(self, rows: GridRows) -> FourierReader:
        """Return the reader of drawn frequencies."""
        orthogonal = self.features == "orthogonal"
        reader = FourierReader.bound(self, rows, orthogonal=orthogonal)
        normal = all(isinstance(term.kernel, GaussianKernel) for term in reader.terms)
        if orthogonal and (rows.width < 2 or not normal):
            raise ParameterError(
                "OS102", f"{self.key}.features",
                expected="a gaussian kernel in two columns or more",
                got="another kernel, or one column", hint="write features: random.",
            )  # fmt: skip
        return reader

    def _random_block(self, reader: FourierReader) -> SketchBlock:
        """State Lemma 1."""
        return SketchBlock(
            "features",
            (reader.classes, self.frequencies, 2),
            l1=self.frequencies * int(np.abs(reader.table).sum(axis=1).max()),
            l2_squared=self.frequencies * AMPLITUDE**2,
            linf=int(np.abs(reader.table).max()),
        )

    def _lattice(self, rows: GridRows) -> LatticeReader | None:
        """Return the lattice that holds the kernel, or None for random frequencies."""
        if self.features in ("random", "orthogonal"):
            return None
        exact = self.features == "deterministic"
        lattice = LatticeReader.fit(self, rows, exact=exact)
        if lattice is None and exact:
            raise ParameterError(
                "OS102", f"{self.key}.features",
                expected="a gaussian kernel that `frequencies` hold to 1e-3",
                got="another kernel, or one that needs more frequencies",
                hint="write features: auto, allow more frequencies, or widen the bandwidth.",
            )  # fmt: skip
        return lattice

    def _advice(self, rows: GridRows) -> tuple[str, ...]:
        return kept_distance(rows, self.kernel.metric)

    @property
    def weight(self) -> int:
        """The weight of the total's cell that is in force."""
        if self.count_weight is not None:
            return self.count_weight
        return max(1, round(AMPLITUDE * math.sqrt(self.frequencies / 20)))


Ways = tuple[Callable[[Any, NDArray[np.int64]], None], Callable[..., None]]


def _beside(reader: FourierReader | LatticeReader, moments: MomentsBeside) -> Ways:
    """Return both ways to add up features, moments last."""
    cells = moments.block.size

    def accumulate(data: Any, out: NDArray[np.int64]) -> None:
        reader.accumulate(data, out)
        moments.accumulate(data, out[-cells:])

    def on_device(device: Device, values: OnDevice, labels: Any, out: NDArray[np.int64]) -> None:
        reader.accumulate_on(device, values, labels, out)
        moments.accumulate_on(device, values, out[-cells:])

    return accumulate, on_device


make_fourier_sketch, then_fourier_sketch = constructors(FourierSketch)
