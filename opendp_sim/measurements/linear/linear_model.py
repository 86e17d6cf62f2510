"""Release a softmax model by noisy full-batch gradients, in integers (``linear_model.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.linear import public_product
from opendp_sim.core.arithmetic.rounding import sqrt_up
from opendp_sim.core.capabilities import Arrays
from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.sample_size import rare_records, too_few
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.checks import fine_rows, grid_rows
from opendp_sim.domains.released import NamedArrays
from opendp_sim.domains.rows import GridRows, as_rows
from opendp_sim.measurements.linear._impl.descent import LOGIT, Descent, ScaledRecords, loss_map
from opendp_sim.measurements.linear._impl.scaled import GRID_SIDE, ScaledRows
from opendp_sim.measurements.linear._impl.whitening import whitened

# --------------------------------------------------------------------------------------------------
# What can be asked of a released linear model: the logits of public queries.


_DRAWS = 999
"""Runs of noise alone that a release is compared with."""


def _beside(direction: NDArray[np.float64], cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return cells in the directions orthogonal to one.

    ``cells`` (d, K); the result (d - 1, K), in an orthonormal basis.
    """
    mirror = direction / max(float(np.linalg.norm(direction)), 2.0**-60)
    mirror[-1] += math.copysign(1.0, mirror[-1])  # Householder's, that turns it into the last one
    mirror /= np.linalg.norm(mirror)
    turned: NDArray[np.float64] = cells - 2.0 * np.outer(mirror, mirror.dot(cells))
    return turned[:-1]


@dataclass(frozen=True)
class LinearReader:
    """Read a release of ``linear_model``, with queries scaled as records."""

    descent: Descent
    labels: tuple[str | int, ...]

    def scores(self, released: Arrays, queries: Any) -> NDArray[np.float64]:
        """Return the logit of each class, shape (q, L)."""
        values = np.asarray(getattr(queries, "values", queries), dtype=np.float64)
        rows = self.descent.scaled.of_queries(values)
        if self.descent.whiten:
            rows = whitened(rows, np.asarray(released["whitening"], dtype=np.int64))
        weights = np.asarray(released["weights"], dtype=np.float64) * (LOGIT / GRID_SIDE)
        return public_product(rows.astype(np.float64), weights)

    def chance_of_noise(self, released: Arrays) -> float:
        """Return the chance that noise alone makes weights as unusual (Lemma 7)."""
        weights = np.asarray(released["weights"], dtype=np.float64) * LOGIT
        width, classes = weights.shape
        mean, matrix = np.eye(width)[-1], None
        if self.descent.whiten:
            matrix = np.asarray(released["whitening"], dtype=np.int64)
            mean = matrix[-1] / np.maximum(np.square(matrix.astype(np.float64)).sum(axis=0), 1.0)
        if classes < 2:
            return 0.0
        cells = _beside(np.ones(classes), _beside(mean, weights).T)
        cells /= self.descent.noise_of_a_weight(matrix)
        few, many = sorted(cells.shape)
        square = float(np.square(cells).sum())
        long = float(special.gammaincc(few * many / 2.0, square / 2.0))
        # Of lengths that differ by direction: the likelihood ratio of one covariance against all.
        inner = cells.T.dot(cells) if cells.shape[1] == few else cells.dot(cells.T)
        values = np.maximum(np.linalg.eigvalsh(inner) / many, 1e-300)
        own = float((values - np.log(values)).sum())
        draw = public_generator(0, "linear_model", "noise alone")
        chi = draw.chisquare(many - np.arange(few), (_DRAWS, few))  # Bartlett's triangle
        rest = draw.chisquare(few * (few - 1) / 2.0, _DRAWS) if few > 1 else np.zeros(_DRAWS)
        noise = (chi.sum(axis=1) + rest) / many - np.log(chi / many).sum(axis=1)
        uneven = (1.0 + float((noise >= own).sum())) / (1.0 + _DRAWS)
        return min(1.0, 2.0 * min(long, uneven))

    def without_noise(self, rows: Any) -> Arrays:
        """Return the same descent's arrays without noise."""
        held = as_rows(rows)
        labels = np.zeros(0, dtype=np.int64) if held.labels is None else held.labels
        seen = ScaledRecords(self.descent.scaled(held.values), labels.astype(np.int64))
        flat = self.descent.run(seen, noise=lambda cells, _: cells)
        width = self.descent.scaled.width
        first = width * width if self.descent.whiten else 0
        return {
            "whitening": flat[:first].reshape(-1, width),
            "weights": flat[first:].reshape(width, -1),
        }


# --------------------------------------------------------------------------------------------------

_FEW = 50
"""Columns up to which rows are tables of unlike columns, by default; more are embeddings or pixels."""
_WHITENED = 10
"""Columns up to which rows are whitened where nobody says how many records there are."""


