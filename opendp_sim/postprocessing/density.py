"""Answer queries' kernel densities from one release (``density.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, KernelEstimates, KernelSums
from opendp_sim.core.claims import Post
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.shared_parameters import Confidence
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.domains.rows import GridRows
from opendp_sim.postprocessing._impl.asked import a_release, check_queries, kernel_sums
from opendp_sim.postprocessing._impl.control_variate import PublicPoints, most_sampled, with_public
from opendp_sim.postprocessing._impl.noise_quantiles import laplace_quantile
from opendp_sim.postprocessing._impl.ratios import interval_of_ratio

COLUMNS = (
    *("density", "noise_error", "sketch_error", "lower", "upper", "likely_lower", "likely_upper"),
    *("records", "least_records"),
)
_OF_COUNT = 4.0
"""Deviations of the count that a class must exceed: an empty one does so 3 times in 100,000."""
_OF_SUM = 16.0
"""Deviations of a sum that it must exceed: an empty class's mean then deviates by 1/16 from 0."""


@register
class Density(Mechanism):
    r"""Estimate kernel sums at queries, with errors and intervals.

    :math:`\sum_x k(x, q)` for every query q and class.

    Space
        Input: a release of a sketch that offers ``kernel_sums`` (``race_sketch``,
        ``fourier_sketch``, ...), and public queries of shape (q, d) in data units.
        Output: columns ``density``, ``noise_error``, ``sketch_error``, ``lower``, ``upper``,
        ``likely_lower``, ``likely_upper``, ``records`` (the released class sizes) and ``least_records``
        (the size below which a class is within the noise), each of shape (q, L), L being the number of
        classes (1 without ``per_label``). The interval holds noise, sketch and rounding to the grid,
        however all roundings fall; the likely one where they are in no order (Lemma 9), as they are
        unless values have few digits. Both are about the rows as they were clipped and projected:
        `plan` shows what that may cost, beside those steps.

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release and public queries: no further loss.

    Raises
        ParameterError (OS101): a parameter is outside its range. ReleaseError (OS702): the release
        has no kernel sums. SpaceError (OS201): not a release. DataError (OS607): queries of another
        width, or not finite.

    Source
        [own] Lemmas 1 to 5 in ``density.md``; median of means as in Theorem 4 of Coleman and
        Shrivastava.

    Example
        >>> Density(confidence=0.9).spec()["estimator"]
        'mean'
    """

    key: ClassVar[str] = "density"
    in_short: ClassVar[str] = (
        "Say how many similar records there are around the point of each question."
    )
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "queries"
    asks_for = ("kernel_sums",)

    estimator: Annotated[
        Literal["mean", "median_of_means"],
        param(
            "How repetitions are combined.", symbol="m", unit="none", default="mean",
            hint="mean has the smaller error; median_of_means guards against heavy tails.",
        ),
    ] = "mean"  # fmt: skip
    groups: Annotated[
        int,
        param(
            "Groups of the median of means; at most one a repetition.", symbol="g", unit="groups",
            default=9, ge=3, le=999,
            hint="8 ln(1 / failure probability) is the theorem's choice; 9 to 41 is usual.",
        ),
    ] = 9  # fmt: skip
    confidence: Confidence = 0.95
    normalise: Annotated[
        bool,
        param(
            "Divide by the released number of records, or by `least_records` if that is more: a mean "
            "kernel value instead of a sum.",
            symbol="N", unit="none", default=False, hint="true gives values comparable between sizes.",
        ),
    ] = False  # fmt: skip

    public: PublicPoints = "auto"

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a release that offers kernel sums."""
        del metric
        sums, deviation = kernel_sums(self.key, domain)
        noise, rounding = deviation * sums.noise_factor(), rounding_bound(sums, domain)
        least = laplace_quantile(a_release(self.key, domain), self.confidence)
        expected = self._expected(
            math.sqrt(self._loss(sums)) * noise, deviation * sums.count_factor()
        )
        expected |= {
            f"{name}, per record at most": value
            for name, value in (
                ("bias", float(sums.bias())),
                ("sampling", math.sqrt(self._loss(sums)) * most_sampled(sums)),
                ("rounding", rounding),
            )
            if value
        }

        def answer(released: Arrays, queries: Any) -> dict[str, NDArray[np.float64]]:
            asked = check_queries(domain, queries)
            read = with_public(self.public, self.key, domain, sums, deviation, asked)
            fixed = rounding, likely_rounding(sums, domain)
            return self._answer(read, released, asked, (noise, deviation, least), fixed)

        return Post(
            answer,
            takes="release",
            by_query=self.public != "queries",
            output=AnswerColumns(COLUMNS, sums.labels, self.normalise),
            expected=expected,
            of_a_record=1.0,
            unit="a share of all records" if self.normalise else "records",
            likely={"bias": float(likely_bias(sums)), "rounding": likely_rounding(sums, domain)},
        )

    def _loss(self, sums: KernelSums) -> float:
        """Return what the median multiplies the variance by, at most (Lemma 6)."""
        median = self.estimator == "median_of_means" and sums.medians_of(self.groups) > 2
        return math.pi / 2 if median else 1.0

    def _expected(self, noise: float, of_count: float) -> dict[str, float]:
        """Return a mean's error terms, besides the number of records."""
        if not self.normalise:
            return {"noise_error": noise}
        return {
            "noise_error times records": noise,
            "noise of the number of records": of_count,
            "least records": least_records(of_count, noise),
        }

    def _answer(
        self,
        sums: KernelSums,
        released: Arrays,
        queries: Any,
        errors: tuple[float, float, float],
        roundings: tuple[float, float],
    ) -> dict[str, NDArray[np.float64]]:
        noise, deviation, of_laplace = errors
        groups = self.groups if self.estimator == "median_of_means" else 1
        found = sums.estimate(released, queries, groups)
        loss = self._loss(sums)
        part = self._estimated(found, (loss, noise, deviation, of_laplace))
        lower, upper = part.values - part.reach, part.values + part.reach
        sizes, factor = sums.totals(released)
        least = least_records(factor * deviation, math.sqrt(loss) * noise)
        sure, likely = roundings
        usual = np.reshape(likely_bias(sums, queries), (-1, 1)) + likely
        bias = np.reshape(sums.bias(queries), (-1, 1)) + sure
        records = np.maximum(sizes, 0.0) + _OF_COUNT * factor * deviation
        if self.normalise:
            together, of_count = sums.with_count() * deviation**2, (factor * deviation) ** 2
            low, high = part.ends_of_mean(sizes, together, of_count)
            seen = (sizes >= least) & np.isfinite(low) & np.isfinite(high)
            lower = np.where(seen, low, np.minimum(lower, 0.0))  # Lemmas 8 and 2
            upper = np.where(seen, high, np.maximum(upper, 0.0))
            part = part.mean(sizes, least, together, of_count)
            records = np.ones_like(sizes)
        shift, own = bias * records, part.quantile * usual * records
        columns = (
            part.values,
            np.sqrt(part.noise_variance),
            np.sqrt(part.sketch_variance),
            lower - shift,
            upper + shift,
            np.maximum(part.values - np.hypot(part.values - lower, own), lower - shift),
            np.minimum(part.values + np.hypot(upper - part.values, own), upper + shift),
            np.broadcast_to(sizes, part.values.shape).copy(),
            np.full_like(part.values, least),
        )
        return dict(zip(COLUMNS, columns, strict=True))

    def _estimated(self, found: KernelEstimates, errors: tuple[float, ...]) -> _Estimated:
        """Return the groups' median with variances and quantiles."""
        loss, noise, deviation, of_laplace = errors
        values = np.median(found.groups, axis=0).T
        total = loss * found.variance.T / found.repetitions
        noise_variance = np.full_like(values, loss * noise**2)
        sketch_variance = np.maximum(total - found.noise_share * noise_variance, 0.0)
        # The deviation is estimated from the repetitions, so an interval reaches farther for few.
        quantile = np.maximum(
            special.stdtrit(found.freedom.T, 0.5 + self.confidence / 2), of_laplace
        )
        skewed = quantile + found.skew * (1.0 + 2.0 * quantile**2) / 6.0  # Lemma 5
        unseen = self._unseen(found, deviation)
        return _Estimated(values, noise_variance, sketch_variance, quantile, skewed, unseen)

    def _unseen(self, found: KernelEstimates, deviation: float) -> NDArray[np.float64]:
        """Bound the error that no repetition has shown (Lemma 3)."""
        hidden = -math.log(0.5 - self.confidence / 2)
        least = max(1, found.repetitions // len(found.groups))
        unseen: NDArray[np.float64] = np.maximum(
            found.jump - _OF_COUNT * found.jump_noise * deviation, 0.0
        )
        unseen *= min(hidden / least, 1.0)
        return unseen


@dataclass(frozen=True)
class _Estimated:
    """Hold kernel sums or means with interval parts, by query and class."""

    values: NDArray[np.float64]
    noise_variance: NDArray[np.float64]
    sketch_variance: NDArray[np.float64]
    quantile: NDArray[np.float64]
    """Deviations that the interval reaches for noise; ``skewed`` are those for the sketch."""
    skewed: NDArray[np.float64]
    unseen: NDArray[np.float64]

    @property
    def reach(self) -> NDArray[np.float64]:
        """Half the interval."""
        noise = self.quantile * np.sqrt(self.noise_variance)
        return np.asarray(
            np.hypot(noise, self.skewed * np.sqrt(self.sketch_variance)) + self.unseen
        )

    def ends_of_mean(
        self, sizes: NDArray[np.float64], together: float, of_count: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a mean's interval (Lemma 8)."""
        times = np.square(self.quantile)
        square = times * self.noise_variance + np.square(self.skewed) * self.sketch_variance
        noise = square, times * together, times * of_count
        low, _ = interval_of_ratio(self.values - self.unseen, sizes, *noise)
        _, high = interval_of_ratio(self.values + self.unseen, sizes, *noise)
        return low, high

    def mean(
        self, sizes: NDArray[np.float64], least: float, together: float, of_count: float
    ) -> _Estimated:
        """Divide by released sizes, at least ``least`` (Lemma 7)."""
        divisor = np.maximum(sizes, least)
        values = self.values / divisor
        of_divisor = np.where(sizes > least, values * (values * of_count - 2 * together), 0.0)
        return replace(
            self,
            values=values,
            noise_variance=np.maximum(self.noise_variance + of_divisor, 0.0) / divisor**2,
            sketch_variance=self.sketch_variance / divisor**2,
        )


def rounding_bound(sums: KernelSums, domain: Domain) -> float:
    """Bound the kernel change by rounding record and query (Lemma 4)."""
    rows = getattr(domain, "queries", None)
    return sums.change(rows.moved(sums.distance)) if isinstance(rows, GridRows) else 0.0


def likely_bias(sums: KernelSums, queries: Any = None) -> Any:
    """Return the root mean square of a sketch's bias, or its bound."""
    known = getattr(sums, "likely_bias", sums.bias)
    return known(queries)


def likely_rounding(sums: KernelSums, domain: Domain) -> float:
    """Return the root mean square of ``rounding_bound`` (Lemma 9)."""
    rows = getattr(domain, "queries", None)
    if not isinstance(rows, GridRows):
        return 0.0
    return sums.change(rows.moved(sums.distance) / math.sqrt(6.0))


def least_records(of_count: float, of_sum: float) -> float:
    """Return the least released size that noise does not hide.

    Public: from the deviations of the released number of records and of noise on a kernel sum.
    """
    return max(1.0, _OF_COUNT * of_count, _OF_SUM * of_sum)
