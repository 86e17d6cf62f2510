"""Choose a grid and a Gaussian kernel sketch from public numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.measures.gaussian import mu_squared_down
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.errors import BudgetError, ParameterError
from opendp_sim.transformations.sketches.kernels._impl.lattice import fit_lattice

KernelSketch = Literal["fourier", "gauss_transform"]
POINTS = ("auto", "grown", "none")
"""What kernel sums are compared with: points grown from the release, or none."""
FREQUENCIES = 2000
"""Frequencies of a Fourier sketch, at most, where no size is declared."""
LEVELS = 10
"""Of a tree of intervals: 1,024 leaves are below the rank's noise of most tables of up to a million."""
_FEWEST_FREQUENCIES, MOST_FREQUENCIES = 500, 8000
"""Of a declared size, the most beside points to grow: fewer tell too little of their error, more were not
measured."""
_STEPS = 0.036
"""Deviation that a table of 64 phases adds to one record and frequency, at most: 0.0352."""
_LATTICE_COLUMNS = 3
"""Columns up to which a lattice holds all kernels but narrow ones."""
_AS_EXACT = 1e-3
"""The coarsest accuracy of a lattice."""
_LATTICE_STEPS = 2**20
"""Of the longest range, for a lattice that is only counted."""
_GROWN_COLUMNS = range(4, 65)
"""Columns in which points are grown whatever the kernel: in more moments are noise."""
_CELLS = 2**22
"""Cells up to which the Gauss transform is chosen: 32 MiB."""
_RANGES = 9.9
"""Ranges in bandwidths up to which a lattice has less noise than the Gauss transform under pure DP."""
_MOST_BITS, _ROW_BITS = 20, 23
_ORDER, _SIDE = 8, 0.75 * math.sqrt(2.0)
"""Of ``gauss_transform_sketch``: its own defaults, the side in bandwidths h."""


def grid_bits(width: int) -> int:
    """Return the binary digits of a grid of ``width`` columns.

    More of them cost neither loss, noise, time nor memory, and rounding, which moves every record, falls
    by half with each: at 20,000 records in two columns an interval of 95 % is 40 wide with 14 of them
    and 19 with 20. Rows stay below ``2**23`` steps, so that their products are exact.
    """
    return min(_MOST_BITS, _ROW_BITS - math.ceil(math.log2(max(width, 1)) / 2))


def frequencies_of(
    size: int, noise: float, ranges: Sequence[float], diagonal: float | None = None
) -> int:
    """Return the frequencies of a sketch of about ``size`` records.

    The least number whose sampling error is below a third of the noise wherever the records are, from
    500 to 8,000 (Lemma 10 of ``fourier_sketch.md``). Up to three columns 2,000, or the 4,000 or 8,000
    of a lattice that holds a narrow kernel so well.

    Args:
        size: about how many records, from public knowledge.
        noise: deviation of one answer's noise, in records.
        ranges: of the columns, in lengths of the kernel ``exp(-r**2)``.
        diagonal: the box's, where it is shorter than that of its ranges.
    """
    if len(ranges) <= _LATTICE_COLUMNS:
        tried = (FREQUENCIES, 2 * FREQUENCIES)
        enough = (count for count in tried if is_enough(count, ranges, size, noise))
        return next(enough, MOST_FREQUENCIES)
    far = math.hypot(*ranges) if diagonal is None else diagonal
    root = 3.0 * min(size, 2**53) * _sampled(far) / noise
    return max(_FEWEST_FREQUENCIES, math.ceil(min(root * root, MOST_FREQUENCIES)))


def is_enough(
    count: int, ranges: Sequence[float], size: int | None = None, noise: float | None = None
) -> bool:
    """Return whether a few columns' lattice samples little or nothing.

    Its sampling error is below a third of the noise (Lemma 10 of ``fourier_sketch.md``); without
    ``size`` or ``noise``, below .001 a record, which a lattice without draws may leave out.
    """
    longest = max(ranges)
    if not 0.0 < longest < math.inf:
        return True
    spans = tuple(round(_LATTICE_STEPS * (length / longest)) for length in ranges)
    lattice = fit_lattice(spans, _LATTICE_STEPS / longest, count, 0, False)
    if lattice is None:
        sampled = _sampled(math.hypot(*ranges)) / math.sqrt(count)
    else:
        drawn = len(lattice.tail)
        sampled = lattice.rest / math.sqrt(drawn) if drawn else 0.0
    if size is None or noise is None:
        return sampled <= _AS_EXACT
    return 3.0 * min(size, 2**53) * sampled <= noise


def _sampled(diagonal: float) -> float:
    """Bound one record's deviation over one random frequency."""
    return math.hypot(math.expm1(-2.0 * diagonal * diagonal) / math.sqrt(2.0), _STEPS)


