"""L1 embedding: random Gaussian directions, so that l1 distances stand for l2 distances.

Proof of the stability map and of the distortion: ``l1_embedding.md``, beside this file.
"""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from opendp_sim.core.claims import Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.grid import PhaseProjection, chunks
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.space import Domain, Metric
from opendp_sim.spaces.checks import grid_rows
from opendp_sim.spaces.rows import GridRows, Rows, as_rows

__all__ = ["L1Embedding", "make_l1_embedding", "then_l1_embedding"]

_DEVIATIONS = 4.0
"""Default clip, in norm bounds: a projection passes it with probability 6e-5."""


@register
class L1Embedding(Mechanism):
    r"""Project every row on k random directions and clip, so that l1 distance estimates l2 distance.

    Space
        Input: rows of d integers under symmetric distance. Output: rows of k integers, the exact
        :math:`\lfloor \langle g_i, x \rangle / \zeta + 1/2 \rfloor` clipped to
        :math:`\pm 2^{b-1}` with :math:`\zeta = 2 c / 2^b`; their unit is
        :math:`\sqrt{\pi/2}\, \zeta / k`, so sums of absolute differences are l2 distances.

    Stability
        .. math:: d_{out} = d_{in}

        Row by row; the projection is exact, so no row depends on another. Exact. Tight.

    Privacy
        None on its own. The directions are public and oblivious of the data.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not grid
        rows, another metric. (OS203): the grid is too fine for exact projection, or of another
        order of magnitude than the clip. (OS204): neither a
        clip nor a norm bound in the type.

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
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
    room = "rows"

    directions: Annotated[
        int,
        param(
            "Number of random directions.", symbol="k", unit="columns", ge=1, le=65536,
            hint="relative deviation 0.755 / sqrt(k); 256 to 1,024 under zCDP, where more cost "
            "no noise.",
        ),
    ]  # fmt: skip
    seed: Annotated[
        int,
        param(
            "Seed of the public directions. Not a secret; never derived from data.",
            symbol="s", unit="none", hint="any integer in [0, 2**63).", ge=0, lt=2**63,
        ),
    ]  # fmt: skip
    clip: Annotated[
        float | None,
        param(
            "Largest projection that is kept; the noise grows in proportion to it.", symbol="c",
            unit="data units", default=None, ge=2.0**-500,
            le=2.0**500, hint="default 4 times the type's norm bound; 2 to 3 norms lose little.",
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
        clip = self._clip(rows)
        half = 2 ** (self.bits - 1)
        step = clip / half
        if not 2.0**-60 < rows.unit / step < 2.0**60:
            raise SpaceError(
                "OS203", f"{self.key}.clip", expected="a clip of a size with the grid's steps",
                got=f"{clip:.3g} on steps of {rows.unit:.3g}", hint="2 to 4 times the rows' norm.",
            )  # fmt: skip
        generator = public_generator(self.seed, self.key, "directions")
        matrix = generator.standard_normal((rows.width, self.directions)) * (rows.unit / step)
        projection = PhaseProjection.fit(
            matrix, np.full(self.directions, 0.5), rows.magnitude, f"{self.key}.input_domain"
        )
        relative, lost = self._errors(rows, clip)
        output = GridRows(
            width=self.directions, labels=rows.labels, ids=rows.ids, lower=(-half,), upper=(half,),
            unit=math.sqrt(math.pi / 2) * step / self.directions, distortion=(1.0, relative, lost),
        )  # fmt: skip
        base = projection.base[:, None]

        def project(data: Any) -> Rows:
            given = as_rows(data)
            out = np.empty((len(given), self.directions))
            workspace = projection.workspace()
            for part in chunks(len(given), self.directions):
                found = projection.ids(given.values[part], workspace) - base
                out[part] = np.clip(found, -half, half).T
            return Rows(out, given.labels, given.ids)

        def queries(data: Any) -> Rows:
            given = as_rows(data)
            values: NDArray[np.int64] = projection.far_ids(given.values) - base
            return Rows(values.T.astype(np.float64), given.labels, given.ids)

        return Stable(
            output=output,
            function=project,
            on_queries=queries,
            matrices=(projection.folded,),
            expected={"relative deviation": relative, "clipping and rounding, per record": lost},
        )

    def _clip(self, rows: GridRows) -> float:
        if self.clip is not None:
            return self.clip
        if rows.l2 is None:
            raise SpaceError(
                "OS204", f"{self.key}.input_domain", expected="a clip, or rows with a norm bound",
                got="neither", hint="give `clip`, or put `clip_rows: {norm: l2, bound: ...}` before "
                "`quantize`.",
            )  # fmt: skip
        return _DEVIATIONS * rows.l2 * rows.unit

    def _errors(self, rows: GridRows, clip: float) -> tuple[float, float]:
        """Return the relative deviation of a sum, and what a record may lose (Lemmas 2 and 3)."""
        relative = math.sqrt((math.pi / 2 - 1) / self.directions)
        if (
            rows.distortion and rows.distortion[0] == 2
        ):  # projected before: half of a square's error
            relative = math.hypot(relative, rows.distortion[1] / 2)
        longest = rows.l2 or math.sqrt(rows.width) * rows.magnitude
        length = max(longest * rows.unit, sys.float_info.min)
        beyond = clip / length
        tail, density = float(norm.sf(beyond)), float(norm.pdf(beyond))
        mean = 2 * (density - beyond * tail)
        square = 2 * ((beyond**2 + 1) * tail - beyond * density)
        cut = mean + 3 * math.sqrt(max(square - mean**2, 0.0) / self.directions)
        step = 2 * clip / 2**self.bits
        return relative, math.sqrt(math.pi / 2) * (length * max(cut, 0.0) + step)


make_l1_embedding, then_l1_embedding = constructors(L1Embedding)