@register
class LinearModel(Mechanism):
    r"""Release softmax regression weights by noisy gradients.

    Over all records.

    Space
        Input: labelled rows of d columns on an integer grid under symmetric distance. Output: a flat
        int64 vector: if whitened, the matrix ``whitening`` of shape (d+1, d+1) in units of 2**-24;
        then ``weights`` of shape (d+1, L), in logits times 2**24 for a row of length 1, the constant
        cell last. A release of it is asked by ``predict``. With unequal classes the share of right
        labels says little: a class of few records may never be predicted (a plan says of how few).
        ``fourier_features`` before it, public random features, let it follow curved borders.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = \frac{d_{in}^2}{2} \Big(\frac{M^2}{s_M^2} + T \frac{(B R)^2}{s^2}\Big)
                  \le \rho\, d_{in}^2

        under zero-concentrated divergence, and :math:`d_{in} \sqrt{2 \rho}`-Gaussian DP, of everything
        that is released: T gradients, to each of which a record adds a product of two integer vectors
        of lengths B = 1024 to 1145 and R = 2048, and second moments of length M where rows are
        whitened. OpenDP's own maps and composition; exact noise; rounds outward, tight in every step.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): noise beyond int64. SpaceError
        (OS201, OS202): not grid rows, another metric. (OS203): the grid is too fine, or a column has
        fewer than 64 rounded steps. (OS204): rows without labels.

    Source
        [own] Lemma 6 in ``linear_model.md``; noisy gradient descent is that of Song, Chaudhuri and
        Sarwate (2013) and Bassily, Smith and Thakurta (2014).

    Example
        >>> import numpy as np, opendp.prelude as dp
        >>> from opendp_sim.domains.metrics import Symmetric
        >>> from opendp_sim.domains.rows import Rows
        >>> dp.enable_features("contrib")
        >>> grid = GridRows(width=2, labels=("left", "up"), unit=0.01, lower=(-100,), upper=(100,))
        >>> model = make_linear_model(grid, Symmetric(), rho=0.5, whiten="no", steps=16)
        >>> rows = np.repeat([[-100.0, 0.0], [0.0, 100.0]], 1000, axis=0)
        >>> weights = np.reshape(model(Rows(rows, np.repeat([0, 1], 1000))), (3, 2))
        >>> (weights[0] > 0).tolist(), model.map(2)
        ([False, True], 2.0)
    """

    key: ClassVar[str] = "linear_model"
    in_short: ClassVar[str] = (
        "Fit a model that predicts the label, in small steps with noise in each."
    )
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 6")
    room = "measurements"
    offers = ("class_scores",)

    rho: Annotated[
        float,
        param(
            "The loss of everything that is released.", symbol="rho", unit="rho of zCDP",
            ge=1e-24, le=1e6, hint="0.017 is epsilon 1, 0.063 is epsilon 2 at delta 1e-6.",
        ),
    ]  # fmt: skip
    steps: Annotated[
        int,
        param(
            "Number of noisy gradients; noise grows so that all together cost rho.", symbol="T",
            unit="steps", default=64, ge=1, le=1024,
            hint="16 to 128 differ by a point; time grows with it.",
        ),
    ] = 64  # fmt: skip
    rows: Annotated[
        Literal["auto", "length", "columns"],
        param(
            "length: every row is scaled to one length (embeddings, pixels); columns: every column is "
            "moved and scaled by its bounds, and long rows are shortened (tables).", symbol="x",
            unit="none", default="auto", hint="auto: columns up to 50 of them, else length.",
        ),
    ] = "auto"  # fmt: skip
    whiten: Annotated[
        Literal["auto", "yes", "no"],
        param(
            "Spend a fifth of the loss on second moments and see rows along them: for few columns.",
            symbol="M", unit="none", default="auto",
            hint="auto: with `columns`, up to 10; up to 50 where `size` says that it is no noise.",
        ),
    ] = "auto"  # fmt: skip
    size: Annotated[
        int | None,
        param(
            "A public guess of the number of records, only to bound the steps of very large sets.",
            symbol="n", unit="records", default=None, ge=1, le=10**12,
            hint="from public knowledge; never the exact private number.",
        ),
    ] = None  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma 6 of ``linear_model.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=True)
        descent = self.descent(rows)
        descent.scaled.check(self.key)
        descent.check(self.key)
        if not descent.scaled.by_length:
            fine_rows(self.key, domain, metric)
        labels, width = rows.labels or (), descent.scaled.width
        first = (("whitening", (width, width)),) if descent.whiten else ()

        def release(data: Any) -> NDArray[np.int64]:
            data = rows.normal(data)
            rows.check(data)
            held = as_rows(data)
            found = np.zeros(0, dtype=np.int64) if held.labels is None else held.labels
            return descent.run(ScaledRecords(descent.scaled(held.values), found.astype(np.int64)))

        return Private(
            measure="zero_concentrated_divergence",
            privacy_map=loss_map(self.key, descent.releases),
            function=release,
            output=NamedArrays((*first, ("weights", (width, len(labels))))),
            capabilities={"class_scores": LinearReader(descent, labels)},
            mu_squared=descent.mu_squared,
            expected={
                "weights": float(width * len(labels)),
                "steps": float(self.steps),
                "records_of_a_rare_class": float(rare_records(self.rho)),
                "noise_of_a_gradient_in_records": descent.scale / sqrt_up(descent.gradient_square),
            },
            reason=self._reason(descent),
        )

    def descent(self, rows: GridRows) -> Descent:
        """Return what is run on rows of this grid."""
        by_length = self.rows == "length" or (self.rows == "auto" and rows.width > _FEW)
        scaled = ScaledRows(rows, by_length)
        classes = len(rows.labels or ())
        descent = Descent(scaled, classes, self.rho, self.steps, self.whiten == "yes", self.size)
        if self.whiten != "auto" or by_length or rows.width > _FEW:
            return descent
        tried = Descent(scaled, classes, self.rho, self.steps, True, self.size)
        noise = tried.whitening_scale / GRID_SIDE**2 * scaled.width**1.5
        if self.size is None:
            return tried if rows.width <= _WHITENED else descent
        # A third of where the noise's norm reaches a mean eigenvalue of the moments.
        return tried if noise < self.size / 3 else descent

    def _reason(self, descent: Descent) -> str:
        rows = "scaled to one length" if descent.scaled.by_length else "scaled column by column"
        how = f"{self.steps} noisy gradients over rows {rows}"
        if descent.whiten:
            how += ", whitened by second moments at a fifth of the loss"
        few = "" if self.size is None else too_few(self.size, self.rho)
        return f"{how}; {few}" if few else how


make_linear_model, then_linear_model = constructors(LinearModel)
