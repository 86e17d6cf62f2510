"""Programs of kinds that strangers wrote and the auditor missed; each was written with its mend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.audit.opaque.kit import APPROX, CHANGE_ONE, PURE, SYMMETRIC, dp, opaque, pair, up, whole


def _two_sided(rng: Any, rate: float) -> int:
    """Whole Laplace noise with weights exp(-rate |z|)."""
    share = -math.expm1(-rate)
    return int(rng.geometric(share)) - int(rng.geometric(share))


def _delta(sigma: float, epsilon: float) -> float:
    """The delta of normal noise around two numbers that are one apart."""

    def below(z: float) -> float:
        return 0.5 * math.erfc(-z / math.sqrt(2))

    half, moved = 0.5 / sigma, epsilon * sigma
    return below(half - moved) - math.exp(epsilon) * below(-half - moved)


def _sigma(epsilon: float, delta: float) -> float:
    low, high = 0.05, 50.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(middle, epsilon) > 0.99 * delta else (low, middle)
    return high


@pair(
    "subsampling",
    fault="the sample is drawn with replacement: a record may be in it several times",
    sound="four of eight records: one is in the sample with probability one half",
)
def jury_of_four(broken: bool) -> Any:
    rng = np.random.default_rng()
    claim = math.log1p(0.5 * math.expm1(1.2))

    def yes(votes):
        heard = rng.choice(np.array(votes), size=4, replace=broken)
        return int(heard.sum()) + _two_sided(rng, 1.2)

    return opaque(whole(0, 1, size=8), CHANGE_ONE, PURE, yes, lambda d: up(claim * d))


@pair("filters", fault="six answers of .2 each are charged as five", sound="five answers")
def one_answer_too_many(broken: bool) -> Any:
    rng = np.random.default_rng()

    def answers(rows):
        return [sum(row >= cut for row in rows) + _two_sided(rng, 0.2) for cut in range(5 + broken)]

    return opaque(whole(0, 9), SYMMETRIC, PURE, answers, lambda d: up(1.0 * d))


@pair(
    "conversions",
    fault="the formula for epsilon up to 1 at epsilon 10: delta is .04, not .01",
    sound="the scale is solved from the law itself; rounding comes after the noise",
)
def classical_formula(broken: bool) -> Any:
    epsilon, delta = 10.0, 0.01
    sigma = math.sqrt(2 * math.log(1.25 / delta)) / epsilon if broken else _sigma(epsilon, delta)

    def count(rows):
        return round(len(rows) + float(np.random.normal(0.0, sigma)), 1)

    return opaque(
        whole(0, 9), SYMMETRIC, APPROX, count, lambda d: (epsilon, delta) if d <= 1 else None
    )


@pair("conversions", fault="a record of up to 3 gets noise for one of up to 2", sound="noise for 3")
def normal_around_the_sum(broken: bool) -> Any:
    epsilon, delta = 1.0, 1e-6
    sigma = (2 if broken else 3) * _sigma(epsilon, delta)

    def total(rows):
        return float(np.random.default_rng().normal(sum(rows), sigma))

    return opaque(
        whole(0, 3), SYMMETRIC, APPROX, total, lambda d: (epsilon, delta) if d <= 1 else None
    )


@pair(
    "user against row level",
    fault="a row that comes first pushes another of the person out: the sum moves by both",
    sound="noise for two rows",
)
def first_two_visits(broken: bool) -> Any:
    rate = (1.0 if broken else 0.5) / 4

    def minutes(visits):
        seen, total = {}, 0
        for person, change in visits:
            seen[person] = seen.get(person, 0) + 1
            total += min(max(change, -4), 4) if seen[person] <= 2 else 0
        return total + _two_sided(np.random, rate)

    def visit(row):
        return type(row) is tuple and len(row) == 2 and all(type(v) is int for v in row)

    domain = dp.vector_domain(dp.user_domain("(person, change)", visit))
    return opaque(domain, dp.insert_delete_distance(), PURE, minutes, lambda d: up(1.0 * d))
