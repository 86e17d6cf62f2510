"""Map rows to Fourier features, linear for Gaussian kernels (``fourier_features.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.grid import PhaseProjection, chunks
from opendp_sim.core.arithmetic.lazy_matrices import AT_ONCE, Drawn
from opendp_sim.core.claims import Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import InternalError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.memory import check_memory
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import grid_rows
from opendp_sim.domains.rows import GridRows, Rows, as_rows

PHASE_RADIUS = 1024
"""S, the integer length of a pair (cosine, sine)."""
_TURN = 4096
"""Phases of a full turn: a feature is off by at most pi / 4096 and a step."""
_MOST_TURNS = 2.0**30


@register
class FourierFeatures(Mechanism):
    r"""Replace rows by D waves, in integers.

    Cosine and sine of random directions.

    Space
        Input: rows of d integers under symmetric distance, in steps of ``unit``.
        Output: rows of 2 D integers in [-1024, 1024], of L2 norm at most 1024 sqrt(D), in steps of
        1 / (1024 sqrt(D)): the products of two of them are the Gaussian kernel
        exp(-r**2 / (2 h**2)) of their L2 distance r, on average over the seed.

    Stability
        .. math:: d_{out} = d_{in}

        Row by row, by exact integer arithmetic and a public table, so added and removed rows are all
        that differs. Exact. Tight.

    Privacy
        None on its own.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not grid
        rows, another metric. (OS203): the grid is too fine for exact phases, or the bandwidth far below
        it.

    Source
        [own] Lemma 1 in ``fourier_features.md``; random features are Rahimi and Recht's.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=3, nan=False, T=float), dp.symmetric_distance()
        >>> waves = (space >> sim.then_quantize(bits=4, bounds=(-1.0, 1.0))
        ...     >> sim.then_fourier_features(frequencies=2, bandwidth=1.0, seed=3))
        >>> waves(np.zeros((1, 3))).values.tolist(), waves.map(2)
        ([[1023.0, 1023.0, 0.0, 0.0]], 2)
    """

    key: ClassVar[str] = "fourier_features"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "rows"

    frequencies: Annotated[
        int,
        param(
            "Random frequencies; each gives a cosine and a sine.", symbol="D", unit="frequencies",
            ge=1, le=16384,
            hint="200 to 1,000 before `linear_model`: time and memory grow with it, noise does not.",
        ),
    ]  # fmt: skip
    bandwidth: Annotated[
        float,
        param(
            "Bandwidth h of the kernel exp(-r**2 / (2 h**2)) that products of rows stand for; "
            "`make_`, `then_` and records take h sqrt(2).",
            symbol="sigma", unit="data units", ge=2.0**-500, le=2.0**500,
            hint="half to once the distance that two records usually have, from public knowledge.",
        ),
    ]  # fmt: skip
    seed: Seed

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemmas 1 and 2 of ``fourier_features.md``."""
        rows = grid_rows(self.key, domain, metric, by_person=True)
        waves = Waves.fit(self, rows)

        def made(data: Any) -> Rows:
            given = as_rows(data)
            return Rows(waves.of_records(given.values), given.labels, given.ids)

        return Stable(
            output=self._image(rows),
            function=made,
            on_queries=lambda data: Rows(waves.of_queries(as_rows(data).values)),
            widened_by="frequencies",
            matrices=waves.matrices,
            expected={"deviation of a kernel value": math.sqrt(0.5 / self.frequencies)},
        )

    def _image(self, rows: GridRows) -> GridRows:
        """State Lemma 2."""
        return GridRows(
            width=2 * self.frequencies,
            labels=rows.labels,
            ids=rows.ids,
            unit=1.0 / (PHASE_RADIUS * math.sqrt(self.frequencies)),
            lower=(-PHASE_RADIUS,),
            upper=(PHASE_RADIUS,),
            l2=math.isqrt(self.frequencies * PHASE_RADIUS**2 - 1) + 1,
        )


@dataclass(frozen=True)
class Waves:
    """The public frequencies of one bound map; many are drawn later."""

    mechanism: FourierFeatures
    rows: GridRows

    @classmethod
    def fit(cls, mechanism: FourierFeatures, rows: GridRows) -> Waves:
        """Return the waves of ``mechanism`` on this grid."""
        count = mechanism.frequencies
        check_memory(8 * rows.width * count, mechanism.key, "the frequencies", "`frequencies`")
        waves = cls(mechanism, rows)
        if rows.width * count <= AT_ONCE:
            _ = waves.projection
        return waves

    @property
    def matrices(self) -> Drawn:
        """The public matrices, for the release's fingerprint."""
        count = self.mechanism.frequencies
        nbytes = 8 * (self.rows.width + 1) * count + wave_table().nbytes
        return Drawn(nbytes, lambda: (self.projection.folded, wave_table()))

    @cached_property
    def projection(self) -> PhaseProjection:
        """The frequencies of the seed, on the finest exact grid."""
        own, where = self.mechanism, f"{self.mechanism.key}.input_domain"
        generator = public_generator(own.seed, own.key, "frequencies")
        drawn = generator.standard_normal((self.rows.width, own.frequencies))
        # exp(-|t|^2 / sigma^2) is the mean of cos(w t) for normal w of variance 2 / sigma^2.
        steps = drawn * (math.sqrt(2.0) * self.rows.unit / own.bandwidth * _TURN / (2.0 * math.pi))
        if not np.abs(steps).max() <= _TURN * _MOST_TURNS:
            raise SpaceError(
                "OS203", where, expected="frequencies of at most 2**30 turns a grid step",
                got="a bandwidth far below the grid", hint="widen the bandwidth or refine the grid.",
            )  # fmt: skip
        # Coordinates are integers: a whole turn a grid step is no turn.
        steps -= _TURN * np.rint(steps / _TURN)
        return PhaseProjection.fit(steps, np.zeros(own.frequencies), self.rows.magnitude, where)

    def of_records(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the row-local features of integer rows, shape (n, 2 D)."""
        count, projection = self.mechanism.frequencies, self.projection
        out = np.empty((len(values), 2 * count))
        matrix, starts = projection.workspace(), -projection.base % _TURN
        for part in chunks(len(values), count):
            ids = projection.ids(values[part], matrix, modulus=_TURN, starts=starts)
            out[part] = self._paired(ids)
        return out

    def of_queries(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the features of public queries, which may lie outside the bounds."""
        projection = self.projection
        return self._paired((projection.far_ids(values) - projection.base[:, None]) % _TURN)

    def _paired(self, phases: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return all cosines, then all sines, shape (n, 2 D)."""
        cosines, sines = wave_table().astype(np.float64).T
        return np.concatenate([cosines[phases], sines[phases]]).T


@cache
def wave_table() -> NDArray[np.int64]:
    """Return ``S (cos, sin)`` at phases' middles (P, 2), truncated to length."""
    angles = (np.arange(_TURN) + 0.5) * (2.0 * math.pi / _TURN)
    circle: NDArray[np.float64] = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    pairs: NDArray[np.int64] = np.trunc(PHASE_RADIUS * circle).astype(np.int64)
    if int(np.square(pairs).sum(axis=1).max()) > PHASE_RADIUS**2:
        raise InternalError(
            "OS903", "fourier_features.table", expected="pairs no longer than S", got="a longer pair",
            hint="report this: the mathematics library of this machine is out of order.",
        )  # fmt: skip
    return pairs


make_fourier_features, then_fourier_features = constructors(FourierFeatures)
