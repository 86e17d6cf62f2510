"""Fit one column linearly on others from a release (``regress.md``)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, SecondMomentSums, SurrogateLoss
from opendp_sim.core.claims import Post
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import optimize
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.postprocessing._impl.asked import a_release, check_queries
from opendp_sim.postprocessing.modes import points_of

_STRENGTHS = 13
"""Candidate fits: slopes as large as the target's variance allows, then half as large in square, ..."""


@register
class Regress(Mechanism):
    r"""Fit a column as a linear function of the others.

    Predict, or return the coefficients.

    Space
        Input: a release of ``second_moments`` (least squares, shrunk as far as its noise asks) or of
        ``paired_projections`` (the published surrogate, minimised without derivatives), and public
        queries of shape (q, d) in data units, whose target column is ignored. Output: the column
        ``prediction`` of shape (q,), clipped to the target's public bounds; or, with ``answer:
        coefficients``, the column ``coefficient`` of shape (d,): the intercept, then the other columns
        in order, in data units.

        No error of a coefficient is stated: the fit shrinks slopes by as much as the noisy sums call
        for, and what that moves depends on the true slopes, which nothing released bounds.

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release and public queries: no further loss.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): no such column.
        SpaceError (OS201): not a release. ReleaseError (OS702): a release of something else.
        DataError (OS607): queries of another width, or not finite.

    Source
        [own] Lemmas 1 to 5 in ``regress.md``; adapting to the released matrix is Wang's idea, the
        surrogate Coleman and Shrivastava's.

    Example
        >>> Regress(target=1).spec()["answer"]
        'prediction'
    """

    key: ClassVar[str] = "regress"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "queries"
    asks_for = ("second_moments", "surrogate_loss")

    target: Annotated[
        int | None,
        param(
            "Index of the column to predict, among the sketch's columns; nothing for the last.",
            symbol="t", unit="none", default=None, ge=0, le=4095,
            hint="write the column's number: from 0, in the order of `select: features`.",
        ),
    ] = None  # fmt: skip
    answer: Annotated[
        Literal["prediction", "coefficients"],
        param(
            "What to return.", symbol="a", unit="none", default="prediction",
            hint="coefficients needs no queries.",
        ),
    ] = "prediction"  # fmt: skip
    evaluations: Annotated[
        int,
        param(
            "Most evaluations of the surrogate by the optimiser.", symbol="e", unit="evaluations",
            default=1000, ge=10, le=10**6, hint="only for paired_projections; 100 a column is enough.",
        ),
    ] = 1000  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a release of second moments or of paired projections."""
        del metric
        release = a_release(self.key, domain)
        least_squares = "surrogate_loss" not in release.capabilities
        name = "second_moments" if least_squares else "surrogate_loss"
        noise = "noise of a sum of products" if least_squares else "noise of the summed loss"
        sums: Any = release.capability(name, self.key)
        target, factor = self._target(sums.width), sums.noise_factor()
        low, high = sums.bounds(target)
        to_data = points_of(self.key, release)

        def answer(released: Arrays, queries: Any = None) -> dict[str, NDArray[np.float64]]:
            fit = self._squares if least_squares else self._surrogate
            coefficients = fit(sums, released, target, release.deviation)
            if self.answer == "coefficients":
                return {"coefficient": coefficients}
            checked = check_queries(release, queries)
            values = to_data(np.asarray(getattr(checked, "values", checked)))
            others = np.delete(values, target, axis=1)
            fitted = coefficients[0] + (others * coefficients[1:]).sum(axis=1)
            return {"prediction": np.clip(fitted, low, high)}  # Lemma 5

        asks = self.answer == "prediction"
        output = AnswerColumns(("prediction",) if asks else ("coefficient",))
        return Post(
            answer,
            takes="release",
            output=output,
            asks=asks,
            expected={noise: release.deviation * factor},
            unit="the unit of the target column" if asks else "",
        )

    def _target(self, width: int) -> int:
        target = width - 1 if self.target is None else self.target
        if target >= width:
            raise ParameterError(
                "OS102", f"{self.key}.target", expected=f"a column below {width}", got=target,
                hint="columns are numbered from 0 in the order of `select: features`.",
            )  # fmt: skip
        return target

    def _squares(
        self, sums: SecondMomentSums, released: Arrays, target: int, deviation: float
    ) -> NDArray[np.float64]:
        gram, factor = sums.gram(released)
        return sums.to_data(least_squares(gram, target + 1, deviation * factor), target)

    def _surrogate(
        self, sums: SurrogateLoss, released: Arrays, target: int, deviation: float
    ) -> NDArray[np.float64]:
        del deviation

        def loss(free: NDArray[np.float64]) -> float:
            direction = np.insert(free, target + 1, -1.0)
            return float(sums.loss(released, direction[None])[0])

        start = np.zeros(sums.width)
        corners = np.vstack([start, 0.5 * np.eye(sums.width)])
        options = {"maxfev": self.evaluations, "adaptive": True, "initial_simplex": corners}
        found = optimize.minimize(loss, start, method="Nelder-Mead", options=options)
        return sums.to_data(np.asarray(found.x, dtype=np.float64), target)


def least_squares(gram: NDArray[np.float64], target: int, noise: float) -> NDArray[np.float64]:
    """Fit one column from noisy sums of products on the others.

    ``gram`` (c, c) has columns in [-1, 1], the constant 1 first; ``target`` is at least 1, ``noise``
    the deviation of an entry. Returns the intercept, then the other columns' slopes, shape (c - 1,), in
    the units of ``gram``.
    """
    others = np.delete(np.arange(1, len(gram)), target - 1)
    count, variance = max(float(gram[0, 0]), 0.0), noise * noise
    # Lemma 2: a mean in [-1, 1] with the least largest risk; also what keeps 1 / count finite.
    share = count / (count * count + variance) if count > 0.0 else 0.0
    means = np.clip(gram[0] * share, -1.0, 1.0)
    centred = gram - np.outer(gram[0], gram[0]) * share
    # Centring adds the noise of the means to that of the products.
    spread = 1.0 + float(np.square(means[others]).mean()) if len(others) else 1.0
    of_target = 1.0 + float(means[target]) ** 2
    slopes = _slopes(
        centred[np.ix_(others, others)],
        centred[others, target],
        float(centred[target, target]),
        variance * spread * of_target,
        variance * spread * spread,
    )
    start = means[target] - float((slopes * means[others]).sum())
    return np.concatenate([[start], slopes])


def _slopes(
    inner: NDArray[np.float64],
    cross: NDArray[np.float64],
    total: float,
    of_cross: float,
    of_inner: float,
) -> NDArray[np.float64]:
    """Return the slopes of least estimated risk (Lemmas 3, 4)."""
    eigenvalues, vectors = np.linalg.eigh(inner)
    along = (vectors * cross[:, None]).sum(axis=0)
    largest = float(eigenvalues.max(initial=0.0))
    usable = eigenvalues > 1e-12 * max(1.0, largest)
    kept = np.where(usable, eigenvalues, 0.0)
    best, chosen = 0.0, np.zeros(len(kept))
    most = max(total, 0.0) / max(float(kept.sum()), 1e-12)
    for strength in range(_STRENGTHS):
        size = most * 0.5**strength
        noise = of_cross + of_inner * len(kept) * size
        divisor = size * kept * kept + noise
        filtered = np.where(usable, size * kept / np.where(divisor > 0.0, divisor, 1.0), 0.0)
        found = filtered * along
        taken = 2.0 * (of_cross + of_inner * float(np.square(found).sum())) * filtered
        risk = float((kept * found * found - 2.0 * along * found + taken).sum())
        if risk < best:
            best, chosen = risk, found
    slopes: NDArray[np.float64] = (vectors * chosen).sum(axis=1)
    return slopes
