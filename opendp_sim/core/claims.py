"""Define the claims that ``bind`` returns for one space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core import dp
from opendp_sim.core.arithmetic.countable import LARGEST_FEATURE
from opendp_sim.core.arithmetic.rounding import bounded_int, float_up, sqrt_up
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.executor import Workers

Norm = Literal["l1", "l2", "linf"]
NORMS: tuple[Norm, ...] = get_args(Norm)
Measure = Literal[
    "max_divergence",
    "zero_concentrated_divergence",
    "approx_max_divergence",
    "approx_zero_concentrated_divergence",
    "renyi_divergence",
    "smoothed_max_divergence",
]


def norm_of(given: object, where: str = "norm") -> Norm:
    """Return the norm named ``given``, or refuse it (OS101)."""
    if type(given) is str and given in NORMS:
        return given
    raise ParameterError(
        "OS101", where, expected=f"one of {', '.join(NORMS)}",
        got=given if isinstance(given, str) else type(given).__name__,
        hint="l1 before Laplace noise, l2 before Gaussian noise, linf before a noisy maximum.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SketchBlock:
    """Describe a sketch's array and one record's largest contribution.

    ``weight`` is the noise scale on this block relative to the release's base scale, so a block with
    weight 4 gets four times the noise and costs a quarter (L1) or a sixteenth (L2, in rho).
    """

    name: str
    shape: tuple[int, ...]
    l1: int
    l2_squared: int
    linf: int
    weight: int = 1

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Bound output distance per unit of symmetric distance, in every sound norm.

    In exact numbers; for weighted blocks these are the norms of ``feature / weight``.
    """

    l1: Fraction
    l2_squared: Fraction
    linf: Fraction
    monotone: bool = False
    """Whether one record moves every cell in the same direction."""

    def bound(self, norm: Norm, d_in: int) -> float | int:
        """Return the greatest output distance at ``d_in``, integers exactly, else outward."""
        if norm_of(norm) == "l2":
            return sqrt_up(self.l2_squared * d_in * d_in)
        value = (self.l1 if norm == "l1" else self.linf) * d_in
        return bounded_int(int(value), norm) if value.denominator == 1 else float_up(value)

    def __mul__(self, factor: int) -> Sensitivity:
        """Sensitivity after a map that is ``factor``-stable."""
        return Sensitivity(
            self.l1 * factor, self.l2_squared * factor * factor, self.linf * factor, self.monotone
        )


def sensitivity_of(blocks: Iterable[SketchBlock], *, monotone: bool) -> Sensitivity:
    """Add up blocks, by their weights, to one record's norms."""
    blocks = tuple(blocks)
    return Sensitivity(
        l1=sum((Fraction(b.l1, b.weight) for b in blocks), Fraction(0)),
        l2_squared=sum((Fraction(b.l2_squared, b.weight**2) for b in blocks), Fraction(0)),
        linf=max((Fraction(b.linf, b.weight) for b in blocks), default=Fraction(0)),
        monotone=monotone,
    )


