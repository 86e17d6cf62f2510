"""DP-SGD: clipping of batches, of coordinates, noise that is drawn too rarely."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.audit.opaque.kit import (
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


@pair(
    "DP-SGD",
    fault="the gradient of the batch is clipped, not each record's",
    sound="each record's gradient is at most 100 in absolute value",
)
def clip_batch_gradient(broken: bool) -> Any:
    noise = gausses(200.0)

    def of_batch(rows):
        gradient = sum(round(100 * row) for row in rows)
        bound = 100 * max(1, len(rows))
        return noise([max(-bound, min(bound, gradient))])[0]

    def of_records(rows):
        return noise([sum(max(-100, min(100, round(100 * row))) for row in rows)])[0]

    return opaque(
        real(-30.0, 30.0),
        SYMMETRIC,
        ZCDP,
        of_batch if broken else of_records,
        lambda d: up(noise.map(100.0 * d)),
    )


@pair(
    "DP-SGD",
    fault="four coordinates are clipped one by one at 1, the claim is for an L2 norm of 1",
    sound="the claim is for an L2 norm of sqrt(4)",
)
def clip_coordinates(broken: bool) -> Any:
    noise = gausses(300.0)

    def step(rows):
        total = [0, 0, 0, 0]
        for row in rows:
            for c, g in enumerate((row, row - 1.0, 2.0 * row, -row)):
                total[c] += max(-100, min(100, round(100 * g)))
        return noise(total)

    return opaque(
        real(-5.0, 5.0),
        SYMMETRIC,
        ZCDP,
        step,
        lambda d: up(noise.map((100.0 if broken else 200.0) * d)),
    )


@pair(
    "DP-SGD",
    fault="three steps, noise is drawn in the first and reused",
    sound="noise in every step, rho adds up",
)
def reused_step_noise(broken: bool) -> Any:
    noise = gausses(4.0)

    def reuse(rows):
        z = noise([0])[0]
        return [sum(1 for row in rows if row > k) + z for k in range(3)]

    def fresh(rows):
        return [noise([sum(1 for row in rows if row > k)])[0] for k in range(3)]

    return opaque(
        whole(0, 3),
        SYMMETRIC,
        ZCDP,
        reuse if broken else fresh,
        lambda d: up(3 * noise.map(float(d))),
    )


@pair(
    "DP-SGD",
    fault="noise for the mean gradient is divided by the batch size twice",
    sound="noise for the sum, the division is post-processing by a public size",
)
def divided_twice(broken: bool) -> Any:
    noise, small, size = lap(10.0), lap(1.0), 10

    def twice(rows):
        return small(sum(rows)) / size

    def once(rows):
        return noise(sum(rows)) / size

    return opaque(
        whole(0, 10), SYMMETRIC, PURE, twice if broken else once, lambda d: noise.map(10 * d)
    )


@pair(
    "DP-SGD",
    fault="a NaN gradient makes the whole step NaN, past the clip",
    sound="NaN gradients are zero",
)
def nan_gradient(broken: bool) -> Any:
    noise = lap(50.0)

    def step(rows):
        array = np.array(rows, dtype=float)
        clipped = np.clip(array, -1.0, 1.0)
        total = clipped.sum() if broken else np.nan_to_num(clipped, nan=0.0).sum()
        return math.nan if math.isnan(total) else noise(int(np.rint(100 * total / 4) * 4)) / 100

    def safe(rows):
        whole_rows = [0 if row != row else round(max(-1.0, min(1.0, row)) * 100) for row in rows]
        return noise(sum(whole_rows)) / 100

    return opaque(
        real(nan=True), SYMMETRIC, PURE, step if broken else safe, lambda d: noise.map(104 * d)
    )


@pair(
    "DP-SGD",
    fault="the learning rate falls with the exact loss, which is printed beside the weights",
    sound="a public schedule",
)
def exact_loss_printed(broken: bool) -> Any:
    noise = laps(5.0)

    def train(rows):
        weights = noise([sum(rows)])
        return [weights[0], sum(rows) % 2 if broken else 0]

    return opaque(whole(0, 5), SYMMETRIC, PURE, train, lambda d: noise.map(5 * d))


@pair(
    "DP-SGD",
    fault="the per-record clip uses the norm of the largest record of the batch",
    sound="a public clip",
)
def adaptive_clip(broken: bool) -> Any:
    noise = lap(6.0)

    def by_largest(rows):
        bound = max((abs(row) for row in rows), default=1)
        return noise(sum(6 * row // max(1, bound) for row in rows) * max(1, bound // 6))

    def public(rows):
        return noise(sum(max(-6, min(6, row)) for row in rows))

    return opaque(
        whole(-60, 60),
        SYMMETRIC,
        PURE,
        by_largest if broken else public,
        lambda d: noise.map(6 * d),
    )
