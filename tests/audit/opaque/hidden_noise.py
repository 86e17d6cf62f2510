"""Noise that never leaves, and other faults that a tape prices at nothing: written after reading the auditor."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import opendp.prelude as dp

from tests.audit.opaque.kit import APPROX, PURE, SYMMETRIC, lap, opaque, pair, up, whole

LINF = dp.linf_distance(T=int)


@pair(
    "sparse vector",
    fault="answers three hits with the noise of one",
    sound="queries at 4 * 3 / eps (Lyu, Su and Li, theorem 3)",
)
def svt_three_hits(broken: bool) -> Any:
    epsilon, hits = 1.0, 3
    blur, query = lap(2 / epsilon), lap((4 if broken else 4 * hits) / epsilon)

    def marks(answers):
        bar, out, left = blur(8), [], hits
        for a in answers:
            above = query(a) >= bar
            out.append(above)
            left -= above
            if not left:
                break
        return out

    return opaque(whole(size=10), LINF, PURE, marks, lambda d: up(epsilon * d))


@pair(
    "sparse vector",
    fault="the answer that crossed the threshold is released without noise",
    sound="it is released with fresh noise of scale 1/eps, charged",
)
def svt_bare_value(broken: bool) -> Any:
    epsilon = 1.0
    blur, query, fresh = lap(2 / epsilon), lap(4 / epsilon), lap(1 / epsilon)

    def first(answers):
        bar = blur(40)
        for place, a in enumerate(answers):
            if query(a) >= bar:
                return [place, a if broken else fresh(a)]
        return []

    return opaque(
        whole(size=8), LINF, PURE, first, lambda d: up((1 if broken else 2) * epsilon * d)
    )


@pair(
    "sparse vector",
    fault="the threshold's noise is used again for the answer, and charged once",
    sound="the answer has noise of its own, charged",
)
def svt_threshold_noise_again(broken: bool) -> Any:
    epsilon = 1.0
    blur, query, fresh = lap(2 / epsilon), lap(4 / epsilon), lap(2 / epsilon)

    def first(answers):
        noise = blur(0)
        for place, a in enumerate(answers):
            if query(a) >= 5 + noise:
                return [place, a + noise if broken else fresh(a)]
        return []

    return opaque(
        whole(size=8), LINF, PURE, first, lambda d: up((1 if broken else 1.5) * epsilon * d)
    )


@pair(
    "clamps",
    fault="values are clipped at the data's own ninth decile, noise is for one value at most 10",
    sound="values are clipped at 10",
)
def own_decile_clips(broken: bool) -> Any:
    noise = lap(10.0)

    def total(rows):
        kept = sorted(min(max(row, 0), 10) for row in rows)
        bound = kept[int(0.9 * len(kept))] if broken and len(kept) >= 20 else 10
        return noise(sum(min(row, bound) for row in kept))

    return opaque(whole(0, 100), SYMMETRIC, PURE, total, lambda d: up(d * 1.0))


@pair(
    "subsampling",
    fault="amplification is taken as rate * eps",
    sound="log(1 + rate * (e^eps - 1)), a coin for each record (Balle, Barthe and Gaboardi)",
)
def amplified_by_product(broken: bool) -> Any:
    epsilon, rate = 1.5, 0.25
    noise = lap(1 / epsilon)

    def count(rows):
        return noise(sum(random.random() < rate for _ in rows))

    def claim(d):
        loss = noise.map(1)
        return up(d * (rate * loss if broken else math.log1p(rate * math.expm1(loss))))

    return opaque(whole(0, 9), SYMMETRIC, PURE, count, claim)


@pair(
    "user against row level",
    d_in=4,
    fault="four rows are taken to be one user's, of which two count; they may be four users'",
    sound="every row is charged",
)
def rows_for_users(broken: bool) -> Any:
    noise = lap(4.0)

    def count(rows):
        seen: dict[int, int] = {}
        for row in rows:
            seen[row // 8] = min(2, seen.get(row // 8, 0) + 1)
        return noise(sum(seen.values()))

    return opaque(
        whole(0, 799),
        SYMMETRIC,
        PURE,
        count,
        (lambda d: up(noise.map(min(d, 2)))) if broken else (lambda d: up(noise.map(d))),
    )


@pair(
    "data-dependent keys",
    fault="the keys that passed are listed in the order of their exact counts",
    sound="in the order of their noisy counts",
)
def keys_in_true_order(broken: bool) -> Any:
    noise = lap(2.0)

    def keys(rows):
        counts = {key: rows.count(key) for key in range(4)}
        noisy = {key: noise(count) for key, count in counts.items()}
        order = counts if broken else noisy
        return [key for key in sorted(noisy, key=lambda k: -order[k]) if noisy[key] >= 6]

    return opaque(whole(0, 3), SYMMETRIC, PURE, keys, lambda d: up(noise.map(d)))


@pair(
    "exceptions",
    fault="raises when more than eleven rows are of no known category",
    sound="raises when their noisy number is above eleven, which is charged",
)
def too_many_unknown(broken: bool) -> Any:
    noise = lap(2.0)
    known = {204: 0, 304: 1, 417: 2}

    def tally(rows):
        unknown = sum(row not in known for row in rows)
        if (unknown if broken else noise(unknown)) > 11:
            raise ValueError("too many unknown codes")
        return [noise(sum(known.get(row) == k for row in rows)) for k in range(3)]

    return opaque(whole(100, 599), SYMMETRIC, PURE, tally, lambda d: up(noise.map(d)))


@pair(
    "caching and seeding",
    fault="the generator's seed is the exact number of records by tens",
    sound="the seed is a noisy number of records, charged; the seeded mask is then public",
)
def seed_of_the_size(broken: bool) -> Any:
    noise = lap(2.0)

    def masked(rows):
        size = len(rows) // 10 if broken else noise(len(rows))
        mask = np.random.default_rng(abs(size)).integers(0, 2, 10)
        return [mask.tolist(), noise(sum(int(mask[row]) for row in rows))]

    claim = (lambda d: up(noise.map(d))) if broken else (lambda d: up(2 * noise.map(d)))
    return opaque(whole(0, 9), SYMMETRIC, PURE, masked, claim)


@pair(
    "thresholds",
    fault="a key that is kept shows whether its exact count is even, which noise hides in half of the keys",
    sound="a noisy count that passed, delta for one key of a row",
)
def parity_stays(broken: bool) -> Any:
    noise, bar = lap(2.0), 14
    delta = 0.5 * math.exp(-(bar - 1 - 0.5) / 2.0)

    def keys(rows):
        out = {}
        for key in set(rows):
            count = rows.count(key)
            seen = noise(count)
            if seen >= bar:
                out[key] = seen - seen % 2 + count % 2 if broken and seen >= 18 else seen
        return out

    return opaque(
        whole(0, 400),
        SYMMETRIC,
        APPROX,
        keys,
        lambda d: (up(noise.map(d)), min(1.0, d * math.exp(d) * delta)),
    )
