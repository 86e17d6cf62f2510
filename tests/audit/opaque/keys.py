"""Data-dependent keys and thresholds."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from tests.audit.opaque.kit import APPROX, PURE, SYMMETRIC, lap, laps, opaque, pair, text, up, whole


def tail(scale: float, bar: int) -> float:
    """P[1 + integer Laplace of this scale >= bar], for bar >= 2."""
    t = math.exp(-1 / scale)
    return t ** (bar - 1) / (1 + t)


def one_row(epsilon: float, delta: float):
    """Return a map that says nothing beyond one row."""

    def claim(d):
        if d == 0:
            return 0.0, 0.0
        return (epsilon, delta) if d == 1 else (99.0, 1.0)

    return claim


def _grouped(scale: float, bar: int | None):
    noise = lap(scale)

    def release(rows):
        out = {}
        for key, count in sorted(Counter(rows).items()):
            noisy = noise(count)
            if bar is None or noisy >= bar:
                out[key] = noisy
        return out

    return release, noise


@pair(
    "data-dependent keys",
    fault="all keys that occur are released with noisy counts",
    sound="the keys are public",
)
def observed_keys(broken: bool) -> Any:
    release, noise = _grouped(1.0, None)

    def public(rows):
        return {key: noise(rows.count(key)) for key in range(8)}

    return opaque(
        whole(0, 7), SYMMETRIC, PURE, release if broken else public, lambda d: up(noise.map(d))
    )


@pair(
    "thresholds",
    fault="the threshold is right for delta / 2 twice as large: delta is a third of the truth",
    sound="one key can appear: delta = P[1 + noise >= bar], for one row added or removed",
)
def short_delta(broken: bool) -> Any:
    release, noise = _grouped(1.0, 5)
    true = tail(1.0, 5)
    return opaque(
        text(),
        SYMMETRIC,
        APPROX,
        release,
        one_row(up(noise.map(1)), up(true / 3 if broken else true)),
    )


@pair(
    "thresholds",
    fault="the threshold is compared to the exact count",
    sound="the threshold is compared to the noisy count; delta is the tail",
)
def exact_threshold(broken: bool) -> Any:
    noise, bar = lap(1.0), 9

    def by_exact(rows):
        return {k: noise(c) for k, c in sorted(Counter(rows).items()) if c >= bar}

    by_noisy, _ = _grouped(1.0, bar)
    return opaque(
        whole(0, 20),
        SYMMETRIC,
        APPROX,
        by_exact if broken else by_noisy,
        one_row(up(noise.map(1)), up(tail(1.0, bar))),
    )


@pair(
    "thresholds",
    fault="delta counts one key where two rows can bring two keys",
    sound="two rows: two keys, or one key of count two",
    d_in=2,
)
def two_new_keys(broken: bool) -> Any:
    release, noise = _grouped(1.0, 4)
    once = tail(1.0, 4)

    def claim(d):
        if d == 0:
            return 0.0, 0.0
        if broken or d == 1:
            return up(noise.map(d)), up(once)
        if d == 2:
            # a chain of two steps: e^eps * delta + delta
            return up(noise.map(2)), up(once * (1 + math.exp(noise.map(1))))
        return 99.0, 1.0

    return opaque(whole(0, 9), SYMMETRIC, APPROX, release, claim)


@pair(
    "data-dependent keys",
    fault="keys are written in the order of their exact counts",
    sound="sorted by name",
)
def order_of_counts(broken: bool) -> Any:
    noise = lap(3.0)

    def most_common(rows):
        count = Counter({"a": 0, "b": 0, "c": 0})
        count.update(row for row in rows if row in count)
        return [(key, noise(c)) for key, c in count.most_common()]

    def by_name(rows):
        return [(key, noise(rows.count(key))) for key in ("a", "b", "c")]

    return opaque(
        text(), SYMMETRIC, PURE, most_common if broken else by_name, lambda d: up(noise.map(d))
    )


@pair(
    "data-dependent keys",
    fault="cells that are empty stay empty: zeros get no noise",
    sound="zeros get noise",
)
def zeros_stay(broken: bool) -> Any:
    noise = lap(2.0)

    def sparse(rows):
        return [noise(c) if c else 0 for c in (rows.count(k) for k in range(5))]

    def dense(rows):
        return [noise(rows.count(k)) for k in range(5)]

    return opaque(
        whole(0, 4), SYMMETRIC, PURE, sparse if broken else dense, lambda d: up(noise.map(d))
    )


@pair(
    "data-dependent keys",
    fault="as many cells as the largest row: the length is exact",
    sound="a public number of cells",
)
def length_of_answer(broken: bool) -> Any:
    noise = laps(1.0)

    def grown(rows):
        return noise([rows.count(k) for k in range(max(rows, default=-1) + 1)])

    def fixed(rows):
        return noise([rows.count(k) for k in range(13)])

    return opaque(whole(0, 12), SYMMETRIC, PURE, grown if broken else fixed, lambda d: noise.map(d))
