"""RACE sketch: repeated arrays of locality-sensitive-hash counts.

Proof of the stability map and of the estimator: ``race_sketch.md``, beside this file.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from opendp_sim.core.claims import Block, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Source, one_of, param, register
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.sketches.kernels.parts.hash_families import FAMILIES, Family
from opendp_sim.sketches.kernels.parts.race_reader import RaceReader
from opendp_sim.sketches.parts.classes import PerLabel
from opendp_sim.spaces.checks import grid_rows, kept_distance
from opendp_sim.spaces.sketch import Sketch

__all__ = ["RaceSketch", "make_race_sketch", "then_race_sketch"]


@register
class RaceSketch(Mechanism):
    r"""Count how many records fall in each hash bucket, over :math:`R` independent hashes.

    Space
        Input: rows on an integer grid, with or without labels, under symmetric distance.
        Output: a flat int64 vector of two blocks: ``counts`` of shape (L, R, W), where cell
        (l, r, w) counts the records of class l with hash w in repetition r; and ``total`` of shape
        (L,), ``count_weight`` times the number of records of class l. L is 1 without ``per_label``.

    Stability
        .. math:: L_1 = R + w,\quad L_2 = \sqrt{R + w^2},\quad L_\infty = \max(1, w)

        per added or removed record: it adds one to exactly one cell in each repetition of its own
        class, and w to that class's total. Exact in integers. Tight. Monotone.

    Privacy
        None on its own. Chain with noise.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not grid
        rows, another metric. (OS203): the grid is too fine for exact hashing. (OS204): `per_label`
        without labels.

    Source
        [own] Lemma 1 in ``race_sketch.md``; the sketch is Algorithm 1 of Coleman and Shrivastava.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
        >>> sketch = (space >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
        ...     >> sim.then_race_sketch(repetitions=3, buckets=8, seed=7, count_weight=2,
        ...                             family={"p_stable_l2": {"width": 0.5}}))
        >>> sum(sketch(np.zeros((5, 2)))), sketch.map(2)
        (25, 10)
    """

    key: ClassVar[str] = "race_sketch"
    in_short: ClassVar[str] = (
        "Sort every record into buckets by public hash functions, and count the buckets."
    )
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
    room = "sketches"
    offers = ("kernel_sums",)

    repetitions: Annotated[
        int,
        param(
            "Number of independent hash functions.", symbol="R", unit="hashes", ge=1, le=65536,
            hint="zCDP: as many as compute allows, 200 to 3,200; pure DP: noise grows as sqrt(R).",
        ),
    ]  # fmt: skip
    buckets: Annotated[
        int,
        param(
            "Counters a repetition; hash values are rehashed to them by a universal hash.",
            symbol="W", unit="cells", ge=2, le=2**20,
            hint="128 to 1,024 is usual; collisions cost a deviation up to N / sqrt(W R), no bias.",
        ),
    ]  # fmt: skip
    family: Annotated[
        Family, one_of(*FAMILIES),
        param(
            "The locality-sensitive hash, and so the kernel.", symbol="k", unit="none",
            hint="write family: {p_stable_l2: {width: 1.0}}, p_stable_l1 or {srp: {bits: 6}}.",
        ),
    ]  # fmt: skip
    seed: Seed
    per_label: PerLabel = False
    count_weight: Annotated[
        int | None,
        param(
            "Integer weight of the total count's own cell; 0 for no such cell.", symbol="w",
            unit="none", default=None, ge=0, le=2**20,
            hint="default round(sqrt(R / 50)): about 2 % of a zCDP budget.",
        ),
    ] = None  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``race_sketch.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        reader = RaceReader.bound(self, rows)
        weight = self.weight
        blocks = [
            Block(
                "counts",
                (reader.classes, self.repetitions, self.buckets),
                l1=self.repetitions,
                l2_squared=self.repetitions,
                linf=1,
            )  # Lemma 1
        ]
        if weight:
            blocks.append(
                Block("total", (reader.classes,), l1=weight, l2_squared=weight**2, linf=weight)
            )
        return Stable(
            output=(output := Sketch(self.key, tuple(blocks), monotone=True)),
            accumulate=reader.accumulate,
            sensitivity=output.sensitivity,
            capabilities={"kernel_sums": reader},
            matrices=reader.matrices,
            advice=(*kept_distance(rows, reader.distance), *_of_angles(reader.distance)),
        )

    @property
    def weight(self) -> int:
        """The weight of the total's cell that is in force."""
        if self.count_weight is not None:
            return self.count_weight
        return max(1, round(math.sqrt(self.repetitions / 50)))


def _of_angles(distance: str) -> tuple[str, ...]:
    """Return what is to be known of angles between rows on a grid (Lemma 4 of ``density.md``)."""
    if distance != "angle":
        return ()
    text = (
        "angles are those of the rows as rounded to the grid, which turns a short row by any angle: "
        "intervals of `density` are about the rounded rows. Take more `bits` if rows are short."
    )
    return (text,)


make_race_sketch, then_race_sketch = constructors(RaceSketch)
