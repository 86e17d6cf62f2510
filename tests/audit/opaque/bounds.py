"""Clamps, NaN, contribution bounds, user against row level, parallel composition."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from tests.audit.opaque.kit import (
    CHANGE_ONE,
    PURE,
    SYMMETRIC,
    ZCDP,
    gausses,
    lap,
    laps,
    opaque,
    pair,
    real,
    up,
    whole,
)


@pair("clamps", fault="only the upper bound is clamped", sound="each row moves the sum by <= 10")
def sum_upper_clamp(broken: bool) -> Any:
    noise = lap(20.0)

    def one_sided(rows):
        return noise(sum(min(row, 10) for row in rows))

    def clamped(rows):
        return noise(sum(max(0, min(row, 10)) for row in rows))

    return opaque(
        whole(), SYMMETRIC, PURE, one_sided if broken else clamped, lambda d: noise.map(10 * d)
    )


@pair(
    "clamps",
    fault="the total is clipped, not the rows",
    sound="each row is clipped to 4, the sum moves by <= 4",
)
def batch_clip(broken: bool) -> Any:
    noise = lap(8.0)

    def of_total(rows):
        return noise(max(-400, min(sum(rows), 400)))

    def of_rows(rows):
        return noise(max(-400, min(sum(max(-4, min(row, 4)) for row in rows), 400)))

    return opaque(
        whole(-50, 50), SYMMETRIC, PURE, of_total if broken else of_rows, lambda d: noise.map(4 * d)
    )


@pair(
    "clamps and NaN",
    fault="NaN passes both comparisons, the total is NaN and is released as it is",
    sound="NaN rows are dropped; every other row moves the sum by <= 5",
)
def nan_through_clamp(broken: bool) -> Any:
    noise = lap(10.0)

    def cut(row):
        if row < 0.0:
            return 0.0
        if row > 5.0:
            return 5.0
        return row

    def poisoned(rows):
        total = sum(math.floor(cut(row)) if row == row else row for row in rows)
        return math.nan if total != total else float(noise(int(total)))

    def dropped(rows):
        return float(noise(sum(math.floor(cut(row)) for row in rows if row == row)))

    return opaque(
        real(nan=True), SYMMETRIC, PURE, poisoned if broken else dropped, lambda d: noise.map(5 * d)
    )


@pair(
    "clamps",
    fault="sensitivity max(|L|, |U|) under change-one, where it is U - L",
    sound="replacing a row moves the sum by at most U - L = 18",
)
def change_one_range(broken: bool) -> Any:
    low, high = -6, 12
    noise = lap(12.0 if broken else 18.0)

    def noisy_sum(rows):
        return noise(sum(max(low, min(high, row)) for row in rows))

    return opaque(
        whole(-100, 100),
        CHANGE_ONE,
        PURE,
        noisy_sum,
        lambda d: noise.map((high if broken else high - low) * d),
    )


@pair(
    "contribution bounds",
    fault="each user keeps the three largest rows; one more row of a user can be 9, but 1 is charged",
    sound="rows are counted, not summed: one row more moves the capped count by <= 1",
)
def capped_users(broken: bool) -> Any:
    noise = lap(3.0)

    def summed(rows):
        users: dict[int, list[int]] = {}
        for row in rows:
            users.setdefault(row // 10, []).append(row % 10)
        return noise(sum(sum(sorted(kept)[-3:]) for kept in users.values()))

    def counted(rows):
        return noise(sum(min(count, 3) for count in Counter(row // 10 for row in rows).values()))

    return opaque(
        whole(0, 99), SYMMETRIC, PURE, summed if broken else counted, lambda d: noise.map(d)
    )


@pair(
    "contribution bounds",
    fault="the cap is taken of each bin, but a row counts in two bins",
    sound="a row counts in exactly one bin",
)
def two_bins(broken: bool) -> Any:
    noise = laps(2.0)

    def both(rows):
        return noise([sum(10 * b <= row <= 10 * b + 10 for row in rows) for b in range(5)])

    def half_open(rows):
        return noise([sum(10 * b <= row < 10 * b + 10 for row in rows) for b in range(5)])

    return opaque(
        whole(0, 49), SYMMETRIC, PURE, both if broken else half_open, lambda d: noise.map(d)
    )


@pair(
    "user against row level",
    fault="the claim does not grow with the number of rows of a user",
    sound="the loss of k rows is k times the loss of one",
    d_in=4,
)
def flat_map(broken: bool) -> Any:
    noise = lap(2.0)

    def size(rows):
        return noise(len(rows))

    return opaque(
        whole(0, 5),
        SYMMETRIC,
        PURE,
        size,
        (lambda d: noise.map(min(d, 1))) if broken else noise.map,
    )


@pair(
    "user against row level",
    fault="zCDP of a group grows with the square, the map is linear",
    sound="the Gaussian map at L2 distance d",
    d_in=3,
)
def linear_rho(broken: bool) -> Any:
    noise = gausses(3.0)

    def cells(rows):
        count = Counter(rows)
        return noise([count[k] for k in range(3)])

    return opaque(
        whole(0, 2),
        SYMMETRIC,
        ZCDP,
        cells,
        (lambda d: noise.map(1.0) * d) if broken else (lambda d: noise.map(float(d))),
    )


@pair(
    "parallel composition",
    fault="a replaced row leaves one part and enters another, only one is charged",
    sound="two parts change under change-one, both are charged",
)
def parallel_replace(broken: bool) -> Any:
    noise = lap(2.0)

    def parts(rows):
        return [noise(sum(row % 3 == part for row in rows)) for part in range(3)]

    return opaque(
        whole(0, 8),
        CHANGE_ONE,
        PURE,
        parts,
        (lambda d: noise.map(d)) if broken else (lambda d: up(2 * noise.map(d))),
    )


@pair(
    "parallel composition",
    fault="the total over all parts is released beside them and charged as one more part",
    sound="parts compose in parallel, the total in sequence",
)
def parts_and_total(broken: bool) -> Any:
    noise = lap(2.5)

    def answer(rows):
        groups = [sum(1 for row in rows if row // 4 == g) for g in range(4)]
        return [noise(g) for g in groups] + [noise(sum(groups))]

    return opaque(
        whole(0, 15),
        SYMMETRIC,
        PURE,
        answer,
        (lambda d: noise.map(d)) if broken else (lambda d: up(2 * noise.map(d))),
    )


@pair(
    "parallel composition",
    fault="cumulative parts (<= edge) are charged as if they were disjoint",
    sound="a row is in up to four cumulative parts; four are charged",
)
def cumulative(broken: bool) -> Any:
    noise = lap(4.0)

    def below(rows):
        return tuple(noise(sum(1 for row in rows if row <= edge)) for edge in (25, 50, 75, 100))

    return opaque(
        whole(0, 100),
        SYMMETRIC,
        PURE,
        below,
        (lambda d: noise.map(d)) if broken else (lambda d: up(4 * noise.map(d))),
    )
