"""Fresh releases of a pair, encoded; exceptions are outputs like any other."""

from __future__ import annotations

import itertools
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from opendp_sim.audit.claims.noise_laws import difference
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.outputs.encoding import WIDEST, Encoded, Raised, encode
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.work import charge, work_seconds
from opendp_sim.core.randomness import public_generator

_WIDE = 4000
_BATCH, _SAMPLED = 1e-4, 2e-6
"""Nominal seconds of releases that are made together, and of each of them."""
_batches = itertools.count()


def begin_coins() -> None:
    """Reset the coins of an audit, equal for equal seeds."""
    global _batches  # noqa: PLW0603
    _batches = itertools.count()


Spots = NDArray[np.int64] | None


def draw(subject: Subject, data: Any, count: int, spots: Spots = None) -> list[Any]:
    """Return ``count`` releases of few cells, with exceptions of runs."""
    if subject.sample is not None:
        charge(_BATCH + count * _SAMPLED)
        return [_narrow(v, spots) for v in subject.releases(data, count)]
    out: list[Any] = []
    for _ in range(count):
        try:
            out.append(_narrow(subject.run(data), spots))
        except Exception as error:  # noqa: BLE001
            out.append(Raised.of(error))
    return out


def draw_both(
    subject: Subject, pair: Pair, count: int, spots: Spots = None
) -> tuple[list[Any], list[Any]]:
    """Return releases of either side, in random order by round."""
    if subject.sample is not None:
        return draw(subject, pair.left, count, spots), draw(subject, pair.right, count, spots)
    return both_sides(lambda data: draw(subject, data, 1, spots), pair, count)


def both_sides(
    one: Callable[[Any], list[Any]], pair: Pair, count: int
) -> tuple[list[Any], list[Any]]:
    """Return the results of rounds on both sides.

    A public coin decides the order in each round. Every batch of an audit has coins of its own: a
    counter could keep step with coins that come again.

    A function may count its calls or look at a clock. If that moves without the data, the sides of a
    round have one law of it between them, and the claim holds of the round (``layer.md``).

    """
    left, right = list[Any](), list[Any]()
    sides = (right, pair.right), (left, pair.left)
    coins = public_generator(next(_batches), "audit", "sides").integers(0, 2, size=count).tolist()
    for coin in coins:
        for side, data in (sides[coin], sides[1 - coin]):
            side.extend(one(data))
    return left, right


def spots_of(subject: Subject, pair: Pair) -> Spots:
    """Return the cells of a release with the largest differences.

    Of the noiseless parts of a pair, for wide releases. ``None`` when the release is not wide or
    nothing is known of its noiseless part.
    """
    if subject.core is None or subject.noise is None:
        return None
    try:
        first, second = subject.noiseless(pair.left), subject.noiseless(pair.right)
        law = subject.law(first.size)
    except Exception:  # noqa: BLE001 - whatever a mechanism raises
        return None
    if law is None or not WIDEST < first.size == second.size:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.nan_to_num(np.abs(difference(second, first)) / law.scales(first.size))
    return np.sort(np.argsort(-moved, kind="stable")[: WIDEST - 1])


def _narrow(value: Any, spots: Spots) -> Any:
    """Restrict a wide release to some cells and its sum."""
    size = (
        value.size
        if isinstance(value, np.ndarray)
        else len(value)
        if isinstance(value, list)
        else 0
    )
    if size <= (_WIDE if spots is None else WIDEST):
        return value
    flat = np.asarray(value, dtype=float).ravel()
    if spots is None or spots[-1] >= flat.size:
        spots = np.linspace(0, flat.size - 1, WIDEST - 1).astype(np.int64)
    return np.append(flat[spots], flat.sum())


def differ(left: Any, right: Any) -> bool:
    """Say whether two datasets differ; large arrays are compared in full."""
    return bool(data_key(left) != data_key(right))


def data_key(data: Any) -> Any:
    """Return a value that equal datasets share."""
    try:
        return pickle.dumps(data)
    except Exception:  # noqa: BLE001 - whatever cannot be pickled
        return repr(data)


@dataclass
class PairSample:
    """All outputs of one pair so far."""

    pair: Pair
    left: list[Encoded] = field(default_factory=list)
    right: list[Encoded] = field(default_factory=list)
    runs: int = 0
    seconds: float = 0.0
    spots: Spots = None
    """The cells that are kept of a wide release, chosen before the first is drawn."""

    def extend(self, subject: Subject, count: int) -> tuple[Encoded, Encoded]:
        """Draw ``count`` more from each side and return them."""
        begin = work_seconds()
        if not self.runs:
            self.spots = spots_of(subject, self.pair)
        left, right = draw_both(subject, self.pair, count, self.spots)
        fresh = encode(left), encode(right)
        self.left.append(fresh[0])
        self.right.append(fresh[1])
        self.runs += count
        self.seconds += work_seconds() - begin
        return fresh

    def all(self) -> tuple[Encoded, Encoded]:
        """Return everything drawn so far, joined."""
        self.left, self.right = [Encoded.join(self.left)], [Encoded.join(self.right)]
        return self.left[0], self.right[0]


# --------------------------------------------------------------------------------------------------
# Whether two samples of outputs have two laws, by Kolmogorov and Smirnov.


_CELLS = 400


def surely_differ(one: list[Any], two: list[Any], risk: float) -> bool:
    """Return whether two samples differ in law, wrong at most at risk."""
    first, second = encode(one).cells, encode(two).cells
    if first.shape[1] != second.shape[1]:
        return not any(isinstance(v, (list, dict, str, bytes)) for v in (*one, *two))
    cells = range(0, first.shape[1], first.shape[1] // _CELLS + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of cells with few numbers, or none
        return any(
            stats.ks_2samp(first[:, i], second[:, i], method="asymp", nan_policy="omit").pvalue
            <= risk / len(cells)
            for i in cells
        )
