"""Truncation, subsampling, quantiles, chunk borders, sentinels, rare categories."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tests.audit.opaque.kit import (
    CHANGE_ONE,
    PURE,
    SYMMETRIC,
    lap,
    opaque,
    pair,
    real,
    text,
    up,
    whole,
)


@pair(
    "truncation",
    fault="the 20 largest rows are kept: one row more pushes another out, 2 rows change",
    sound="the sum of the 20 largest of [0, 9] rises by at most 9 when a row is added",
)
def largest_kept(broken: bool) -> Any:
    noise = lap(9.0)

    def parity(rows):
        kept = sorted(rows, reverse=True)[:20]
        return noise(sum(row if row % 2 == 0 else -row for row in kept))

    def plain(rows):
        return noise(sum(sorted(rows, reverse=True)[:20]))

    return opaque(
        whole(0, 9), SYMMETRIC, PURE, parity if broken else plain, lambda d: noise.map(9 * d)
    )


@pair(
    "truncation",
    fault="the first 100 rows in the given order, although the metric has no order",
    sound="the count is capped, which no order can change",
)
def first_hundred(broken: bool) -> Any:
    noise = lap(2.0)

    def first(rows):
        return noise(sum(1 for row in rows[:100] if row > 3))

    def capped(rows):
        return noise(min(100, sum(1 for row in rows if row > 3)))

    return opaque(whole(0, 7), SYMMETRIC, PURE, first if broken else capped, lambda d: noise.map(d))


@pair(
    "truncation",
    fault="rows beyond the size limit raise",
    sound="rows beyond the limit are not counted; the capped count moves by <= 1",
)
def size_limit(broken: bool) -> Any:
    noise = lap(1.5)

    def strict(rows):
        if len(rows) > 250:
            msg = "too many rows"
            raise ValueError(msg)
        return noise(len(rows))

    def capped(rows):
        return noise(min(len(rows), 250))

    return opaque(
        whole(0, 1), SYMMETRIC, PURE, strict if broken else capped, lambda d: noise.map(d)
    )


@pair(
    "subsampling",
    fault="amplification for a random half, but every second row is taken",
    sound="no amplification is claimed; each row moves the count by <= 1 in sorted order",
)
def every_second(broken: bool) -> Any:
    noise = lap(1.0)

    def half(rows):
        return noise(len(sorted(rows)[::2]))

    return opaque(
        whole(0, 3),
        SYMMETRIC,
        PURE,
        half,
        (lambda d: noise.map(d) / 2) if broken else (lambda d: noise.map(d)),
    )


@pair(
    "subsampling",
    fault="amplification q * eps in place of log(1 + q (e^eps - 1))",
    sound="amplification of Poisson sampling by the exact formula",
)
def poisson_linear(broken: bool) -> Any:
    noise, coin = lap(0.5), random.SystemRandom()

    def sampled(rows):
        return noise(sum(1 for _ in rows if coin.getrandbits(1)))

    return opaque(
        whole(0, 3),
        SYMMETRIC,
        PURE,
        sampled,
        (lambda d: 0.5 * noise.map(d))
        if broken
        else (lambda d: up(float(np.log1p(0.5 * np.expm1(noise.map(1)))) * d)),
    )


@pair(
    "subsampling",
    fault="rows are sampled by a hash of themselves: the same rows are in every sample",
    sound="the sample is a public subset, and no amplification is claimed",
)
def hash_sampling(broken: bool) -> Any:
    noise = lap(1.0)

    def chosen(rows):
        return noise(sum(1 for row in rows if (row * 2654435761) % 4 == 0))

    return opaque(
        whole(0, 40),
        SYMMETRIC,
        PURE,
        chosen,
        (lambda d: up(float(np.log1p(0.25 * np.expm1(noise.map(1)))) * d))
        if broken
        else (lambda d: noise.map(d)),
    )


@pair(
    "quantiles",
    fault="noise of scale 1 on the median itself, whose sensitivity is the range",
    sound="noise for the range",
)
def median_noise(broken: bool) -> Any:
    noise = lap(2.0 if broken else 100.0)

    def median(rows):
        ordered = sorted(rows) or [0]
        return noise(ordered[len(ordered) // 2])

    return opaque(
        whole(0, 100),
        SYMMETRIC,
        PURE,
        median,
        (lambda d: noise.map(d)) if broken else (lambda d: noise.map(100 * d)),
    )


def _rank_choice(rows, options, rate):
    scores = [-abs(sum(r < o for r in rows) - sum(r > o for r in rows)) for o in options]
    top = max(scores)
    weights = [np.exp(rate * max(score - top, -40)) for score in scores]
    return random.choices(options, weights=weights)[0]


@pair(
    "quantiles",
    fault="the exponential mechanism over ranks forgets the factor 2 of the normalisation",
    sound="rate eps / 2 for a score that moves by <= 1 for each row added or removed",
)
def rank_median(broken: bool) -> Any:
    options, epsilon = [0, 5, 10, 15, 20], 0.8

    def median(rows):
        return _rank_choice(rows, options, epsilon if broken else epsilon / 2)

    return opaque(whole(0, 20), SYMMETRIC, PURE, median, lambda d: up(epsilon * d))


@pair(
    "quantiles",
    fault="the interpolated maximum of the rows bounds the answer (data dependent range)",
    sound="public range",
)
def own_range(broken: bool) -> Any:
    noise = lap(60.0)

    def ranged(rows):
        total = sum(max(0, min(60, row)) for row in rows)
        return min(noise(total), (max(rows) if rows else 0) * len(rows))

    def public(rows):
        return min(noise(sum(max(0, min(60, row)) for row in rows)), 60_000)

    return opaque(
        whole(0, 60), SYMMETRIC, PURE, ranged if broken else public, lambda d: noise.map(60 * d)
    )


@pair(
    "chunk borders",
    fault="each full chunk of 64 rows counts twice its border row",
    sound="chunks are added up in integers",
)
def chunk_overlap(broken: bool) -> Any:
    noise, step = lap(4.0), 64

    def overlapping(rows):
        total = 0
        for start in range(0, len(rows), step):
            total += sum(rows[start : start + step + 1])
        return noise(total)

    def exact(rows):
        total = 0
        for start in range(0, len(rows), step):
            total += sum(rows[start : start + step])
        return noise(total)

    return opaque(
        whole(0, 4), SYMMETRIC, PURE, overlapping if broken else exact, lambda d: noise.map(4 * d)
    )


@pair(
    "chunk borders",
    fault="the last chunk is dropped unless it is full: one row brings 32 rows with it",
    sound="all chunks count",
)
def last_chunk(broken: bool) -> Any:
    noise, step = lap(2.0), 32

    def full_only(rows):
        return noise(sum(step for _ in range(len(rows) // step)))

    def everything(rows):
        return noise(sum(len(rows[i : i + step]) for i in range(0, len(rows), step)))

    return opaque(
        whole(0, 4), SYMMETRIC, PURE, full_only if broken else everything, lambda d: noise.map(d)
    )


@pair(
    "chunk borders",
    fault="noise is drawn for each chunk of 128, the claim is for one draw, chunks are means",
    sound="one exact sum",
)
def chunk_means(broken: bool) -> Any:
    noise = lap(6.0)

    def rounded(rows):
        parts = [rows[i : i + 128] for i in range(0, len(rows), 128)]
        return noise(sum(round(sum(p) / len(p)) * 128 for p in parts))

    def exact(rows):
        return noise(sum(sum(rows[i : i + 128]) for i in range(0, len(rows), 128)))

    return opaque(
        whole(0, 6), SYMMETRIC, PURE, rounded if broken else exact, lambda d: noise.map(6 * d)
    )


@pair(
    "sentinels",
    fault="-999 stands for missing and passes the clamp",
    sound="missing rows are dropped",
)
def missing_code(broken: bool) -> Any:
    noise = lap(15.0)

    def kept(rows):
        return noise(sum(row if row == -999 else max(0, min(row, 15)) for row in rows))

    def dropped(rows):
        return noise(sum(max(0, min(row, 15)) for row in rows if row != -999))

    return opaque(
        whole(), SYMMETRIC, PURE, kept if broken else dropped, lambda d: noise.map(15 * d)
    )


@pair(
    "sentinels",
    fault="no rows, no noise: the empty dataset answers 0 exactly",
    sound="the empty dataset is noised like any other",
)
def empty_exact(broken: bool) -> Any:
    noise = lap(7.0)

    def early(rows):
        if not rows:
            return 0
        return noise(sum(rows))

    def always(rows):
        return noise(sum(rows))

    return opaque(
        whole(0, 7), SYMMETRIC, PURE, early if broken else always, lambda d: noise.map(7 * d)
    )


@pair(
    "sentinels",
    fault="an answer of None when a row is infinite",
    sound="infinite rows are clamped like the others",
)
def infinite_row(broken: bool) -> Any:
    noise = lap(3.0)

    def refuse(rows):
        if any(row in (float("inf"), float("-inf")) for row in rows):
            return None
        return noise(sum(int(max(0.0, min(row, 3.0))) for row in rows))

    def clamp(rows):
        return noise(sum(int(max(0.0, min(row, 3.0))) for row in rows))

    return opaque(real(), SYMMETRIC, PURE, refuse if broken else clamp, lambda d: noise.map(3 * d))


@pair(
    "rare categories",
    fault="code 7741 (staff) is counted without noise",
    sound="code 7741 is counted like the others",
)
def staff_code(broken: bool) -> Any:
    noise, staff = lap(1.0), 7741

    def split(rows):
        return noise(sum(row != staff for row in rows)) + sum(row == staff for row in rows) * 50

    def together(rows):
        return noise(len(rows))

    return opaque(
        whole(0, 10_000), SYMMETRIC, PURE, split if broken else together, lambda d: noise.map(d)
    )


@pair(
    "rare categories",
    fault="the word 'unknown' counts as many rows as it has letters",
    sound="every word counts once",
)
def word_weight(broken: bool) -> Any:
    noise = lap(1.2)
    weight = {"unknown": 7} if broken else {"unknown": 1}

    def words(rows):
        return noise(sum(weight.get(row, 1) for row in rows))

    return opaque(text(), SYMMETRIC, PURE, words, lambda d: noise.map(d))


@pair(
    "rare categories",
    fault="a rare pair of codes (both 311 and 977 present) adds a bonus of 40",
    sound="bonuses are public",
)
def rare_together(broken: bool) -> Any:
    noise = lap(2.0)

    def bonus(rows):
        return noise(len(rows) + (40 if 311 in rows and 977 in rows else 0))

    def none(rows):
        return noise(len(rows) + 40)

    return opaque(
        whole(0, 1000), CHANGE_ONE, PURE, bonus if broken else none, lambda d: noise.map(d)
    )
