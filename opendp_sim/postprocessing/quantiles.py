"""Read quantiles of every column from interval counts (``quantiles.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, IntervalCounts, Linear
from opendp_sim.core.claims import Post
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
            found = [
                _of_column(offer, released, column, rows, shares, far, deviation)
                for column in range(rows.width)
            ]
            names = ("quantile", "lower", "upper", "rank_error")
            read = {
                name: np.concatenate([part[at] for part in found]) for at, name in enumerate(names)
            }
            place = np.repeat(np.arange(rows.width), len(shares))
            return {"column": place, "share": np.tile(shares, rows.width)} | read

        widest = max(offer.widest(column) for column in range(rows.width))
        return Post(
            answer,
            takes="release",
            output=AnswerColumns(COLUMNS, offer.labels),
            expected={"noise_error": deviation * math.sqrt(widest)},
            asks=False,
            of_a_record=1.0,
            unit="records",
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


def _of_column(
    offer: IntervalCounts,
    released: Arrays,
    column: int,
    rows: GridRows,
    shares: Floats,
    far: float,
    deviation: float,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return quantiles, both ends and rank errors, each (k, L)."""
    low, high = (
        float(np.broadcast_to(end, (rows.width,))[column]) for end in (rows.lower, rows.upper)
    )
    at = candidates(low, high)
    below, above = (np.full_like(at, low), at), (at + 1.0, np.full_like(at, high))
    fewest, most = map(_Ranks.of, offer.around(released, column, *below))
    fewest_above, most_above = map(_Ranks.of, offer.around(released, column, *above))
    middle, rest = (_Ranks.of(offer.count(released, column, *ends)) for ends in (below, above))
    start = np.concatenate([[low], at[:-1] + 1.0])
    ends = []
    for share in shares:
        value, noise = _lead(share, middle, rest)
        chosen = _crossing(value)
        value_most, noise_most = _lead(share, most, fewest_above)
        least = _first(value_most + far * noise_most >= 0.0)
        value_fewest, noise_fewest = _lead(share, fewest, most_above)
        largest = _last(value_fewest - far * noise_fewest < 0.0)
        first = np.minimum(start[least], at[chosen])
        last = np.maximum(at[np.minimum(largest + 1, len(at) - 1)], at[chosen])
        of_rank = deviation * np.take_along_axis(noise, chosen[:, None], axis=1)[:, 0]
        ends.append((at[chosen], first, last, of_rank))
    value, lower, upper, rank = (np.array(part) for part in zip(*ends, strict=True))
    moved = rows.rounding
    return (
        in_data(rows, column, value),
        in_data(rows, column, lower - moved),
        in_data(rows, column, upper + moved),
        rank,
    )


def candidates(low: float, high: float) -> Floats:
    """Return whole steps from ``low`` to ``high``, thinned, the last ``high``."""
    count = int(min(high - low + 1.0, _CANDIDATES))
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
    return np.minimum(sums.argmin(axis=1), leads.shape[1] - 1)


def _first(found: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return each row's first true place, the last place without one."""
    return np.where(found.any(axis=1), found.argmax(axis=1), found.shape[1] - 1)


def _last(found: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return each row's last true place, -1 without one."""
    last = found.shape[1] - 1 - found[:, ::-1].argmax(axis=1)
    return np.where(found.any(axis=1), last, -1)