@dataclass(frozen=True, slots=True)
class Stable:
    """Claim stability of a row map or of a sketch.

    A sketch is the sum of one bounded integer feature vector per record. A *row map* has ``function``
    (rows to rows, row-local bit for bit) and ``stability``. A *sketch* has ``accumulate(rows, out)``,
    which adds the features of ``rows`` to the flat int64 ``out``; its whole-dataset function is the
    sum over blocks, so chunked equals whole by construction.
    """

    output: Domain
    function: Callable[[Any], Any] | None = None
    stability: int = 1
    output_metric: Metric | None = None
    """The metric of a row map's output where it is not the input's."""
    accumulate: Callable[[Any, NDArray[np.int64]], None] | None = None
    sensitivity: Sensitivity | None = None
    survey: Callable[[Iterable[Any]], Callable[[Any], Any]] | None = None
    """For a map that must see every block first: blocks, which can be gone through more than once, to
    the block-wise function."""
    fold: Callable[[Callable[[], Iterable[Any]]], Any] | None = None
    """For a map of the whole dataset to one value that no sum of blocks gives (distinct persons per
    item): takes the blocks, as a function that opens them afresh, in bounded memory."""
    shared: Callable[[Workers], Any] | None = None
    """Of a ``fold``: the same value, worked out by several threads that share the dataset."""
    merge: Callable[[Sequence[Any]], Any] | None = None
    """Of a ``fold``: what it gives for all records, from what it gives for parts of them that respect
    ``gather``. Sketches add up."""
    gather: str | None = None
    """The column of the records all of whose equal values must be in one part, for ``merge`` to hold."""
    reads: frozenset[str] | None = None
    """The columns of records that it looks at; None for all of them."""
    on_device: Callable[..., Any] | None = None
    """The same bits on a device (``core/device/device.md``): of a row map ``(device, values)`` to values,
    both in the device's memory; of a sketch ``(device, values, labels, out)``, which adds to ``out``."""
    on_queries: Callable[[Any], Any] | None = None
    """The same map for public queries (no clamping to the data's bounds); default ``function``."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """What can be asked of a release of this sketch: name to a protocol object (``capabilities.py``)."""
    matrices: Sequence[NDArray[np.generic]] = ()
    """Public matrices drawn from a seed, large ones at the first look. Fingerprinted in releases."""
    widened_by: str = ""
    """The parameter of a row map that makes rows wider than they came: what to lower for memory."""
    constants: tuple[int, ...] = ()
    """Public integers of the features that were rounded from reals: two machines may round them
    otherwise, and parts of one sum must not be made with both."""
    expected: Mapping[str, float] = field(default_factory=dict)
    """Facts for the plan: expected errors and sizes, by name."""
    advice: tuple[str, ...] = ()
    """What the plan should say about this step on this space, such as a better choice."""

    def __post_init__(self) -> None:
        """Refuse sums that could leave int64 at 2**31 - 1 records.

        Raises:
            SpaceError (OS203): a feature of one record may be above 2**32.
        """
        if self.accumulate is None or self.sensitivity is None:
            return
        blocks: tuple[SketchBlock, ...] = getattr(self.output, "blocks", ())
        largest = max(
            self.sensitivity.linf, *(Fraction(block.linf) for block in blocks), Fraction(0)
        )
        if largest > LARGEST_FEATURE:
            raise SpaceError(
                "OS203", getattr(self.output, "key", "sketch"),
                expected="integer features up to 2**32 in every cell",
                got=f"one record adds up to 2**{math.log2(largest):.2f}",
                hint="lower the sketch's sizes or weights, or quantize to fewer bits.",
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Noise:
    """Declare the noise law of each cell of the noiseless part."""

    family: Literal["discrete_laplace", "discrete_gaussian", "rounded_gaussian", "gumbel"]
    scale: float
    weights: tuple[tuple[int, int], ...] = ()
    """Runs of (cells, weight); empty means weight 1 everywhere."""
    sampler: Literal["opendp", "bulk"] = "opendp"
    step: Fraction = Fraction(1)
    """Spacing of the values that the noise takes: 1 / k under a public factor k."""

    @property
    def deviation(self) -> float:
        """Return the noise's standard deviation on a cell of weight 1."""
        if self.scale == 0:
            return 0.0
        if self.family == "rounded_gaussian":
            return float(self.step) * _rounded_deviation(self.scale / float(self.step))
        if self.family == "discrete_laplace":
            # Var = 2 q / (1 - q)^2 with q = exp(-1 / scale).
            return math.sqrt(2 * math.exp(-1 / self.scale)) / -math.expm1(-1 / self.scale)
        return self.scale if self.family == "discrete_gaussian" else self.scale * math.pi / 6**0.5


