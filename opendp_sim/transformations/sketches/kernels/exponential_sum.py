"""Approximate 1/(1+z) by exponential kernels with own structures.

Proof of the stability map and of the error: ``exponential_sum.md``, beside this file. It is the
published route; ``fourier_sketch`` with the ``rational`` kernel needs one structure and is better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.lazy_matrices import Drawn
from opendp_sim.core.capabilities import Arrays, KernelEstimates, KernelSums
from opendp_sim.core.claims import SketchBlock, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import Mechanism, Option, Proof, one_of, param, register
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import grid_rows, kept_distance
from opendp_sim.domains.sketch import Sketch
from opendp_sim.transformations.sketches._impl.classes import PerLabel
from opendp_sim.transformations.sketches.kernels._impl.kernels import (
    Exponential,
    GaussianKernel,
    Laplacian,
    Rational,
)
from opendp_sim.transformations.sketches.kernels.fourier_sketch import FourierSketch
from opendp_sim.transformations.sketches.kernels.gauss_transform_sketch import GaussTransformSketch

# --------------------------------------------------------------------------------------------------
# The reader of a weighted sum of kernels: its terms' readers, weighted.
#
# The proofs are in ``exponential_sum.md``, beside the mechanism.


@dataclass(frozen=True)
class SumReader:
    """Build one sketch's terms, and read its release."""

    limit: Rational
    """The kernel 1/(1+z) that the sum comes near to."""
    accuracy: float
    """How near, at most."""
    claims: tuple[Stable, ...]
    weights: NDArray[np.float64]
    noise: tuple[int, ...]
    biased: bool
    """Whether the terms have truncation errors, which may all point one way."""

    @cached_property
    def terms(self) -> tuple[KernelSums, ...]:
        """The terms' own readers."""
        return tuple(claim.capabilities["kernel_sums"] for claim in self.claims)

    @property
    def labels(self) -> tuple[str | int, ...] | None:
        """The public labels of the classes, or None."""
        return self.terms[0].labels

    @property
    def distance(self) -> str:
        """The distance that the kernel is a function of."""
        return self.terms[0].distance

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to ``out``, term after term."""
        start = 0
        for claim in self.claims:
            size = claim.output.size  # type: ignore[attr-defined]
            claim.accumulate(data, out[start : start + size])  # type: ignore[misc]
            start += size

    def _own(self, released: Arrays, index: int) -> Arrays:
        prefix = f"t{index}_"
        return {n.removeprefix(prefix): a for n, a in released.items() if n.startswith(prefix)}

    def estimate(self, released: Arrays, queries: Any, groups: int = 1) -> KernelEstimates:
        """Return the weighted sum of the terms' estimates (Lemma 2)."""
        found = [
            term.estimate(self._own(released, index), queries, groups)
            for index, term in enumerate(self.terms)
        ]
        scaled = zip(self.weights, found, strict=True)
        sums = sum(weight * one.groups for weight, one in scaled)
        total = sum(w * w * one.variance for w, one in zip(self.weights, found, strict=True))
        sampled = [w * w * one.plain_variance for w, one in zip(self.weights, found, strict=True)]
        least = np.min([one.freedom.min() for one in found if one.freedom.size], initial=math.inf)
        return KernelEstimates(
            np.asarray(sums),
            np.asarray(total),
            found[0].repetitions,
            np.asarray(least),
            jump=np.asarray(sum(w * one.jump for w, one in zip(self.weights, found, strict=True))),
            grain=np.asarray(
                sum(w * one.grain for w, one in zip(self.weights, found, strict=True))
            ),
            sampled=np.asarray(sum(sampled)),
            skew=max(one.skew for one in found),
        )

    def totals(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the mean of the terms' sizes, each weighted by its precision."""
        precision = self._precision()
        sizes = np.array(
            [term.totals(self._own(released, i))[0] for i, term in enumerate(self.terms)]
        )
        mean = (sizes * precision[:, None]).sum(axis=0) / precision.sum()
        return mean, self.count_factor()

    def medians_of(self, groups: int) -> int:
        """Return the number of groups of `estimate`, 1 without draws."""
        return self.terms[0].medians_of(groups)

    def count_factor(self) -> float:
        """Return the record count's deviation per unit of cell noise."""
        return float(self._precision().sum() ** -0.5)

    def _precision(self) -> NDArray[np.float64]:
        factors = np.array([term.count_factor() for term in self.terms])
        precision: NDArray[np.float64] = (factors * np.array(self.noise)) ** -2.0
        return precision

    def with_count(self) -> float:
        """Return the covariance of an estimate and the count per cell variance."""
        own = np.array([term.with_count() for term in self.terms]) * np.square(self.noise)
        precision = self._precision()
        return float((self.weights * own * precision).sum() / precision.sum())

    def noise_factor(self) -> float:
        """Return an estimate's noise per unit of cell noise (Lemma 3)."""
        factors = np.array([term.noise_factor() for term in self.terms])
        return float(np.linalg.norm(self.weights * factors * np.array(self.noise)))

    def bias(self, queries: Any = None) -> float:
        """Return a kernel value's largest error, with that of terms."""
        del queries
        terms = zip(self.weights, self.terms, strict=True)
        return self.accuracy + float(sum(w * float(term.bias()) for w, term in terms))

    def change(self, moved: float) -> float:
        """Bound a kernel value's change when its distance changes by ``moved``."""
        return min(moved * self.limit.slope, 1.0)

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return 1/(1+z), which the estimate approximates within the stated accuracy."""
        return self.limit.value(distance)

    def approximated(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of exponentials, which terms estimate, at real distances."""
        terms = zip(self.weights, self.terms, strict=True)
        found: NDArray[np.float64] = sum(
            (weight * term.kernel(distance) for weight, term in terms), np.zeros_like(distance)
        )
        return found

    def sketch_deviation(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the deviation without noise of terms and kernel."""
        terms = [
            weight * term.sketch_deviation(distance)
            for weight, term in zip(self.weights, self.terms, strict=True)
        ]
        # Random errors of different terms are independent; truncations may all point one way.
        bound: NDArray[np.float64] = (
            np.sum(terms, axis=0) if self.biased else np.sqrt(np.square(terms).sum(axis=0))
        )
        return bound + len(distance) * self.accuracy


# --------------------------------------------------------------------------------------------------

_FINEST = 1000
"""Weights are integers; the smallest is this, so rounding them moves a share by 0.05 % at most."""


class Fourier(Option):
    """Each term is a ``fourier_sketch``."""

    key: ClassVar[str] = "fourier"
    frequencies: Annotated[
        int,
        param(
            "Frequencies of each term.", symbol="D", unit="frequencies", ge=1, le=65536,
            hint="100 to 2,000.",
        ),
    ]  # fmt: skip


class GaussTransform(Option):
    """Each term is a ``gauss_transform_sketch``; only for the squared L2 distance."""

    key: ClassVar[str] = "gauss_transform"
    order: Annotated[
        int, param("Exponents per column.", symbol="o", unit="terms", ge=1, le=14, hint="6 to 10.")
    ] = 8


@register
class ExponentialSum(Mechanism):
    r"""Approximate the kernel 1/(1+z) by exponential kernels.

    One structure a term.

    Space
        Input: rows on an integer grid, with or without labels, under symmetric distance.
        Output: a flat int64 vector: the blocks of every term's structure, named ``t0_...``,
        ``t1_...``, each with an integer noise weight.

    Stability
        .. math:: L_1 = \sum_i L_1^{(i)} / m_i,\quad L_2^2 = \sum_i (L_2^{(i)} / m_i)^2

        over the terms, with the sensitivity of each and its noise weight :math:`m_i`, proportional to
        :math:`w_i^{-1/2}` (or all 1 with ``split: equal``). Exact. Not monotone.

    Privacy
        None on its own. Chain with noise.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): the Gauss transform for
        another distance than the squared L2. SpaceError: as the terms' structures say.

    Source
        [own] Lemma 1 in ``exponential_sum.md``; the idea is Sachdeva and Vishnoi's, used for this by
        Backurs, Lin, Mahabadi, Silwal and Tarnawski.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
        >>> sketch = (space >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
        ...     >> sim.then_exponential_sum(accuracy=0.1, bandwidth=0.5, seed=7,
        ...                                 split="equal", structure={"fourier": {"frequencies": 2}}))
        >>> len(sketch(np.zeros((5, 2))))
        20
    """

    key: ClassVar[str] = "exponential_sum"
    in_short: ClassVar[str] = "Keep several density structures, whose sum follows the wanted curve."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "sketches"
    offers = ("kernel_sums",)

    bandwidth: Annotated[
        float,
        param(
            "Bandwidth: z is the distance over it (squared for l2_squared).", symbol="sigma",
            unit="data units", gt=0, hint="the distance at which the kernel is one half.",
        ),
    ]  # fmt: skip
    distance: Annotated[
        Literal["l2", "l2_squared", "l1"],
        param(
            "Which distance z is.", symbol="z", unit="none", default="l2_squared",
            hint="as in the `rational` kernel.",
        ),
    ] = "l2_squared"  # fmt: skip
    accuracy: Annotated[
        float,
        param(
            "Largest error of the kernel, for every z.", symbol="alpha", unit="kernel value",
            default=0.01, ge=1e-8, le=0.5, hint="0.1 needs 4 terms, 0.01 needs 8, 1e-4 needs 19.",
        ),
    ] = 0.01  # fmt: skip
    structure: Annotated[
        Fourier | GaussTransform,
        one_of(Fourier, GaussTransform),
        param(
            "What holds each term.", symbol="k", unit="none",
            hint="{fourier: {frequencies: 500}}, or {gauss_transform: {order: 8}} up to 3 columns.",
        ),
    ]  # fmt: skip
    split: Annotated[
        Literal["weighted", "equal"],
        param(
            "How noise is shared out between the terms.", symbol="m", unit="none",
            default="weighted", hint="weighted is optimal under zCDP; equal is the published split.",
        ),
    ] = "weighted"  # fmt: skip
    seed: Seed
    per_label: PerLabel = False

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``exponential_sum.md``, the terms' lemmas weighted."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        rates, weights = rates_and_weights(self.accuracy)
        claims = tuple(
            self._term(index, rate).bind(domain, metric) for index, rate in enumerate(rates)
        )
        blocks = tuple(
            _renamed(block, index, noise)
            for index, (claim, noise) in enumerate(zip(claims, self._noise(weights), strict=True))
            for block in claim.output.blocks  # type: ignore[attr-defined]
        )
        reader = SumReader(
            Rational(bandwidth=self.bandwidth, distance=self.distance),
            self.accuracy,
            claims,
            weights,
            self._noise(weights),
            biased=isinstance(self.structure, GaussTransform),
        )
        return Stable(
            output=(output := Sketch(self.key, blocks)),
            accumulate=reader.accumulate,
            sensitivity=output.sensitivity,
            capabilities={"kernel_sums": reader},
            matrices=Drawn(
                sum(getattr(claim.matrices, "nbytes", 0) for claim in claims),
                lambda: [matrix for claim in claims for matrix in claim.matrices],
            ),
            expected={
                "noise per unit of cell noise": reader.noise_factor(),
                "error per record": reader.bias(),
                "terms": float(len(rates)),
            },
            advice=kept_distance(rows, reader.distance),
        )

    def _term(self, index: int, rate: float) -> FourierSketch | GaussTransformSketch:
        """The structure of ``exp(-rate z)``, as a kernel of its own bandwidth."""
        scale = self.bandwidth / (math.sqrt(rate) if self.distance == "l2_squared" else rate)
        seed = (self.seed + index) % 2**63
        if isinstance(self.structure, GaussTransform):
            if self.distance != "l2_squared":
                raise ParameterError(
                    "OS102", f"{self.key}.structure", expected="fourier for this distance",
                    got="gauss_transform", hint="write distance: l2_squared, or use fourier.",
                )  # fmt: skip
            return GaussTransformSketch(
                bandwidth=scale, order=self.structure.order, per_label=self.per_label
            )
        kernels: dict[str, Any] = {"l2": Exponential, "l2_squared": GaussianKernel, "l1": Laplacian}
        return FourierSketch(
            frequencies=self.structure.frequencies,
            features="random",
            kernel=kernels[self.distance](bandwidth=scale),
            seed=seed,
            per_label=self.per_label,
        )

    def _noise(self, weights: NDArray[np.float64]) -> tuple[int, ...]:
        if self.split == "equal":
            return (1,) * len(weights)
        shares = np.sqrt(weights.max() / weights)
        return tuple(int(v) for v in np.rint(_FINEST * np.minimum(shares, 1e6)))


def rates_and_weights(accuracy: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rates t_j and weights w_j with ``|sum w_j exp(-t_j z) - 1/(1+z)| <= accuracy``, z >= 0.

    The trapezoid rule of ``1/(1+z) = int exp(u - e^u) exp(-e^u z) du`` (Lemma 2).
    """
    low, high = 0.05, 10.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _aliasing(middle) <= accuracy / 2 else (low, middle)
    least, most = math.log(4 / accuracy), math.log(math.log(4 / accuracy))
    u = low * np.arange(-math.ceil(least / low), math.ceil(most / low) + 1)
    return np.exp(u), low * np.exp(u - np.exp(u))


def _aliasing(step: float) -> float:
    """Bound the trapezoid's relative error."""
    q = 2 * math.pi**2 * np.arange(1, 60) / step
    # sqrt(q / sinh q), written so that nothing overflows.
    return float(2 * np.sqrt(2 * q / -np.expm1(-2 * q)).dot(np.exp(-q / 2)))


def _renamed(block: SketchBlock, index: int, noise: int) -> SketchBlock:
    return SketchBlock(
        f"t{index}_{block.name}",
        block.shape,
        l1=block.l1,
        l2_squared=block.l2_squared,
        linf=block.linf,
        weight=noise,
    )


make_exponential_sum, then_exponential_sum = constructors(ExponentialSum)
