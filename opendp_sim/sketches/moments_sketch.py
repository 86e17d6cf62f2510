"""Moments sketch: count, sum and squared norm, for squared l2 distances and class means.

Proof of the stability map and of the estimator: ``moments_sketch.md``, beside this file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, Counted, DistanceReading, Linear
from opendp_sim.core.claims import Block, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.linear import public_product
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.row_products import squared_norms
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.sums import label_sums
from opendp_sim.sketches._axes import LARGEST_FEATURE, columns_of, fits
from opendp_sim.spaces.checks import grid_rows
from opendp_sim.spaces.rows import GridRows, as_rows
from opendp_sim.spaces.sketch import Sketch

__all__ = ["MomentsSketch", "make_moments_sketch", "then_moments_sketch"]

_COUNT_SHARE = 1 / 20
_CELLS = 2**19
"""Cells of a chunk: they stay in the cache between the norm and the sum."""


@register
class MomentsSketch(Mechanism):
    r"""Add up the rows, their number and their squared norms.

    Space
        Input: rows on an integer grid, with or without labels, under symmetric distance. Their L2
        norms are at most B steps: by their type, or because ``radius`` shortens them.
        Output: a flat int64 vector of the blocks ``sums`` of shape (L, d), :math:`u_1 \sum x`;
        ``total`` of shape (L,), :math:`u_0 n`; and, with ``squares``, ``squares`` of shape (L,),
        :math:`u_2 \sum \lfloor \|x\|^2 / 2^t \rfloor`. The public integers u realise the split of
        the budget; t is 0 unless the grid is finer than 2**-31 of the squared bound.

    Stability
        .. math:: L_1 = u_0 + u_1 \lfloor \sqrt{d} B \rfloor + u_2 \lfloor B^2 / 2^t \rfloor,\quad
           L_2^2 = u_0^2 + u_1^2 B^2 + u_2^2 \lfloor B^2 / 2^t \rfloor^2

        per added or removed record; L_inf is the largest of the three blocks' largest features.
        Exact in integers. Tight for L2.

    Privacy
        None on its own. Chain with noise: Gaussian noise of budget rho gives a sum of squared
        distances at ``|y| <= B`` at most the deviation :math:`2\sqrt{2} B^2 / \sqrt{\rho}`.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not grid
        rows, another metric. (OS203): the grid is too fine. (OS204): no L2 norm bound in the type
        and no radius, or `per_label` without labels.

    Source
        [own] Lemma 1 in ``moments_sketch.md``; class means as in Section 11 of Backurs et al.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
        >>> moments = (space >> sim.then_clip_rows(norm="l2", bound=1.0)
        ...     >> sim.then_quantize(bits=4) >> sim.then_moments_sketch())
        >>> len(moments(np.array([[0.5, 0.0], [0.0, -1.0]])))
        4
    """

    key: ClassVar[str] = "moments_sketch"
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
    room = "sketches"

    squares: Annotated[
        bool,
        param(
            "Also release the sum of squared norms, which distances need and class means do not.",
            symbol="u", unit="none", default=True,
            hint="false for classification by nearest mean: a smaller share goes to the counts.",
        ),
    ] = True  # fmt: skip
    radius: Annotated[
        float | None,
        param(
            "Shorten rows to this L2 norm before they are added.", symbol="r", unit="data units",
            default=None, gt=0, hint="after jl_projection, whose type allows far longer rows than occur; "
            "nothing when the type's own bound is tight.",
        ),
    ] = None  # fmt: skip
    per_label: Annotated[
        bool,
        param(
            "One structure for each public label; classes are disjoint, so the faces do not grow.",
            symbol="c", unit="none", default=False, hint="needs rows with labels.",
        ),
    ] = False  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``moments_sketch.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        reader = MomentsReader(self, rows)
        u0, u1, u2 = reader.multipliers
        square, height = reader.bound_squared, reader.bound_squared >> reader.shift
        longest = min(math.isqrt(rows.width * square), reader.l1)
        blocks = [
            Block("sums", (reader.classes, rows.width), l1=u1 * longest, l2_squared=u1**2 * square,
                  linf=u1 * min(math.isqrt(square), rows.magnitude)),
            Block("total", (reader.classes,), l1=u0, l2_squared=u0**2, linf=u0),
        ]  # fmt: skip
        if self.squares:
            top = u2 * height
            blocks.append(Block("squares", (reader.classes,), l1=top, l2_squared=top**2, linf=top))
        output = Sketch(self.key, tuple(blocks))
        offers = {"class_means": reader} | ({"distance_sums": reader} if self.squares else {})
        return Stable(
            output=output,
            accumulate=reader.accumulate,
            faces=output.faces,
            capabilities=offers,
            expected=reader.expected,
        )


@dataclass(frozen=True)
class MomentsReader:
    """The public multipliers of one bound sketch: builds it, and reads a release of it."""

    mechanism: MomentsSketch
    rows: GridRows

    exponents = "p = 2, squared l2"

    @property
    def labels(self) -> tuple[str | int, ...] | None:
        """The public labels of the classes, or None."""
        return self.rows.labels if self.mechanism.per_label else None

    @property
    def classes(self) -> int:
        """L."""
        return 1 if self.labels is None else len(self.labels)

    @cached_property
    def _corner(self) -> list[int]:
        lower, upper = columns_of(self.rows)
        return [max(abs(a), abs(b)) for a, b in zip(lower.tolist(), upper.tolist(), strict=True)]

    @property
    def l1(self) -> int:
        """The L1 norm of the box's farthest corner."""
        return sum(self._corner)

    @cached_property
    def bound_squared(self) -> int:
        """The least squared L2 bound that the type carries, in steps."""
        own = [] if self.rows.l2 is None else [self.rows.l2**2]
        longest = min([sum(v * v for v in self._corner), *own])
        if longest >= 2**53:
            raise SpaceError(
                "OS203", f"{self.mechanism.key}.input_domain", expected="squared norms below 2**53",
                got=f"a bound of 2**{math.log2(longest):.1f}", hint="quantize to fewer bits.",
            )  # fmt: skip
        if self.radius is None and not own:
            raise SpaceError(
                "OS204", f"{self.mechanism.key}.input_domain", expected="rows with an L2 norm bound",
                got="none", hint="put `clip_rows: {norm: l2, bound: ...}` before `quantize`, or give "
                "`radius`.",
            )  # fmt: skip
        return longest if self.radius is None else min(longest, self.radius**2)

    @property
    def radius(self) -> int | None:
        """The radius in whole steps, at least one."""
        asked = self.mechanism.radius
        return None if asked is None else max(1, int(min(asked / self.rows.unit, 2.0**40)))

    @cached_property
    def shift(self) -> int:
        """The binary digits t of a squared norm that are dropped."""
        return max(0, (2 * self.bound_squared).bit_length() - LARGEST_FEATURE.bit_length() + 1)

    @cached_property
    def multipliers(self) -> tuple[int, int, int]:
        """The integers u_0, u_1, u_2: shares 1/4, 1/2, 1/4 of rho, or 1/20 and 19/20 (Lemma 3)."""
        square = self.bound_squared
        fine = max(1, min(64, LARGEST_FEATURE // (2 * max(square, 1))))
        bound = math.sqrt(square)
        if not self.mechanism.squares:
            u0 = bound * math.sqrt(_COUNT_SHARE / (1 - _COUNT_SHARE))
            shares = round(16 * u0), 16, 0
            fits(self.mechanism.key, 16 * bound)
        else:
            fits(self.mechanism.key, math.sqrt(2) * square / 2**self.shift)
            first = math.sqrt(2) * bound * fine / 2**self.shift
            shares = round(square * fine / 2**self.shift), round(first), fine
        return max(shares[0], 1), max(shares[1], 1), shares[2]

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows, classes = as_rows(data), self.classes
        labels = rows.labels if self.mechanism.per_label else None
        sums = np.zeros((classes, self.rows.width), dtype=np.int64)
        squares, sizes = np.zeros((2, classes), dtype=np.int64)
        step = max(1, _CELLS // self.rows.width)
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            own = None if labels is None else labels[part]
            values, norms = self._within(rows.values[part])
            sums += label_sums(values, own, classes)
            where = np.zeros(len(values), dtype=np.int64) if own is None else own
            sizes += np.bincount(where, minlength=classes)
            if norms is not None:
                np.add.at(squares, where, norms >> self.shift)
        u0, u1, u2 = self.multipliers
        parts = [u1 * sums.ravel(), u0 * sizes, u2 * squares][: 3 if self.mechanism.squares else 2]
        out += np.concatenate(parts)

    def _within(
        self, values: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
        """Return the rows, shortened if asked, and their squared norms if these are needed."""
        norms = None
        if self.radius is not None:
            values = shortened(values, self.radius)
        if self.mechanism.squares:
            norms = squared_norms(values).astype(np.int64)
        return values, norms

    # --- reading --------------------------------------------------------------------------------

    def counted(self, released: Arrays) -> Counted:
        """Return the released number of records per class."""
        u0 = self.multipliers[0]
        return Counted(np.asarray(released["total"], dtype=np.float64) / u0, 1.0 / u0)

    def means(self, released: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the noisy class means (L, d) in steps and their deviation per cell deviation (L,)."""
        sizes = np.maximum(self.counted(released).sizes, 1.0)
        u1 = self.multipliers[1]
        return np.asarray(released["sums"]) / (u1 * sizes[:, None]), 1.0 / (u1 * sizes)

    def spread(self, p: float | None, alpha: float) -> float | None:
        """Return the deviation at ``|y| = B`` per unit of cell deviation (Lemma 3)."""
        del alpha
        if p not in (None, 2.0):
            return None
        u0, u1, u2 = self.multipliers
        square = float(self.bound_squared)
        worst = 4.0**self.shift / u2**2 + 4 * square / u1**2 + square**2 / u0**2
        return self.rows.unit**2 * math.sqrt(worst)

    def reading(self, released: Arrays, p: float | None, alpha: float) -> DistanceReading:
        """Return the expanded square."""
        del p, alpha  # only squared l2, and exact: no far ends
        u0, u1, u2 = self.multipliers
        first = np.asarray(released["sums"], dtype=np.float64) / u1
        sizes = self.counted(released).sizes
        # A dropped fraction of 2**t is 2**t / 2 on average.
        second = 2.0**self.shift * np.asarray(released["squares"]) / u2 + sizes * self.bias_steps
        area = self.rows.unit**2

        def at(queries: Any) -> Linear:
            values = np.asarray(as_rows(queries).values, dtype=np.float64)
            norms = np.square(values).sum(axis=1)
            cross = public_product(first, values.T)
            sums = second[:, None] - 2 * cross + sizes[:, None] * norms
            with_count = (norms + self.bias_steps) / u0**2
            variance = (
                4.0**self.shift / u2**2 + 4 * norms / u1**2 + (norms + self.bias_steps) * with_count
            )
            return Linear(sums * area, variance * area**2, with_count * area)

        return DistanceReading(at, self.bias_steps * area)

    @property
    def bias_steps(self) -> float:
        """Half of the largest dropped part of a squared norm, in squared steps."""
        return (2.0**self.shift - 1) / 2

    @property
    def expected(self) -> dict[str, float]:
        """Facts for the plan: the deviation at ``|y| = B`` per cell deviation (Lemma 3)."""
        if not self.mechanism.squares:
            return {}
        return {
            "distance deviation per cell deviation, at the norm bound": self.spread(None, 0.0)
            or 0.0,
            "distance bias per record, at most": self.rows.unit**2 * self.bias_steps,
        }


def shortened(values: NDArray[np.float64], radius: int) -> NDArray[np.float64]:
    """Return the rows with those longer than ``radius`` steps shortened, in whole steps (Lemma 1).

    The squared norm is an exact integer; the factor is taken a little too small and the products are
    rounded toward zero, so no rounding can leave a row too long. Elementwise: row-local bit for bit.
    """
    norms = squared_norms(values)
    long = norms > float(radius) ** 2
    if not long.any():
        return values
    out = values.copy()
    factor = radius * (1.0 - 2.0**-40) / np.sqrt(norms[long])
    out[long] = np.trunc(values[long] * factor[:, None]) + 0.0
    return out


make_moments_sketch, then_moments_sketch = constructors(MomentsSketch)