def _rounded_deviation(scale: float) -> float:
    if scale >= 1:
        return math.sqrt(scale**2 + 1 / 12)  # to 1e-8
    # sum over k >= 0 of (2 k + 1) P[|N| > k]
    tails = (math.erfc((k + 0.5) / (scale * math.sqrt(2))) for k in range(12))
    return math.sqrt(sum((2 * k + 1) * tail for k, tail in enumerate(tails)))


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Word one fact of a release's claim as its expected error.

    A mechanism names such facts (``Mechanism.stated_errors``). In its texts ``{up}`` is the fact in few
    digits, not below it, ``{near}`` the nearest such number, ``{wide}`` what 95% of errors of that
    standard deviation are within, ``{share}`` that in percent; other facts of the claim stand by name.

    Attributes:
        line: one line, such as "the rank is off by {up} rows or less in 95% of runs".
        value: the number alone, with its unit.
        more: what follows the line.
        unit: what the fact is counted in.
    """

    line: str
    value: str
    more: str = ""
    unit: str = "votes"


@dataclass(frozen=True, slots=True)
class Private:
    """Claim privacy of a measurement.

    Either ``native`` (an OpenDP measurement), or a function and its privacy map. The map's value is a
    number; (rho or epsilon, delta) for an approximate measure; a function ``epsilon(alpha)`` for Rényi
    divergence; a function ``delta(epsilon)`` for smoothed max divergence.
    """

    measure: Measure
    privacy_map: Callable[[Any], Any]
    function: Callable[[Any], Any]
    noise: Noise | None = None
    """Declared when the release is noiseless part plus this noise; ``core`` is the noiseless part."""
    core: Callable[[Any], Any] | None = None
    native: dp.Measurement | None = None
    output: Domain | None = None
    expected: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    """Why these settings, when a public rule chose them: one line for the plan."""
    mu_squared: Fraction | None = None
    """Proved Gaussian DP, and how much: mu**2 at distance 1 (it grows with the distance squared)."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """What can be asked of the release, by name, as of a sketch's; ``output`` then names its arrays."""
    again: Callable[[int], Sequence[Fraction]] | None = None
    """The loss at a distance, computed exactly and without OpenDP; a plan compares the two."""


@dataclass(frozen=True, slots=True)
class Interactive:
    """A measurement that answers many adaptive questions at one fixed loss."""

    measure: Measure
    privacy_map: Callable[[Any], Any]
    start: Callable[[Any], Callable[[Any], Any]]
    """From a dataset to the transition function: question to answer (state is the closure's)."""
    resume: Callable[[Any, Any], Any] | None = None
    """From a dataset and a session store to a service whose charges outlive the process."""
    priced: bool = False
    """Whether every transcript stays within the loss: what its Gaussian noises hide, added up, is at most
    that much. The audit then prices transcripts exactly."""
    expected: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    """What the plan should say about this choice, such as that a one-off release would do better."""
    mu_squared: Fraction | None = None
    """As that of ``Private``: of the whole interaction, however it goes on."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Hold the expected error of one of a question's several answers.

    Attributes:
        noise: deviation of the noise, in ``unit``; of a mean, that of the sum that is divided.
        unit: what it is counted in.
        moved: the most that the answer is moved by what is not noise; of a sum, with each record.
        least: of a mean, the number of records that it is divided by at least; None for a sum.
        divisor: of a mean, the deviation of the noisy number of records, independent of the sum's noise.
        largest: of a mean, how far it is from the sum's centre at most.
        centres: of a mean, the centre of each column's sum, in ``unit``; one where all are alike.
    """

    noise: float
    unit: str
    moved: float = 0.0
    least: float | None = None
    divisor: float = 0.0
    largest: float = 0.0
    centres: tuple[float, ...] = (0.0,)


@dataclass(frozen=True, slots=True)
class Post:
    """A pure function of what was released and of public things.

    ``takes`` says of what: ``"release"`` is ``function(arrays, queries)``, ``"answer"`` is
    ``function(answer)`` where an answer is a mapping of column name to array, one row a query.
    """

    function: Callable[..., Any]
    takes: Literal["release", "answer"] = "release"
    output: Domain | None = None
    expected: Mapping[str, float] = field(default_factory=dict)
    """Deviations of noise: ``noise_error`` in an answer, ``noise of THE THING`` behind one."""
    asks: bool = True
    """Whether it needs queries; without, ``function(arrays, None)`` answers (modes, coefficients)."""
    by_query: bool = True
    """Whether the answer to a query depends on no other query; blocks of them can then be asked apart."""
    of_a_record: float = 0.0
    """The most that one record adds to the sum whose ``noise_error`` is expected; 0 where not known."""
    unit: str = ""
    """What an answer is counted in, for texts and axes: "records", "votes", "units of the columns"."""
    quantities: Mapping[str, Quantity] = field(default_factory=dict)
    """The answers of a question that has several of different units, by name."""
    likely: Mapping[str, float] = field(default_factory=dict)
    """Of parts expected ``per record at most``, the root mean square where roundings are in no order."""


Claim = Stable | Private | Interactive | Post


@dataclass(frozen=True, slots=True)
class Stage:
    """Hold a mechanism bound to a space, with its claim."""

    mechanism: Any
    domain: Domain
    metric: Metric
    claim: Claim
