"""Release repeated arrays of locality-sensitive-hash counts (``race_sketch.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.grid import (
    PhaseProjection,
    UniversalHash,
    chunks,
    chunks_in_room,
    count_ids,
)
from opendp_sim.core.arithmetic.lazy_matrices import AT_ONCE, Drawn
from opendp_sim.core.capabilities import Arrays, KernelEstimates
from opendp_sim.core.claims import SketchBlock, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.device.device import Cells, Device, OnDevice
from opendp_sim.core.mechanism import Mechanism, Proof, one_of, param, register
from opendp_sim.core.memory import check_memory
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import grid_rows, kept_distance
from opendp_sim.domains.rows import GridRows, Rows, as_rows
from opendp_sim.domains.sketch import Sketch
from opendp_sim.transformations.sketches._impl.classes import PerClassReader, PerLabel
from opendp_sim.transformations.sketches.kernels._impl.hash_families import (
    HASH_FAMILIES,
    Family,
    SignedProjections,
)

# --------------------------------------------------------------------------------------------------
# The public hash functions of a RACE sketch: they count its records, and read a release of it.
#
# The proofs are in ``race_sketch.md``, beside the mechanism.

_TABLE_CELLS = 2**24
"""Raw id tables up to this many cells (128 MiB) are counted unhashed and rehashed once at the end."""


@dataclass(frozen=True)
class RaceReader(PerClassReader):
    """Build one sketch from public hash functions, and read its release."""

    mechanism: RaceSketch
    rows: GridRows
    rehash: UniversalHash

    @classmethod
    def bound(cls, mechanism: RaceSketch, rows: GridRows) -> RaceReader:
        """Return the hash functions of ``mechanism.seed``, drawn at first use."""
        family: Family = mechanism.family
        columns = mechanism.repetitions * family.projections
        where, lower = mechanism.key, "`repetitions`, or the columns (`jl_projection`)"
        check_memory(8 * rows.width * columns, where, "the hash functions", lower)
        rehash = UniversalHash.draw(
            public_generator(mechanism.seed, mechanism.key, "rehash"),
            mechanism.repetitions,
            1 if cls._coded(mechanism) else family.projections,
            mechanism.buckets,
        )
        reader = cls(mechanism, rows, rehash)
        if rows.width * columns <= AT_ONCE:
            _ = reader.projection
        return reader

    @cached_property
    def projection(self) -> PhaseProjection:
        """The hash functions before rehashing."""
        mechanism, family = self.mechanism, self.mechanism.family
        matrix, offset = family.draw(
            public_generator(mechanism.seed, mechanism.key, "directions"),
            self.rows.width,
            mechanism.repetitions * family.projections,
            self.rows.unit,
            self.rows.magnitude,
        )
        where = f"{mechanism.key}.input_domain"
        return PhaseProjection.fit(matrix, offset, self.rows.magnitude, where)

    @property
    def matrices(self) -> Drawn:
        """The public matrices, for the release's fingerprint."""
        columns = self.mechanism.repetitions * self.mechanism.family.projections
        rehash = self.rehash.multipliers, self.rehash.addends
        nbytes = 8 * (self.rows.width + 1) * columns + sum(part.nbytes for part in rehash)
        return Drawn(nbytes, lambda: (self.projection.folded, *rehash))

    @staticmethod
    def _coded(mechanism: RaceSketch) -> bool:
        return isinstance(mechanism.family, SignedProjections)

    @property
    def per_label(self) -> bool:
        """Whether there is one structure a label."""
        return self.mechanism.per_label

    @property
    def distance(self) -> str:
        """The distance that the kernel is a function of."""
        return str(self.mechanism.family.distance)

    @property
    def rehashed(self) -> bool:
        """Whether different hash values can share a bucket."""
        family = self.mechanism.family
        signs = isinstance(family, SignedProjections)
        return not (signs and 2**family.projections <= self.mechanism.buckets)

    # --- building -------------------------------------------------------------------------------

    @cached_property
    def _table(self) -> int:
        """Return the raw id table's width."""
        width = int(2 * self.projection.base.max())
        one = self.mechanism.family.projections == 1 and not self._coded(self.mechanism)
        cells = width * self.classes * self.mechanism.repetitions
        return width if one and cells <= _TABLE_CELLS else 0

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows = as_rows(data)
        labels = rows.labels if self.mechanism.per_label else None
        self._add(self._counted(rows, labels), len(rows), labels, out)

    def accumulate_on(
        self,
        device: Device,
        values: OnDevice,
        labels: NDArray[np.int64] | None,
        out: NDArray[np.int64],
    ) -> None:
        """Add the features of rows in a device's memory to ``out``."""
        own = labels if self.mechanism.per_label else None
        self._add(device.count(values, self._cells, own, self.classes), len(values), own, out)

    def _add(
        self,
        raw: NDArray[np.int64],
        size: int,
        labels: NDArray[np.int64] | None,
        out: NDArray[np.int64],
    ) -> None:
        """Add counts (R, L, T) of ids or buckets, and records."""
        shape = self.classes, self.mechanism.repetitions, self.mechanism.buckets
        counts, total = out[: math.prod(shape)].reshape(shape), out[math.prod(shape) :]
        if self._table:
            for label in range(self.classes):
                np.add.at(counts[label].reshape(-1), self._cell_of_id, raw[:, label].reshape(-1))
        else:
            counts += raw.transpose(1, 0, 2)
        if total.size:
            sizes = [size] if labels is None else np.bincount(labels, minlength=self.classes)
            total += self.mechanism.weight * np.asarray(sizes, dtype=np.int64)

    @cached_property
    def _cells(self) -> Cells:
        matrix = self.projection.workspace()
        if self._table:
            return Cells(matrix, self._table)
        return Cells(
            matrix,
            self.mechanism.buckets,
            joined=self.mechanism.family.projections,
            base=self.projection.base if self._coded(self.mechanism) else None,
            rehash=self.rehash if self.rehashed else None,
        )

    def _counted(self, rows: Rows, labels: NDArray[np.int64] | None) -> NDArray[np.int64]:
        width = self._table or self.mechanism.buckets
        raw = np.zeros((self.mechanism.repetitions, self.classes, width), dtype=np.int64)
        projection, matrix = self.projection, self.projection.workspace()
        for part, room in chunks_in_room(len(rows), rows.values.shape[1], len(matrix)):
            values, own = rows.values[part], None if labels is None else labels[part]
            if self._table:
                projection.count(values, own, raw, matrix=matrix, room=room)
            elif self._coded(self.mechanism):
                count_ids(self._of_signs(projection.signs(values, matrix, room)), own, raw)
            else:
                count_ids(self._buckets(projection.ids(values, matrix, room=room)), own, raw)
        return raw

    @cached_property
    def _cell_of_id(self) -> NDArray[np.int64]:
        """Return the flat cell of each raw id."""
        shape = self.mechanism.repetitions, self._table
        ids = np.broadcast_to(np.arange(self._table), shape).copy()
        starts = np.arange(self.mechanism.repetitions) * self.mechanism.buckets
        return (self._buckets(ids) + starts[:, None]).reshape(-1)

    def _buckets(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ids (R * m, n) to buckets (R, n). Overwrites ``ids``."""
        if self._coded(self.mechanism):  # floors lie in [-base, base) and are -1 or 0
            return self._of_signs(ids >= self.projection.base[:, None])
        return self.rehash(ids.reshape(self._joined))

    @property
    def _joined(self) -> tuple[int, int, int]:
        """The shape of columns by repetition, any number of rows."""
        return self.mechanism.repetitions, self.mechanism.family.projections, -1

    def _of_signs(self, signs: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Signs (R * m, n) to buckets (R, n)."""
        bits = signs.view(np.uint8).reshape(self._joined)
        codes = bits[:, -1].astype(np.uint16)  # of at most 16 signs
        for at in range(bits.shape[1] - 2, -1, -1):
            codes += codes
            codes |= bits[:, at]
        found = codes.astype(np.int64)
        return self.rehash(found[:, None]) if self.rehashed else found

    # --- reading --------------------------------------------------------------------------------

    def estimate(self, released: Arrays, queries: Any, groups: int = 1) -> KernelEstimates:
        """Return unbiased estimates of the kernel sums (Lemma 2 of ``race_sketch.md``)."""
        values = as_rows(queries).values
        counts = np.asarray(released["counts"])
        repetitions = self.mechanism.repetitions
        groups = min(groups, repetitions)
        sums = np.zeros((groups, self.classes, len(values)))
        squares = np.zeros((self.classes, len(values)))
        for part in chunks(len(values), self.projection.columns * self.classes):
            cells = self._buckets(self._asked(values[part]))
            for label in range(self.classes):
                found = np.take_along_axis(counts[label], cells, axis=1).astype(np.float64)
                for group in range(groups):
                    sums[group, label, part] = found[group::groups].mean(axis=0)
                # One repetition tells nothing about its own error.
                squares[label, part] = found.var(axis=0, ddof=1) if repetitions > 1 else math.inf
        jump, sampled = np.abs(counts).max(axis=(1, 2)).astype(np.float64), squares
        if self.rehashed:
            share = 1.0 / self.mechanism.buckets
            # Few records meet the query by chance, and together: all buckets tell how far they may err.
            met = counts.astype(np.float64).var(axis=2).mean(axis=1)
            squares, jump = np.maximum(squares, met[:, None]), jump / (1.0 - share)
            sums = (sums - self._sizes(released)[None, :, None] * share) / (1.0 - share)
            squares, sampled = (part / (1.0 - share) ** 2 for part in (squares, sampled))
        freedom = np.array(max(1.0, repetitions - 1.0))
        return KernelEstimates(
            sums, squares, repetitions, freedom, jump, jump_noise=1.0, sampled=sampled
        )

    def _asked(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return public queries' ids.

        A query that no record can equal gets an id that no record has. Hashing reads ids modulo 2**32,
        so an id far away would meet the records of another one.
        """
        ids = self.projection.far_ids(values)
        if self._coded(self.mechanism):  # only the side of zero is read
            return ids
        past = 2 * self.projection.base[:, None]
        return np.where((ids < 0) | (ids >= past), past, ids)

    def _sizes(self, released: Arrays) -> NDArray[np.float64]:
        if "total" in released:
            return np.asarray(released["total"], dtype=np.float64) / self.mechanism.weight
        return np.asarray(released["counts"]).sum(axis=2).mean(axis=1)

    def totals(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the released sizes by class and their noise per cell deviation."""
        return self._sizes(released), self.count_factor()

    def medians_of(self, groups: int) -> int:
        """Return the number of groups of `estimate`, 1 without draws."""
        return min(groups, self.mechanism.repetitions)

    def count_factor(self) -> float:
        """Return the record count's deviation per unit of cell noise."""
        weight = self.mechanism.weight
        if weight:
            return 1.0 / weight
        return math.sqrt(self.mechanism.buckets / self.mechanism.repetitions)

    def with_count(self) -> float:
        """Return the covariance of an estimate and the count per cell variance."""
        repetitions, share = self.mechanism.repetitions, 1.0 / self.mechanism.buckets
        weight = self.mechanism.weight
        if not self.rehashed:
            return 0.0 if weight else 1.0 / repetitions
        return -share / (1.0 - share) / weight**2 if weight else 0.0

    def noise_factor(self) -> float:
        """Return an estimate's noise per unit of cell noise (Lemma 3)."""
        repetitions, share = self.mechanism.repetitions, 1.0 / self.mechanism.buckets
        if not self.rehashed:
            return 1.0 / math.sqrt(repetitions)
        weight = self.mechanism.weight
        if not weight:
            return 1.0 / math.sqrt(repetitions * (1.0 - share))
        return math.hypot(1.0 / math.sqrt(repetitions), share / weight) / (1.0 - share)

    def bias(self, queries: Any = None) -> float:
        """Return zero, as the estimate is unbiased (Lemma 2)."""
        del queries
        return 0.0

    def change(self, moved: float) -> float:
        """Bound a kernel value's change when its distance changes by ``moved``.

        ``k(0) - k(moved)``, as the p-stable kernels fall and are convex in the distance (Lemma 4 of
        ``density.md``). 0 for signs: a step can turn a short row by any angle.
        """
        if self._coded(self.mechanism):
            return 0.0
        return float(1.0 - self.kernel(np.array([moved]))[0])

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kernel at real distances."""
        values: NDArray[np.float64] = self.mechanism.family.kernel(distance)
        return values

    def most_deviation(self) -> float:
        """Bound one record's deviation by a fair coin's (Lemma 4)."""
        share = 1.0 / self.mechanism.buckets if self.rehashed else 0.0
        worst = 0.5 if share <= 0.5 else math.sqrt(share * (1.0 - share))
        return worst / ((1.0 - share) * math.sqrt(self.mechanism.repetitions))

    def sketch_deviation(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the deviation without noise of real distances (n, q) (Lemma 4)."""
        share = 1.0 / self.mechanism.buckets if self.rehashed else 0.0
        kernel = self.kernel(distance)
        chance = kernel + (1.0 - kernel) * share
        spread: NDArray[np.float64] = np.sqrt(chance * (1.0 - chance)).sum(axis=0)
        return spread / ((1.0 - share) * math.sqrt(self.mechanism.repetitions))


# --------------------------------------------------------------------------------------------------


@register
class RaceSketch(Mechanism):
    r"""Count the records in each hash bucket.

    Over :math:`R` independent hashes.

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
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
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
        Family, one_of(*HASH_FAMILIES),
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
            SketchBlock(
                "counts",
                (reader.classes, self.repetitions, self.buckets),
                l1=self.repetitions,
                l2_squared=self.repetitions,
                linf=1,
            )  # Lemma 1
        ]
        if weight:
            blocks.append(
                SketchBlock(
                    "total", (reader.classes,), l1=weight, l2_squared=weight**2, linf=weight
                )
            )
        return Stable(
            output=(output := Sketch(self.key, tuple(blocks), monotone=True)),
            accumulate=reader.accumulate,
            on_device=reader.accumulate_on,
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
    """Return facts on angles between grid rows (Lemma 4 of ``density.md``)."""
    if distance != "angle":
        return ()
    text = (
        "angles are those of the rows as rounded to the grid, which turns a short row by any angle: "
        "intervals of `density` are about the rounded rows. Take more `bits` if rows are short."
    )
    return (text,)


make_race_sketch, then_race_sketch = constructors(RaceSketch)
