"""Caches, seeds and shared noise."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np

from tests.audit.opaque.kit import PURE, SYMMETRIC, lap, laps, opaque, pair, text, up, whole


@pair(
    "caching and seeding",
    fault="the generator is seeded by a public constant: the noise is known",
    sound="OpenDP's noise",
)
def constant_seed(broken: bool) -> Any:
    noise = lap(2.0)

    def seeded(rows):
        rng = np.random.default_rng(20240501)
        return len(rows) + int(rng.geometric(0.4)) - int(rng.geometric(0.4))

    def fresh(rows):
        return noise(len(rows))

    return opaque(whole(0, 3), SYMMETRIC, PURE, seeded if broken else fresh, lambda d: noise.map(d))


@pair(
    "caching and seeding",
    fault="the seed is the sum of the rows",
    sound="the seed comes from the system",
)
def seed_of_data(broken: bool) -> Any:
    noise = lap(4.0)

    def seeded(rows):
        rng = random.Random(sum(rows))
        return sum(rows) + int(rng.expovariate(0.25)) - int(rng.expovariate(0.25))

    def fresh(rows):
        return noise(sum(rows))

    return opaque(
        whole(0, 4), SYMMETRIC, PURE, seeded if broken else fresh, lambda d: noise.map(4 * d)
    )


@pair(
    "caching and seeding",
    fault="the noise is drawn once, when the measurement is made",
    sound="the noise is drawn at each call",
)
def noise_at_birth(broken: bool) -> Any:
    noise = lap(3.0)
    born = noise(0)

    def stale(rows):
        return sum(rows) + born

    def fresh(rows):
        return noise(sum(rows))

    return opaque(
        whole(0, 3), SYMMETRIC, PURE, stale if broken else fresh, lambda d: noise.map(3 * d)
    )


@pair("caching and seeding", fault="noise is kept for each size of the dataset", sound="no cache")
def noise_by_size(broken: bool) -> Any:
    noise = lap(2.0)

    @cache
    def kept(size):
        return noise(0)

    def cached(rows):
        return len(rows) + kept(len(rows))

    def fresh(rows):
        return noise(len(rows))

    return opaque(whole(0, 3), SYMMETRIC, PURE, cached if broken else fresh, lambda d: noise.map(d))


@pair(
    "caching and seeding",
    fault="one draw is shared by both cells: their difference is exact",
    sound="a draw for each cell",
)
def shared_noise(broken: bool) -> Any:
    noise = lap(1.0)

    def shared(rows):
        z = noise(0)
        return [rows.count("yes") + z, rows.count("no") + z]

    def fresh(rows):
        return [noise(rows.count("yes")), noise(rows.count("no"))]

    return opaque(text(), SYMMETRIC, PURE, shared if broken else fresh, lambda d: up(noise.map(d)))


@pair(
    "caching and seeding",
    fault="antithetic noise: every second call uses minus the last noise",
    sound="fresh noise",
)
def antithetic(broken: bool) -> Any:
    noise = lap(5.0)
    last: list[int] = []

    def paired(rows):
        if last:
            return sum(rows) - last.pop()
        last.append(noise(0))
        return sum(rows) + last[0]

    def fresh(rows):
        return noise(sum(rows))

    return opaque(
        whole(0, 5), SYMMETRIC, PURE, paired if broken else fresh, lambda d: noise.map(5 * d)
    )


@pair(
    "caching and seeding", fault="noise comes from a pool that is drawn once", sound="fresh noise"
)
def pool_of_noise(broken: bool) -> Any:
    noise = laps(2.0)
    pool = noise([0] * 7)

    def pooled(rows):
        return [rows.count(k) + pool[(len(rows) + k) % 7] for k in range(3)]

    def fresh(rows):
        return noise([rows.count(k) for k in range(3)])

    return opaque(whole(0, 2), SYMMETRIC, PURE, pooled if broken else fresh, lambda d: noise.map(d))


@pair(
    "caching and seeding",
    fault="the global generator of numpy is seeded by the first row",
    sound="not seeded from data, and OpenDP's noise",
)
def global_seed(broken: bool) -> Any:
    noise = lap(1.0)

    def seeded(rows):
        np.random.seed(rows[0] if rows else 0)
        return len(rows) + int(np.random.geometric(0.6)) - int(np.random.geometric(0.6))

    def fresh(rows):
        return noise(len(rows))

    return opaque(whole(0, 9), SYMMETRIC, PURE, seeded if broken else fresh, lambda d: noise.map(d))
