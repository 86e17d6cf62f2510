"""Read quantiles of every column from interval counts (``quantiles.md``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, IntervalCounts, Linear
from opendp_sim.core.claims import Post, Quantity
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.shared_parameters import Confidence
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.domains.rows import GridRows
from opendp_sim.postprocessing._impl.asked import grid_behind, offered
from opendp_sim.postprocessing._impl.noise_quantiles import reach

COLUMNS = ("column", "share", "quantile", "lower", "upper", "rank_error")
_CANDIDATES = 2**11
"""Most values of a column at which ranks are read, spread over its bounds."""
_PLANNED = 251
"""As many of them at which a plan looks at the noise: a prime, as dyadic places have the least."""
_ROUNDING = 2.0**-40

Floats = NDArray[np.float64]


@register
class Quantiles(Mechanism):
    r"""Read quantiles of every column, with intervals.

    The least value :math:`t` with :math:`|x_j \le t| \ge s n`, for every share s, column j and class.

    Space
        Input: a release of a sketch that offers ``interval_counts`` (``distance_tree``,
        ``moment_tree``, ``threshold_sketch``); no queries. Output: a row for each of the d columns
        and k shares: ``column`` (d k,), counted from 0; ``share`` (d k,); and of shape (d k, L), L
        being the number of classes (1 without ``per_label``), ``quantile``, ``lower`` and ``upper``
        in data units, and ``rank_error``, by how many records noise moves the rank (one standard
        deviation, at most). The interval holds noise, the structure's cells and rounding to the grid.
        It is about the rows as they reach the sketch: clamped to their bounds.

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release: no further loss, for any shares and as often as one likes.

    Raises
        ParameterError (OS101): a share outside (0, 1), none, or more than 1,000. ReleaseError
        (OS702): the release counts no intervals. SpaceError (OS201): not a release.

    Source
        [own] Lemmas 1 and 2 in ``quantiles.md``.

    Example
        >>> Quantiles(shares=(0.1, 0.9)).spec()["shares"]
        [0.1, 0.9]
    """

    key: ClassVar[str] = "quantiles"
    in_short: ClassVar[str] = "Find the values below which given shares of the records are."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 2")
    room = "queries"
    asks_for = ("interval_counts",)

    shares: Annotated[
        tuple[float, ...],
        param(
            "Shares of the records at or below the value.", symbol="s", unit="share",
            default=(0.25, 0.5, 0.75), min_length=1, max_length=1000,
            hint="0.5 is the median; all shares are read from one release.",
        ),
    ] = (0.25, 0.5, 0.75)  # fmt: skip
    confidence: Confidence = 0.95

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a release that offers interval counts."""
        del metric
        offer, release = offered(self.key, domain, "interval_counts")
        if not all(0.0 < share < 1.0 for share in self.shares):
            raise ParameterError(
                "OS101", f"{self.key}.shares", expected="shares between 0 and 1, ends excluded",
                got="another number", hint="0.5 is the median; the least and the largest record "
                "have no private answer.",
            )  # fmt: skip
        rows = grid_behind(self.key, release)
        deviation = release.deviation
        far, shares = reach(release, self.confidence) * deviation, np.array(self.shares)

        def answer(released: Arrays, queries: Any = None) -> dict[str, NDArray[Any]]:
            del queries
            tables = []
            for column in range(rows.width):
                split = _Split.of(offer, rows, column, _CANDIDATES)
                value, lower, upper, rank = _of_column(split, released, shares, far, deviation)
                steps = value, lower - rows.rounding, upper + rows.rounding
                tables.append((*(in_data(rows, column, part) for part in steps), rank))
            place = np.repeat(np.arange(rows.width), len(shares))
            read = (np.concatenate(part) for part in zip(*tables, strict=True))
            columns = place, np.tile(shares, rows.width), *read
            return dict(zip(COLUMNS, columns, strict=True))

        sketch: Any = release.sketch
        empty = {name: np.zeros(shape) for name, shape in sketch.shapes.items()}
        widest = max(
            _rank_error(_Split.of(offer, rows, column, _PLANNED), empty, shares)
            for column in range(rows.width)
        )
        return Post(
            answer,
            takes="release",
            output=AnswerColumns(COLUMNS, offer.labels),
            expected={"noise_error": deviation * widest},
            asks=False,
            of_a_record=1.0,
            unit="records",
            quantities={"rank": Quantity(deviation * widest, "records")},
        )


@dataclass(frozen=True)
class _Ranks:
    """Hold one side's cells at candidates, values and deviations (L, m)."""

    values: Floats
    deviation: Floats

    @classmethod
    def of(cls, found: Linear) -> _Ranks:
        spread = np.sqrt(np.broadcast_to(found.variance, found.values.shape))
        return cls(found.values, spread)


