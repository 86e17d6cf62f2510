"""Weighted sums of kernels in one release: each frequency serves one term, weights stay outside.

The lemma is Lemma 6 of ``fourier_sketch.md``.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import one_of, param
from opendp_sim.sketches.kernels.parts.kernels import KERNELS, Kernel, OneKernel, Term

__all__ = ["Weighted"]

_LEAST = 2
"""Frequencies a term must have: one alone has no sample variance, and so no standard error."""
_Weight = Annotated[float, Field(ge=-1e6, le=1e6)]


class Weighted(Kernel):
    """``w_1 k_1 + w_2 k_2 + ...``, with weights of either sign: one release, no budget split.

    Every frequency belongs to one term, in numbers proportional to ``|w_i|``; the weight and its sign
    multiply released cells only, so that the noise costs ``sum |w_i|`` times a single kernel's.
    """

    key: ClassVar[str] = "weighted"
    terms: Annotated[
        tuple[tuple[_Weight, Annotated[OneKernel, one_of(*KERNELS)]], ...],
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
    """Split ``count``: two to each, what is left in proportion to ``weights``, the sum exact."""
    spare, total = count - _LEAST * len(weights), float(weights.sum())
    part = weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))
    given = np.floor(part * spare).astype(np.int64)
    most_cut = np.argsort(given - part * spare, kind="stable")
    given[most_cut[: spare - int(given.sum())]] += 1
    return given + _LEAST
