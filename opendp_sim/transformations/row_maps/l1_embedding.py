"""Embed l2 distances into l1 by random directions (``l1_embedding.md``)."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.directions import (
    length_of_normal,
    orthogonal_blocks,
    spread_of_blocks,
)
from opendp_sim.core.arithmetic.grid import PhaseProjection, chunks
from opendp_sim.core.arithmetic.lazy_matrices import Drawn
from opendp_sim.core.claims import Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.memory import check_memory
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.centre import nearest_centre
from opendp_sim.domains.checks import grid_rows
from opendp_sim.domains.rows import GridRows, Rows, as_rows

_AT_ONCE = 2**22
"""Products of the orthogonalisation that are made while a spec is checked."""
_DEVIATIONS = 4.0
"""Default clip, in norm bounds: a projection passes it with probability 6e-5, in few columns never."""


@register
class L1Embedding(Mechanism):
    r"""Project rows on k random directions, and clip.

    The l1 distance of the images estimates the l2 distance.

    Space
        Input: rows of d integers under symmetric distance. Output: rows of k integers, the exact
        :math:`\lfloor \langle g_i, x - o \rangle / \zeta + 1/2 \rfloor` clipped to
        :math:`\pm 2^{b-1}` with :math:`\zeta = 2 c / 2^b` and a public centre o (zero, or the middle
        of the box where that is nearer); their unit is :math:`\sqrt{\pi/2}\, \zeta / k`, so sums
        of absolute differences are l2 distances. Directions are orthogonal in blocks of d. For sums of
        l2 distances `slice_sketch` has two thirds of the noise of this map and a `threshold_sketch` in
        two columns, and a quarter from 16 on.

    Stability
        .. math:: d_{out} = d_{in}

        Row by row; the projection is exact, so no row depends on another. Exact. Tight.

    Privacy
        None on its own. The directions are public and oblivious of the data.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not grid
        rows, another metric. (OS203): the grid is too fine for exact projection, or of another
        order of magnitude than the clip.

    Source
        [own] Lemmas 1 and 2 in ``l1_embedding.md``; Theorem 6.1 of Backurs et al.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
        >>> rows = (space >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
        ...     >> sim.then_l1_embedding(directions=16, seed=3, clip=4.0))
        >>> rows(np.zeros((5, 2))).values.shape, rows.map(1)
        ((5, 16), 1)
    """

    key: ClassVar[str] = "l1_embedding"
    in_short: ClassVar[str] = (
        "Turn every row into numbers whose sum of differences tells how far rows are apart."
    )
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "rows"

    directions: Annotated[
        int,
        param(
            "Number of random directions.", symbol="k", unit="columns", ge=1, le=65536,
            hint="relative deviation 0.27 / sqrt(k) up to one direction a column and beyond; 256 to "
            "1,024 under zCDP, where more cost no noise.",
        ),
    ]  # fmt: skip
    seed: Seed
    clip: Annotated[
        float | None,
        param(
            "Largest projection that is kept; the noise grows in proportion to it.", symbol="c",
            unit="data units", default=None, ge=2.0**-500,
            le=2.0**500,
            hint="default 4 times the type's norm bound, less in up to 16 columns; 2 to 3 lose little.",
        ),
    ] = None  # fmt: skip
    bits: Annotated[
        int,
        param(
            "Binary digits of each projection's grid.", symbol="b", unit="bits", default=12,
            ge=2, le=20, hint="12 is plenty: the rounding is averaged over the directions.",
        ),
    ] = 12  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``l1_embedding.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, by_person=True)
        centre = nearest_centre(rows)
        longest = max(math.sqrt(centre.longest_squared) * rows.unit, sys.float_info.min)
        most = min(_DEVIATIONS, length_of_normal(rows.width))
        clip = most * longest if self.clip is None else self.clip
        half = 2 ** (self.bits - 1)
        step = clip / half
        if not 2.0**-60 < rows.unit / step < 2.0**60:
            raise SpaceError(
                "OS203", f"{self.key}.clip", expected="a clip of a size with the grid's steps",
                got=f"{clip:.3g} on steps of {rows.unit:.3g}", hint="2 to 4 times the rows' norm.",
            )  # fmt: skip
        needed = 16 * rows.width * self.directions
        check_memory(needed, self.key, "the directions", "`directions`, or the columns")
        drawn = _Directions(self, rows, rows.unit / step, tuple(centre.values().tolist()))
        if self.directions * rows.width * min(self.directions, rows.width) <= _AT_ONCE:
            _ = drawn.projection
        relative, lost = self._errors(rows, clip, longest)
        output = GridRows(
            width=self.directions,
            labels=rows.labels,
            ids=rows.ids,
            lower=(-half,),
            upper=(half,),
            unit=math.sqrt(math.pi / 2) * step / self.directions,
            distortion=(1.0, relative, lost),
        )

        return Stable(
            output=output,
            function=drawn.project,
            on_queries=drawn.queries,
            widened_by="directions",
            matrices=Drawn(
                8 * (rows.width + 1) * self.directions, lambda: (drawn.projection.folded,)
            ),
            expected={"relative deviation": relative, "clipping and rounding, per record": lost},
        )

    def _errors(self, rows: GridRows, clip: float, length: float) -> tuple[float, float]:
        """Return a sum's relative deviation and a record's loss (Lemmas 2, 3)."""
        relative = spread_of_blocks(rows.width, self.directions)
        if (
            rows.distortion and rows.distortion[0] == 2
        ):  # projected before: half of a square's error
            relative = math.hypot(relative, rows.distortion[1] / 2)
        beyond = min(clip / length, 40.0)  # from there on nothing is cut that a float would show
        tail = float(special.ndtr(-beyond))
        density = float(np.exp(-(beyond**2) / 2) / math.sqrt(2 * math.pi))
        mean = 2 * (density - beyond * tail)
        square = 2 * ((beyond**2 + 1) * tail - beyond * density)
        if beyond >= length_of_normal(rows.width) * (
            1 - 1e-12
        ):  # no projection is longer than that
            mean = square = 0.0
        cut = mean + 3 * math.sqrt(max(square, 0.0) / self.directions)
        step = 2 * clip / 2**self.bits
        lost = math.sqrt(math.pi / 2) * (length * max(cut, 0.0) + step)
        return relative, lost + rows.moved("l2")


@dataclass(frozen=True)
class _Directions:
    """The directions of one bound map; Gram and Schmidt take ``k d min(k, d)`` products."""

    mechanism: L1Embedding
    rows: GridRows
    steps: float
    """Steps of the output in one of the input's."""
    centre: tuple[float, ...]

    @cached_property
    def projection(self) -> PhaseProjection:
        """Directions and offsets of the seed, on the finest exact grid."""
        mechanism, rows = self.mechanism, self.rows
        generator = public_generator(mechanism.seed, mechanism.key, "directions")
        matrix = orthogonal_blocks(generator, rows.width, mechanism.directions)
        matrix *= length_of_normal(rows.width) * self.steps
        offset = 0.5 - np.add.reduce(matrix * np.array(self.centre)[:, None], axis=0)
        where = f"{mechanism.key}.input_domain"
        return PhaseProjection.fit(matrix, offset, rows.magnitude, where)

    def project(self, data: Any) -> Rows:
        """Project records and clip what is longer than the mechanism allows."""
        given, count = as_rows(data), self.mechanism.directions
        half = 2 ** (self.mechanism.bits - 1)
        out = np.empty((len(given), count))
        base = self.projection.base[:, None]
        workspace = self.projection.workspace()
        for part in chunks(len(given), count):
            found = self.projection.ids(given.values[part], workspace) - base
            out[part] = np.clip(found, -half, half).T
        return Rows(out, given.labels, given.ids)

    def queries(self, data: Any) -> Rows:
        """Project public queries, which may lie outside the bounds."""
        given = as_rows(data)
        found = self.projection.far_ids(given.values)
        values: NDArray[np.int64] = found - self.projection.base[:, None]
        return Rows(values.T.astype(np.float64), given.labels, given.ids)


make_l1_embedding, then_l1_embedding = constructors(L1Embedding)
