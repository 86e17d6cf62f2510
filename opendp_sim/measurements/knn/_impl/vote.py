"""Predict one label privately (sections 2 to 4 of ``ind_knn.md``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opendp_sim.measurements.knn._impl.privacy_filter import IndividualFilter

_LEAST_SCALE, _MOST_SCALE = 2.0**-20, 2.0**59
"""Below, noise is always zero and its price more than any purse; above, cells would not hold it."""
Noise = Callable[[NDArray[np.int64], float], NDArray[np.int64]]
Charges = list[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""What was taken from whom, in units. Secret."""


def drawable(scale: float) -> float:
    """Return the noise scale that is drawn and priced."""
    return min(max(scale, _LEAST_SCALE), _MOST_SCALE)


@dataclass(frozen=True)
class Scales:
    """Hold public noise parameters, ``vote`` per root of the count."""

    count: float
    vote: float
    minimum: int

    def of_votes(self, count: int) -> tuple[int, float]:
        """Return the vote noise's count and scale.

        At least the minimum, and rounded up by at most 1/32: noise of a scale seen before is cheap.
        """
        floored = max(count, self.minimum)
        coarse = 1 << max(0, floored.bit_length() - 6)
        rounded = -(-floored // coarse) * coarse
        return rounded, drawable(self.vote * math.sqrt(rounded))


@dataclass(frozen=True)
class Near:
    """The records that one query selects. Secret.

    Attributes:
        owners: shape (k,); the purse of each. labels: shape (k,). weights: shape (k,), in steps.
        one_each: whether no purse occurs twice.
    """

    owners: NDArray[np.int64]
    labels: NDArray[np.int64]
    weights: NDArray[np.int64]
    one_each: bool


@dataclass(frozen=True)
class Outcome:
    """Hold one query's noisy count and votes, in weight steps."""

    count: int
    votes: NDArray[np.int64]
    scale: float


def vote(
    near: Near,
    classes: int,
    scales: Scales,
    purses: IndividualFilter,
    noisy: Noise,
    charges: Charges,
) -> Outcome:
    """Answer one query, drawing both noises also when nobody is near.

    Args:
        near: who is within the threshold.
        classes: number of public labels.
        scales: public noise parameters.
        purses: charged here, before each noisy sum is drawn.
        noisy: adds rounded Gaussian noise.
        charges: what was charged is appended.
    """
    persons, place, records = _persons(near)
    price = purses.price(scales.count)
    can = purses.affordable(persons, price) >= records
    persons, records = persons[can], records[can]
    counting = purses.charge(persons, records, price)
    total = np.array([records.sum()], dtype=np.int64)
    count = int(noisy(total, scales.count)[0])

    _, scale = scales.of_votes(count)
    price = purses.price(scale)
    most = purses.affordable(persons, price)
    if place is None:
        counted, given = can, np.minimum(near.weights[can], most)
        clipped = given
    else:
        counted = can[place]
        place = (np.cumsum(can) - 1)[place[counted]]
        clipped = np.minimum(near.weights[counted], (most // records)[place])
        given = np.bincount(place, weights=clipped, minlength=len(persons)).astype(np.int64)
    charges.append((persons, counting + purses.charge(persons, given, price)))
    votes = np.bincount(near.labels[counted], weights=clipped, minlength=classes)
    return Outcome(count, noisy(votes.astype(np.int64), scale), scale)


def _persons(near: Near) -> tuple[NDArray[np.int64], NDArray[np.intp] | None, NDArray[np.int64]]:
    """Return budgets, each's records, and records' places (None for own)."""
    if near.one_each:
        return near.owners, None, np.ones(len(near.owners), dtype=np.int64)
    persons, place, records = np.unique(near.owners, return_inverse=True, return_counts=True)
    return persons, place, records
