"""Conversions, filters and odometers, integer overflow, float resolution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.audit.opaque.kit import (
    APPROX,
    PURE,
    SYMMETRIC,
    ZCDP,
    flap,
    gauss,
    gausses,
    lap,
    laps,
    opaque,
    pair,
    real,
    up,
    whole,
)


@pair(
    "conversions",
    fault="pure eps to rho = eps^2 / 8, which holds for bounded range only",
    sound="rho = eps^2 / 2",
)
def laplace_as_zcdp(broken: bool) -> Any:
    noise = laps(0.5)

    def cells(rows):
        return noise([rows.count(0), rows.count(1)])

    return opaque(
        whole(0, 1), SYMMETRIC, ZCDP, cells, lambda d: up(noise.map(d) ** 2 / (8 if broken else 2))
    )


@pair(
    "conversions",
    fault="the scale is the variance: sigma^2 where sigma belongs",
    sound="the scale is the deviation",
)
def variance_as_scale(broken: bool) -> Any:
    sigma = 5.0
    noise = gauss(math.sqrt(sigma) if broken else sigma)

    def size(rows):
        return noise(len(rows))

    return opaque(whole(0, 2), SYMMETRIC, ZCDP, size, lambda d: up(d * d / (2 * sigma**2)))


@pair(
    "conversions",
    fault="rho to (eps, delta) forgets the factor 2 before the root",
    sound="eps = rho + 2 sqrt(rho log(1 / delta)) (Bun and Steinke)",
)
def rho_to_epsilon(broken: bool) -> Any:
    noise = gauss(1.0)
    delta = 1e-3

    def size(rows):
        return noise(len(rows))

    def claim(d):
        rho = noise.map(d)
        root = math.sqrt(rho * math.log(1 / delta))
        return up(rho + (0.5 if broken else 2.0) * root), delta

    return opaque(whole(0, 2), SYMMETRIC, APPROX, size, claim)


@pair(
    "conversions",
    fault="the classical Gaussian formula beyond eps = 1, and without the factor 1.25",
    sound="eps = rho + 2 sqrt(rho log(1 / delta))",
)
def classical_gaussian(broken: bool) -> Any:
    noise, delta = gauss(0.6), 0.05

    def size(rows):
        return noise(len(rows))

    def claim(d):
        rho = noise.map(d)
        if broken:
            return d * math.sqrt(math.log(1.25 / delta)) / 0.6 / 2, delta
        return up(rho + 2 * math.sqrt(rho * math.log(1 / delta))), delta

    return opaque(whole(0, 2), SYMMETRIC, APPROX, size, claim)


@pair(
    "conversions",
    fault="L1 noise map fed with an L2 distance of a vector of 16 cells",
    sound="the L1 distance of a row is 16",
)
def l2_for_l1(broken: bool) -> Any:
    noise = laps(16.0)

    def bits(rows):
        return noise([sum(row >> b & 1 for row in rows) for b in range(16)])

    return opaque(
        whole(0, 65535), SYMMETRIC, PURE, bits, lambda d: noise.map((4 if broken else 16) * d)
    )


@pair(
    "filters and odometers",
    fault="three answers, two are charged",
    sound="three answers, three are charged",
)
def third_answer(broken: bool) -> Any:
    noise = lap(3.0)

    def answers(rows):
        size = noise(len(rows))
        half = noise(sum(row > 4 for row in rows))
        top = noise(sum(row > 6 for row in rows))
        return {"size": size, "half": half, "top": top}

    return opaque(
        whole(0, 9), SYMMETRIC, PURE, answers, lambda d: up((2 if broken else 3) * noise.map(d))
    )


@pair(
    "filters and odometers",
    fault="an answer that fails a test is thrown away, and so is its charge",
    sound="every try is charged",
)
def free_retries(broken: bool) -> Any:
    noise = lap(2.0)

    def retry(rows):
        answers = []
        for _ in range(4):
            answers.append(noise(len(rows)))
            if answers[-1] >= 10:
                break
        return answers

    return opaque(
        whole(0, 3), SYMMETRIC, PURE, retry, lambda d: up((1 if broken else 4) * noise.map(d))
    )


@pair(
    "filters and odometers",
    fault="the budget of the second answer is chosen from the exact data",
    sound="the budget of the second answer is chosen from the first noisy answer, both <= half",
)
def adaptive_budget(broken: bool) -> Any:
    first, small, large = lap(2.0), lap(2.0), lap(8.0)

    def spend(rows):
        seen = first(len(rows))
        signal = len(rows) if broken else seen
        return [seen, (small if signal > 5 else large)(sum(row == 1 for row in rows))]

    return opaque(whole(0, 3), SYMMETRIC, PURE, spend, lambda d: up(first.map(d) + small.map(d)))


@pair(
    "filters and odometers",
    fault="answers until the budget is gone, where a crossed threshold is free of charge",
    sound="a public number of answers",
)
def stop_rule(broken: bool) -> Any:
    noise = gausses(4.0)

    def until(rows):
        out = []
        for k in range(4):
            count = rows.count(k)
            if count > 8:
                out.append(count)
                break
            out.extend(noise([count]))
        return out

    def public(rows):
        return noise([rows.count(k) for k in range(4)])

    return opaque(
        whole(0, 3), SYMMETRIC, ZCDP, until if broken else public, lambda d: up(noise.map(float(d)))
    )


@pair(
    "integer overflow",
    fault="the sum wraps round at 8 bits before the noise",
    sound="the sum is kept in Python's integers",
)
def wrapped_sum(broken: bool) -> Any:
    noise = lap(20.0)

    def narrow(rows):
        total = np.array(rows, dtype=np.int8).sum(dtype=np.int8) if rows else 0
        return noise(int(total))

    def wide(rows):
        return noise(sum(rows))

    return opaque(
        whole(0, 10), SYMMETRIC, PURE, narrow if broken else wide, lambda d: noise.map(10 * d)
    )


@pair(
    "integer overflow",
    fault="the rows are squared in 32 bits: large rows become negative, below the clamp at 100",
    sound="the square is clamped to [0, 100] in Python's integers",
)
def wrapped_square(broken: bool) -> Any:
    noise = lap(100.0)

    def narrow(rows):
        array = np.array(rows, dtype=np.int32)
        return noise(int(np.minimum(array * array, 100).sum(dtype=np.int64)))

    def wide(rows):
        return noise(sum(min(row * row, 100) for row in rows))

    return opaque(
        whole(0, 1_000_000),
        SYMMETRIC,
        PURE,
        narrow if broken else wide,
        lambda d: noise.map(100 * d),
    )


@pair(
    "integer overflow",
    fault="an unsigned difference: one below zero is a huge number, clipped to 1000",
    sound="a signed difference",
)
def unsigned_difference(broken: bool) -> Any:
    noise = lap(2.0)

    def unsigned(rows):
        yes, no = sum(rows), len(rows) - sum(rows)
        return noise(min(1000, int(np.uint16((yes - no) % 65536))))

    def signed(rows):
        yes, no = sum(rows), len(rows) - sum(rows)
        return noise(min(1000, yes - no))

    return opaque(
        whole(0, 1), SYMMETRIC, PURE, unsigned if broken else signed, lambda d: noise.map(d)
    )


@pair(
    "float resolution",
    fault="numpy's Laplace is added to a float: the grid of sums shows the data",
    sound="OpenDP's float Laplace",
)
def naive_float_laplace(broken: bool) -> Any:
    noise = flap(1.0)
    rng = np.random.default_rng()

    def naive(rows):
        return len(rows) * 0.1 + float(np.float16(rng.laplace(0.0, 1.0)))

    def careful(rows):
        return noise(len(rows) * 0.1)

    return opaque(
        whole(0, 1), SYMMETRIC, PURE, naive if broken else careful, lambda d: noise.map(0.11 * d)
    )


@pair(
    "float resolution",
    fault="uniform numbers of 8 bits make the noise: the tail ends at six scales",
    sound="OpenDP's integer noise",
)
def few_bits(broken: bool) -> Any:
    noise = lap(2.0)
    rng = np.random.default_rng()

    def coarse(rows):
        u = (int(rng.integers(0, 256)) + 0.5) / 256
        side = 1 if rng.integers(0, 2) else -1
        return len(rows) + side * round(-2.0 * math.log(u))

    def exact(rows):
        return noise(len(rows))

    return opaque(whole(0, 1), SYMMETRIC, PURE, coarse if broken else exact, lambda d: noise.map(d))


@pair(
    "float resolution",
    fault="float sums depend on the order; a huge row swallows the small ones",
    sound="rows are clamped and rounded to integers before they are added",
)
def swallowed_rows(broken: bool) -> Any:
    noise = lap(2.0)

    def floats(rows):
        total = 0.0
        for row in rows:
            total += row
        for row in rows:
            total -= max(0.0, row - 1.0)
        return noise(int(max(-1e6, min(1e6, total))))

    def integers(rows):
        return noise(sum(int(min(row, 1.0)) for row in rows))

    return opaque(
        real(0.0, 1e18), SYMMETRIC, PURE, floats if broken else integers, lambda d: noise.map(d)
    )


@pair(
    "conversions",
    fault="a mean is noised for (U - L) / n with its own n, though the size is private",
    sound="the sum is noised, its size is not used",
)
def mean_of_unknown_size(broken: bool) -> Any:
    public = lap(20.0)

    def mean(rows):
        n = max(1, len(rows))
        return lap(max(1.0, 2000.0 / n))(100 * sum(rows) // n)

    def total(rows):
        return public(sum(rows))

    return opaque(
        whole(0, 10), SYMMETRIC, PURE, mean if broken else total, lambda d: public.map(10 * d)
    )
