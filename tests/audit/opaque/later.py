"""Programs written later, again before their author had read the auditor."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from tests.audit.opaque.kit import (
    APPROX,
    PURE,
    SYMMETRIC,
    ZCDP,
    dp,
    gauss,
    lap,
    laps,
    opaque,
    pair,
    text,
    up,
    whole,
)


@pair(
    "clamps",
    fault="records are clamped to the 10 and 90 % points of the data: one record moves the clamp",
    sound="public bounds",
)
def winsorised(broken: bool) -> Any:
    noise = lap(100.0)

    def total(rows):
        ordered, low, high = sorted(rows), 0, 100
        if broken and ordered:
            low, high = ordered[int(0.1 * len(rows))], ordered[int(0.9 * len(rows))]
        return noise(sum(min(max(row, low), high) for row in ordered))

    return opaque(whole(0, 100), SYMMETRIC, PURE, total, lambda d: noise.map(100 * d))


@pair(
    "conversions",
    fault="the sum is rounded to tens before the noise, which is for a sum that is not",
    sound="5 d more round to at most 10 d more",
)
def rounded_total(broken: bool) -> Any:
    noise = lap(5.0 if broken else 10.0)

    def total(rows):
        return noise(10 * round(sum(rows) / 10))

    return opaque(whole(0, 5), SYMMETRIC, PURE, total, lambda d: up(1.0 * d))


@pair(
    "user against row level",
    fault="a user's last row counts: without it the one before does, so two cells move",
    sound="noise for two cells",
)
def last_row_of_user(broken: bool) -> Any:
    noise = laps(1.0 if broken else 2.0)

    def histogram(rows):
        last = {}
        for row in rows:
            last[row // 10] = row % 10
        cells = [0] * 10
        for value in last.values():
            cells[value] += 1
        return noise(cells)

    return opaque(whole(0, 99), dp.insert_delete_distance(), PURE, histogram, lambda d: up(1.0 * d))


@pair(
    "float resolution",
    fault="a geometric number with a random sign: zero has both signs and is too likely",
    sound="the difference of two geometric numbers is the discrete Laplace law",
)
def signed_geometric(broken: bool) -> Any:
    rng, p = np.random.default_rng(), -math.expm1(-1.0)

    def count(rows):
        first = int(rng.geometric(p)) - 1
        if broken:
            return sum(rows) + (first if rng.integers(2) else -first)
        return sum(rows) + first - (int(rng.geometric(p)) - 1)

    domain = dp.vector_domain(dp.atom_domain(T=bool))
    return opaque(domain, SYMMETRIC, PURE, count, lambda d: up(1.0 * d))


@pair(
    "truncation",
    fault="noise is cut at two standard deviations: its ends are seen on one side only",
    sound="the Gaussian of scale 4 at distance 1 has delta 3e-6 at epsilon 1; claimed is .002",
)
def cut_noise(broken: bool) -> Any:
    noise = gauss(4.0)

    def count(rows):
        drawn = noise(0)
        return len(rows) + (max(-8, min(8, drawn)) if broken else drawn)

    return opaque(
        whole(0, 9), SYMMETRIC, APPROX, count, lambda d: (1.0 * d, 2e-3 if d <= 1 else 1.0)
    )


@pair(
    "quantiles",
    fault="the exponential mechanism for a score that may fall for one and rise for another",
    sound="half of the score, which changes by one a record",
)
def median_by_weight(broken: bool) -> Any:
    factor = 1.0 if broken else 0.5

    def median(rows):
        gaps = [abs(sum(r < c for r in rows) - sum(r > c for r in rows)) for c in range(11)]
        return random.choices(range(11), [math.exp(-factor * gap) for gap in gaps])[0]

    return opaque(whole(0, 10), SYMMETRIC, PURE, median, lambda d: up(1.0 * d))


@pair("conversions", fault="the scale is an integer quotient: 5 // 2 for 5 / 2", sound="5 / 2")
def integer_scale(broken: bool) -> Any:
    bound, epsilon = 5, 2
    noise = lap(float(bound // epsilon) if broken else bound / epsilon)

    def total(rows):
        return noise(sum(min(row, bound) for row in rows))

    return opaque(whole(0, 50), SYMMETRIC, PURE, total, lambda d: up(2.0 * d))


@pair(
    "DP-SGD",
    fault="the second step adds the first gradient again, without its noise",
    sound="it adds the first release",
)
def momentum(broken: bool) -> Any:
    scale = 12.0
    noise = gauss(scale)

    def steps(rows):
        first = sum(max(-10, min(10, row)) for row in rows)
        seen = noise(first)
        second = sum(max(-10, min(10, row - seen // 20)) for row in rows)
        return [seen, noise(first + second) if broken else noise(second) + seen]

    return opaque(
        whole(-20, 20), SYMMETRIC, ZCDP, steps, lambda d: up(2 * (10 * d) ** 2 / (2 * scale**2))
    )


@pair(
    "clamps",
    fault="an assertion on the largest row fails on no rows",
    sound="it is asserted of all rows, and true on the domain",
)
def asserted_range(broken: bool) -> Any:
    noise = lap(100.0)

    def total(rows):
        assert (max(rows) <= 100) if broken else all(row <= 100 for row in rows)
        return noise(sum(rows))

    return opaque(whole(0, 100), SYMMETRIC, PURE, total, lambda d: noise.map(100 * d))


@pair(
    "quantiles",
    fault="four noisy comparisons of epsilon 1/2 are charged as two",
    sound="four of epsilon 1/4",
)
def bisected_median(broken: bool) -> Any:
    noise = lap(2.0 if broken else 4.0)

    def median(rows):
        low, high = 0, 16
        for _ in range(4):
            middle = (low + high) // 2
            if noise(sum(row < middle for row in rows)) > 10:
                high = middle
            else:
                low = middle
        return low

    return opaque(whole(0, 15), SYMMETRIC, PURE, median, lambda d: up(1.0 * d))


@pair(
    "data-dependent keys",
    fault="a cell is split when its true count is large",
    sound="when its noisy count is: half of the budget for it, half for the leaf",
)
def split_cells(broken: bool) -> Any:
    noise = lap(1.0 if broken else 2.0)

    def tree(rows):
        out = []
        for low in (0, 4, 8, 12):
            count = sum(low <= row < low + 4 for row in rows)
            if (count if broken else noise(count)) > 12:
                halves = (low, low + 2)
                out += [noise(sum(h <= row < h + 2 for row in rows)) for h in halves]
            else:
                out.append(noise(count))
        return out

    return opaque(whole(0, 15), SYMMETRIC, PURE, tree, lambda d: up(1.0 * d))


@pair(
    "float resolution",
    fault="the noise is never negative: the count is at most what is seen",
    sound="the difference of two: the discrete Laplace law",
)
def one_sided(broken: bool) -> Any:
    def count(rows):
        out = len(rows) + int(random.expovariate(1.0))
        return out if broken else out - int(random.expovariate(1.0))

    return opaque(text(), SYMMETRIC, PURE, count, lambda d: up(1.0 * d))


@pair(
    "thresholds",
    fault="a day is noised again only when its true count has moved far from the last release",
    sound="each day has its own draw, and a row is in one day",
)
def only_changes(broken: bool) -> Any:
    noise = lap(1.0)

    def days(rows):
        last, out = 0, []
        for day in range(4):
            count = rows.count(day)
            if not broken or abs(count - last) > 3:
                last = noise(count)
            out.append(last)
        return out

    return opaque(whole(0, 3), SYMMETRIC, PURE, days, lambda d: up(1.0 * d))