def frequencies_and_moments(
    points: str,
    ranges: Sequence[float],
    size: int | None,
    noise: float | None,
    *,
    pure: bool,
    diagonal: float | None = None,
    stated: int | None = None,
) -> tuple[int, bool]:
    """Return a sketch's frequencies, and whether it has moments.

    Those that are ``stated``; of no size or under pure DP 2,000, or 8,000 where points are grown. Other
    arguments as of `frequencies_of` and `with_moments`.
    """
    known = stated is not None or (size is not None and noise is not None)
    count = stated or FREQUENCIES
    if size is not None and noise is not None and stated is None:
        count = frequencies_of(size, noise, ranges, diagonal)
    few = len(ranges) <= _LATTICE_COLUMNS and points == "auto" and not pure
    sampled = few and not is_enough(count, ranges, size, noise)
    grown = with_moments(points, len(ranges), pure=pure, sampled=sampled)
    return MOST_FREQUENCIES if grown and not known else count, grown


def with_moments(points: str, width: int, *, pure: bool, sampled: bool = False) -> bool:
    """Return whether a sketch has the moments that points are grown from.

    ``auto`` has them in 4 to 64 columns, and in fewer where a narrow kernel is ``sampled``; never under
    pure DP, whose noise grows with every cell, and where nothing can grow: then ``grown`` is refused.
    """
    if points == "grown" and pure:
        raise ParameterError(
            "OS102", "points", expected="auto or none", got="grown",
            hint="points grow from a Fourier sketch of stated frequencies under gdp, zcdp or approx: "
            "choose these, or leave `points` out.",
        )  # fmt: skip
    grown = points == "grown" or width in _GROWN_COLUMNS or (sampled and width <= _LATTICE_COLUMNS)
    return points != "none" and not pure and grown


def noise_in_records(budget: Limit, rows: Any = None) -> float | None:
    """Return the deviation of an answer's noise at a budget, in records.

    That of Gaussian DP, the least of all measures with a delta, for persons of up to ``rows`` rows. None
    under pure DP, whose noise grows with frequencies, and of a budget that a plan will refuse.
    """
    try:
        budget.check("gdp")
    except BudgetError:
        return None
    epsilon, delta = budget.down("epsilon"), budget.down("delta")
    if epsilon is None or delta is None:
        return None
    rows = python_value(rows)
    return max(rows if isinstance(rows, int) else 1, 1) / math.sqrt(mu_squared_down(epsilon, delta))


def frequencies_told(frequencies: int, sampled: float, noise: float, moments: float) -> str:
    """Explain a number of frequencies by errors, and moments by their share.

    Args:
        frequencies: of the sketch.
        sampled: the sampling deviation of one record, at most.
        noise: deviation of one answer's noise, in records.
        moments: share of the budget, in squares of the norm.
    """
    grown = (
        f"; {100 * moments:.2g} % of the budget is for the columns' moments, from which points are grown "
        "after the release: errors stated before are those without points, an answer states its own"
    )
    within = noise / (3.0 * sampled)
    return (
        f"{frequencies:,} frequencies: their sampling error is below a third of the noise "
        f"({noise:.3g} records) for up to {within:,.0f} records wherever they are, for several times as "
        f"many that are spread; from the public `size` at most {MOST_FREQUENCIES:,} are chosen, and "
        f"memory and time grow with them{grown if moments else ''}"
    )


def gaussian_kernel_step(
    bandwidth: float,
    width: int,
    longest: float | None,
    *,
    engine: KernelSketch | None = None,
    pure: bool = False,
    frequencies: int | Mapping[str, Any] = FREQUENCIES,
    seed: int = 0,
    per_label: bool = False,
    moments: bool = False,
) -> tuple[Mapping[str, Any], KernelSketch]:
    """Return the sketch step for ``exp(-r**2 / (2 h**2))``, and the sketch's name.

    Args:
        bandwidth: h, in the units of the rows that come in.
        width: number of columns.
        longest: the longest range between two bounds, in the same units; None where it is not known.
        engine: None to choose: the Gauss transform under pure DP, up to three columns, for ranges of more
            than 9.9 bandwidths, while it is small; elsewhere a Fourier sketch, whose lattice has less
            noise and no sampling error.
        pure: whether the noise is Laplace.
        frequencies: of a Fourier sketch; or the error that they are solved from, with a size.
        seed: of its public frequencies.
        per_label: one density a class.
        moments: whether a Fourier sketch has those that points are grown from.
    """
    if engine is None:
        ranges = math.inf if longest is None else longest / bandwidth
        few = pure and width <= 3 and ranges > _RANGES and _cells(ranges, width) <= _CELLS
        engine = "gauss_transform" if few else "fourier"
    if engine == "gauss_transform":
        return {"gauss_transform_sketch": {"bandwidth": bandwidth, "per_label": per_label}}, engine
    kernel = {"gaussian": {"bandwidth": bandwidth}}
    step = {"frequencies": frequencies, "kernel": kernel, "seed": seed, "per_label": per_label}
    step |= {"moments": True} if moments else {}
    return {"fourier_sketch": step}, engine


def _cells(bandwidths: float, width: int) -> float:
    return math.prod([(bandwidths / _SIDE + 2.0) * _ORDER] * width)
