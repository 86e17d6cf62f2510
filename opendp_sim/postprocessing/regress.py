"""Fit one column linearly on others from a release (``regress.md``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.least_squares import CentredSums
from opendp_sim.core.capabilities import Arrays, LineFit, SecondMomentSums, SurrogateLoss
from opendp_sim.core.claims import Post
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import optimize
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.postprocessing._impl.asked import a_release, check_queries
from opendp_sim.postprocessing.modes import points_of

_NOISE = {
    "second_moments": "noise of a sum of products",
    "surrogate_loss": "noise of the summed loss",
}


@register
class Regress(Mechanism):
    r"""Fit a column as a linear function of the others.

    Predict, or return the coefficients.

    Space
        Input: a release of ``second_moments`` (least squares, shrunk as far as its noise asks), of
        ``linear_regression`` (a line for the target that it was released for) or of
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
    asks_for = ("second_moments", "line", "surrogate_loss")

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
        """Bind to a release of second moments, a line or paired projections."""
        del metric
        release = a_release(self.key, domain)
        offered = [name for name in ("line", "surrogate_loss") if name in release.capabilities]
        name = next(iter(offered), "second_moments")
        sums: Any = release.capability(name, self.key)
        target, expected = self._target(sums), {}
        low, high = sums.bounds(target)
        fit: Callable[[Arrays], NDArray[np.float64]]
        if name == "line":
            fit = sums.coefficients
        else:
            fit = partial(self._surrogate, sums, target)
            if name == "second_moments":
                fit = partial(self._squares, sums, target, release.deviation)
            expected = {_NOISE[name]: release.deviation * sums.noise_factor()}
        to_data = points_of(self.key, release)

        def answer(released: Arrays, queries: Any = None) -> dict[str, NDArray[np.float64]]:
            coefficients = fit(released)
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
            expected=expected,
            unit="the unit of the target column" if asks else "",
        )

    def _target(self, sums: SecondMomentSums | SurrogateLoss | LineFit) -> int:
        width, released = sums.width, getattr(sums, "target", None)
        target = self.target
        if target is None:
            target = width - 1 if released is None else released
        if target < width and released not in (None, target):
            raise ParameterError(
                "OS102", f"{self.key}.target", expected=f"column {released}, which was released",
                got=target, hint="leave `target` out; `second_moments` answers any column.",
            )  # fmt: skip
        if target >= width:
            raise ParameterError(
                "OS102", f"{self.key}.target", expected=f"a column below {width}", got=target,
                hint="columns are numbered from 0 in the order of `select: features`.",
            )  # fmt: skip
        return target

    def _squares(
        self, sums: SecondMomentSums, target: int, deviation: float, released: Arrays
    ) -> NDArray[np.float64]:
        gram, factor = sums.gram(released)
        fit = CentredSums.of(gram, target + 1, deviation * factor).fit()
        return sums.to_data(fit, target)

    def _surrogate(self, sums: SurrogateLoss, target: int, released: Arrays) -> NDArray[np.float64]:
        def loss(free: NDArray[np.float64]) -> float:
            direction = np.insert(free, target + 1, -1.0)
            return float(sums.loss(released, direction[None])[0])

        start = np.zeros(sums.width)
        corners = np.vstack([start, 0.5 * np.eye(sums.width)])
        options = {"maxfev": self.evaluations, "adaptive": True, "initial_simplex": corners}
        found = optimize.minimize(loss, start, method="Nelder-Mead", options=options)
        return sums.to_data(np.asarray(found.x, dtype=np.float64), target)