@dataclass(frozen=True)
class _Split:
    """Cut a column's grid at candidates, and count on both sides.

    Attributes:
        low: the least grid value. at: the candidates, rising.
    """

    offer: IntervalCounts
    column: int
    low: float
    at: Floats

    @classmethod
    def of(cls, offer: IntervalCounts, rows: GridRows, column: int, most: int) -> _Split:
        low, high = (
            float(np.broadcast_to(end, (rows.width,))[column]) for end in (rows.lower, rows.upper)
        )
        return cls(offer, column, low, candidates(low, high, most))

    @property
    def below(self) -> tuple[Floats, Floats]:
        """The intervals up to each candidate."""
        return np.full_like(self.at, self.low), self.at

    @property
    def above(self) -> tuple[Floats, Floats]:
        """The intervals from behind each candidate."""
        return self.at + 1.0, np.full_like(self.at, self.at[-1])

    def counts(self, released: Arrays) -> tuple[_Ranks, _Ranks]:
        """Count on both sides by cells' centres."""
        below, above = (
            _Ranks.of(self.offer.count(released, self.column, *ends))
            for ends in (self.below, self.above)
        )
        return below, above

    def inside_and_around(self, released: Arrays, *, below: bool) -> tuple[_Ranks, _Ranks]:
        """Count cells inside one side, and cells that meet it."""
        ends = self.below if below else self.above
        inner, outer = self.offer.around(released, self.column, *ends)
        return _Ranks.of(inner), _Ranks.of(outer)


def _of_column(
    split: _Split, released: Arrays, shares: Floats, far: float, deviation: float
) -> list[Floats]:
    """Return quantiles, both ends in steps and rank errors, each (k, L)."""
    at = split.at
    fewest, most = split.inside_and_around(released, below=True)
    fewest_above, most_above = split.inside_and_around(released, below=False)
    middle = split.counts(released)
    start = np.concatenate([[split.low], at[:-1] + 1.0])
    ends = []
    for share in shares:
        value, noise = _lead(share, *middle)
        chosen = _crossing(value)
        value_most, noise_most = _lead(share, most, fewest_above)
        least = _first(value_most + far * noise_most >= 0.0)
        value_fewest, noise_fewest = _lead(share, fewest, most_above)
        largest = _last(value_fewest - far * noise_fewest < 0.0)
        first = np.minimum(start[least], at[chosen])
        last = np.maximum(at[np.minimum(largest + 1, len(at) - 1)], at[chosen])
        of_rank = deviation * np.take_along_axis(noise, chosen[:, None], axis=1)[:, 0]
        ends.append((at[chosen], first, last, of_rank))
    return [np.array(part) for part in zip(*ends, strict=True)]


def _rank_error(split: _Split, empty: Arrays, shares: Floats) -> float:
    """Return a rank's largest deviation per cell's, at some candidates."""
    sides = split.counts(empty)
    return max(float(_lead(share, *sides)[1].max()) for share in shares)


def candidates(low: float, high: float, most: int = _CANDIDATES) -> Floats:
    """Return whole steps from ``low`` to ``high``, thinned, the last ``high``."""
    count = int(min(high - low + 1.0, most))
    found: Floats = high - np.floor(np.arange(count)[::-1] * ((high - low + 1.0) / count))
    return found


def in_data(rows: GridRows, column: int, steps: Floats) -> Floats:
    """Return one column's numbers of steps in data units."""
    points = np.zeros((steps.size, rows.width))
    points[:, column] = steps.reshape(-1)
    found: Floats = rows.to_data(points)[:, column].reshape(steps.shape)
    return found


def _lead(share: float, below: _Ranks, above: _Ranks) -> tuple[Floats, Floats]:
    """Return ``(1 - s) A - s B`` of counts, and a bound on its deviation (Lemma 1).

    What is no more than rounding of floats is zero.
    """
    values = (1.0 - share) * below.values - share * above.values
    rounded = _ROUNDING * (np.abs(below.values) + np.abs(above.values))
    values = np.where(np.abs(values) <= rounded, 0.0, values)
    return values, (1.0 - share) * below.deviation + share * above.deviation


def _crossing(leads: Floats) -> NDArray[np.intp]:
    """Return where each row's monotone least-squares fit reaches zero.

    That is behind the least of the running sums.
    """
    sums = np.pad(np.cumsum(leads, axis=1), ((0, 0), (1, 0)))
    place: NDArray[np.intp] = np.minimum(sums.argmin(axis=1), leads.shape[1] - 1)
    return place


def _first(found: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return each row's first true place, the last place without one."""
    first: NDArray[np.intp] = np.where(found.any(axis=1), found.argmax(axis=1), found.shape[1] - 1)
    return first


def _last(found: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return each row's last true place, -1 without one."""
    behind = found.shape[1] - 1 - found[:, ::-1].argmax(axis=1)
    last: NDArray[np.intp] = np.where(found.any(axis=1), behind, -1)
    return last
