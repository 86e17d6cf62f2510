"""Predict by neighbours who pay for own votes (``ind_knn.md``)."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, ClassVar

from opendp_sim.core.arithmetic.rounding import float_up
from opendp_sim.core.arithmetic.row_products import exact_dtype
from opendp_sim.core.claims import Interactive
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, one_of, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import grid_rows
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.domains.rows import GridRows, as_rows
from opendp_sim.measurements.knn._impl.calibration import Rule
from opendp_sim.measurements.knn._impl.features import Lens
from opendp_sim.measurements.knn._impl.kernels import VOTE_KERNELS, Cosine, VoteKernel
from opendp_sim.measurements.knn._impl.predictor import Predictor
from opendp_sim.measurements.knn._impl.sign_hashes import (
    SEARCHES,
    ExactSearch,
    NeighbourSearch,
    longest_plane,
)
from opendp_sim.measurements.knn._impl.vote import Scales, drawable

_OWN = "leave it out: the rule sets it from rho, queries and size, without looking at data."


@register
class IndKnn(Mechanism):
    r"""Predict labels of queries one after another.

    At a total loss that is fixed in advance.

    Space
        Input: labelled rows on an integer grid under symmetric distance, or with person ids under
        id distance. Output: an OpenDP queryable. It answers rows of the input space, shape (m, d),
        with ``Predictions``: labels, noisy counts, noisy votes. ``{"reference": rows}``, sent first,
        says what public queries look like; a first batch of 50 or more is its own reference.
        With ``serve: session`` a spec answers the same as lines: ``{"query": [0.1, 0.2]}`` gives
        ``{"label": ..., "count": ..., "votes": [...], "deviation": ...}``, and with ``--updates``
        persons are inserted, relabelled and deleted (``opendp-sim session --help`` shows each form).

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = d_{in}^2 B

        under zero-concentrated divergence, and :math:`\mu(d_{in}) = d_{in} \sqrt{2 B}` of Gaussian
        differential privacy, for any number of adaptively chosen queries, where d_in
        counts added and removed records (persons, under id distance). A record is charged only for
        queries it is near to, and takes no part once its own budget cannot pay. Exact; rounds outward;
        tight for a record that has spent its budget.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): the kernel or the search
        needs normalised rows. SpaceError (OS201, OS202): not grid rows, another metric. (OS203): the
        grid is too fine for exact products. (OS204): rows without labels. Of a query: DataError
        (OS607), BudgetError (OS406), InternalError (OS902).

    Source
        [own] Lemma 2 in ``ind_knn.md``; the mechanism is a corrected form of Algorithm 3 of Zhu et
        al., "Private Prediction Strikes Back!", under the individual filter of Feldman and Zrnic.

    Example
        >>> import numpy as np, opendp.prelude as dp
        >>> from opendp_sim.domains.metrics import Symmetric
        >>> from opendp_sim.domains.rows import GridRows, Rows
        >>> dp.enable_features("contrib")
        >>> grid = GridRows(width=2, labels=("left", "up"), unit=0.01, lower=(-100,), upper=(100,))
        >>> service = make_ind_knn(grid, Symmetric(), rho=0.5, queries=10, size=2000,
        ...     threshold=0.9, centre=False)
        >>> rows = np.repeat([[-100.0, 0.0], [0.0, 100.0]], 1000, axis=0)
        >>> predict = service(Rows(rows, np.repeat([0, 1], 1000)))
        >>> predict(np.array([[-60.0, 3.0], [1.0, 70.0]])).labels, service.map(2)
        (('left', 'up'), 2.0)
    """

    key: ClassVar[str] = "ind_knn"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 2")
    room = "measurements"
    forgets_answers: ClassVar[bool] = True
    """A session may fold answers that lie far back: only the last of them vote again."""

    rho: Annotated[
        float,
        param(
            "The purse of each record, and the loss of everything ever answered.", symbol="B",
            unit="rho of zCDP", ge=1e-30, le=1e6,
            hint="0.031 is epsilon 1, 0.108 is epsilon 2 at delta 1e-5.",
        ),
    ]  # fmt: skip
    queries: Annotated[
        int,
        param(
            "How many queries are planned; sets noise and neighbourhood, never a limit.",
            symbol="T", unit="queries", ge=1, le=10**9,
            hint="a public number; later queries are still answered, by whoever has not retired.",
        ),
    ]  # fmt: skip
    size: Annotated[
        int,
        param(
            "A public guess of the number of records; within a factor of two is enough.",
            symbol="n", unit="records", ge=2, le=10**12,
            hint="from public knowledge, or a noisy count; never the exact private number.",
        ),
    ]  # fmt: skip
    kernel: Annotated[
        VoteKernel, one_of(*VOTE_KERNELS),
        param(
            "How the weight of a neighbour falls with distance.", symbol="kappa", unit="none",
            default=Cosine(), hint="cosine, or {rbf: {bandwidth: 1.0}}, {student: {bandwidth: 1.0}}.",
        ),
    ] = Cosine()  # fmt: skip
    threshold: Annotated[
        float | None,
        param(
            "Kernel value from which a record is a neighbour.", symbol="tau", unit="kernel value",
            default=None, gt=0.0, le=1.0,
            hint="leave it out: each query gets the quantile of its similarity to public queries.",
        ),
    ] = None  # fmt: skip
    neighbours: Annotated[
        int | None,
        param(
            "How many records a query should find: sets its threshold and the noise.",
            symbol="K", unit="records", default=None, ge=1, le=10**9, hint=_OWN,
        ),
    ] = None  # fmt: skip
    count_scale: Annotated[
        float | None,
        param(
            "Noise scale of the number of neighbours.", symbol="s1", unit="records",
            default=None, gt=0.0, le=2.0**40, hint=_OWN,
        ),
    ] = None  # fmt: skip
    vote_scale: Annotated[
        float | None,
        param(
            "Noise scale of the votes, per square root of the noisy count.", symbol="s2",
            unit="kernel value", default=None, gt=0.0, le=2.0**40, hint=_OWN,
        ),
    ] = None  # fmt: skip
    minimum_count: Annotated[
        int | None,
        param(
            "The least count that the vote noise is scaled to.", symbol="Kmin", unit="records",
            default=None, ge=1, le=10**9, hint=_OWN,
        ),
    ] = None  # fmt: skip
    levels: Annotated[
        int,
        param(
            "Integer steps of a kernel weight.", symbol="W", unit="steps", default=255, ge=1,
            le=4096, hint="255 loses nothing that was ever measured.",
        ),
    ] = 255  # fmt: skip
    normalise: Annotated[
        bool,
        param(
            "Scale every row to unit length, on its own.", symbol="u", unit="none", default=True,
            hint="false compares raw distances; for rbf and student only.",
        ),
    ] = True  # fmt: skip
    centre: Annotated[
        bool,
        param(
            "Subtract the mean of the public reference queries first.", symbol="c", unit="none",
            default=True, hint="worth up to 15 points; needs a reference.",
        ),
    ] = True  # fmt: skip
    reuse: Annotated[
        bool,
        param(
            "Let released predictions vote too, as public neighbours that cost nothing.",
            symbol="r", unit="none", default=False, hint="helps when queries resemble each other.",
        ),
    ] = False  # fmt: skip
    search: Annotated[
        NeighbourSearch, one_of(*SEARCHES),
        param(
            "How neighbours are found; never a cost in privacy.", symbol="h", unit="none",
            default=ExactSearch(),
            hint="exact; for lone queries {sign_codes: {recall: 0.9}}, or {sign_hashes: {...}}.",
        ),
    ] = ExactSearch()  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Interactive:
        """State Lemma 2 of ``ind_knn.md`` for this grid, or refuse it."""
        rows = self._space(domain, metric)
        purse = Fraction(self.rho)
        rule, scales = self.rule(len(rows.labels or ())), self.scales(1.0, len(rows.labels or ()))
        facts = rule.facts(scales.count, self.vote_scale, scales.minimum)
        return Interactive(
            measure="zero_concentrated_divergence",
            privacy_map=lambda d_in: float_up(purse * d_in * d_in),  # Lemma 2
            start=lambda data: self.resume(rows, data).ask,
            resume=lambda data, store: self.resume(rows, data, store),
            priced=True,
            mu_squared=2 * purse,
            expected=facts,
            reason=rule.reason(facts),
        )

    def resume(self, rows: GridRows, data: Any, store: Any = None) -> Predictor:
        """Return a predictor over ``data``, where ``store`` left off."""
        data = rows.normal(data)
        rows.check(data)
        return Predictor(self, rows, as_rows(data), store)

    def rule(self, classes: int) -> Rule:
        """Return what sets every scale that was left out."""
        return Rule(self.rho, self.queries, self.size, classes, self.neighbours)

    @property
    def needs_reference(self) -> bool:
        """Whether public queries must come before the first prediction."""
        return self.centre or self.threshold is None

    def scales(self, weight: float, classes: int) -> Scales:
        """Return the applied noise for a typical neighbour's kernel weight."""
        rule = self.rule(classes)
        return Scales(
            count=drawable(self.count_scale or rule.count_scale),
            vote=(self.vote_scale or rule.vote_scale(weight)) * self.levels,
            minimum=self.minimum_count or rule.minimum_count,
        )

    def _space(self, domain: Domain, metric: Metric) -> GridRows:
        by_person = isinstance(metric, IdDistance)
        rows = grid_rows(self.key, domain, Symmetric() if by_person else metric, needs_labels=True)
        if rows.ids != by_person:
            raise SpaceError(
                "OS202", f"{self.key}.input_metric",
                expected="id distance exactly for rows with person ids", got=type(metric).__name__,
                hint="set the privacy unit to the person, or leave the person out of `select`.",
            )  # fmt: skip
        hashed = not isinstance(self.search, ExactSearch)
        if not self.normalise and (self.kernel.angular or hashed):
            raise ParameterError(
                "OS102", f"{self.key}.normalise", expected="true for cosine and for sign hashes",
                got=False, hint="use rbf or student with exact search, or drop `normalise: false`.",
            )  # fmt: skip
        lens = Lens.plain(rows, normalise=self.normalise)
        lens.dtype(self.key)
        if hashed:  # a refusal while there is no data yet; the drawn planes choose their float
            exact_dtype(lens.norm, longest_plane(rows.width), self.key)
        return rows


make_ind_knn, then_ind_knn = constructors(IndKnn)
