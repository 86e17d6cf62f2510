"""Randomised response, and other measurements of one record."""

from __future__ import annotations

import math
import random
import secrets
from typing import Any

import numpy as np
import opendp.prelude as dp

from tests.audit.opaque.kit import PURE, lap, opaque, pair, up

DISCRETE = dp.discrete_distance()
COIN = random.SystemRandom()


def one_code(low: int, high: int) -> Any:
    """One integer of a closed interval."""
    return dp.atom_domain(T=int, bounds=(low, high))


@pair(
    "randomised response",
    fault="the truth has weight e^eps against all the others together, and is among them",
    sound="weights e^eps to 1 for each of the others",
)
def k_ary(broken: bool) -> Any:
    epsilon, size = 1.0, 5
    keep = (
        math.exp(epsilon) / (1 + math.exp(epsilon))
        if broken
        else math.exp(epsilon) / (size - 1 + math.exp(epsilon))
    )

    def respond(code):
        if COIN.random() < keep:
            return code
        other = secrets.randbelow(size - 1)
        return other if other < code else other + 1

    return opaque(one_code(0, 4), DISCRETE, PURE, respond, lambda d: up(epsilon) if d else 0.0)


@pair(
    "randomised response",
    fault="a lie is always no, so yes proves yes; log 3 is claimed",
    sound="truth with 1/2, otherwise a fair coin: log 3",
)
def forced_no(broken: bool) -> Any:
    def biased(answer):
        if secrets.randbits(1) or secrets.randbits(1):
            return answer
        return False

    def warner(answer):
        if secrets.randbits(1):
            return answer
        return bool(secrets.randbits(1))

    return opaque(
        dp.atom_domain(T=bool),
        DISCRETE,
        PURE,
        biased if broken else warner,
        lambda d: up(math.log(3)) if d else 0.0,
    )


@pair(
    "randomised response",
    fault="each of three bits is flipped at eps, eps is claimed for all of them",
    sound="three bits, three times eps",
)
def bits_of_code(broken: bool) -> Any:
    epsilon = 0.8
    flip = 1 / (1 + math.exp(epsilon))

    def respond(code):
        return [(code >> b & 1) ^ (random.random() < flip) for b in range(3)]

    return opaque(
        one_code(0, 7),
        DISCRETE,
        PURE,
        respond,
        lambda d: up((1 if broken else 3) * epsilon) if d else 0.0,
    )


@pair(
    "randomised response",
    fault="one-hot bits: two positions differ, one is charged",
    sound="two positions, two charges",
)
def unary_encoding(broken: bool) -> Any:
    epsilon = 1.0
    rng = np.random.default_rng()
    flip = 1 / (1 + math.exp(epsilon))

    def respond(code):
        hot = np.arange(4) == code
        return (hot ^ (rng.random(4) < flip)).astype(int).tolist()

    return opaque(
        one_code(0, 3),
        DISCRETE,
        PURE,
        respond,
        lambda d: up((1 if broken else 2) * epsilon) if d else 0.0,
    )


@pair(
    "randomised response",
    fault="the rare code 4711 is never replaced",
    sound="every code is replaced at the same rate",
)
def rare_code(broken: bool) -> Any:
    size = 5000
    keep = math.e / (size - 1 + math.e)

    def respond(code):
        if (broken and code == 4711) or COIN.random() < keep:
            return code
        other = secrets.randbelow(size - 1)
        return other if other < code else other + 1

    return opaque(one_code(0, size - 1), DISCRETE, PURE, respond, lambda d: up(1.0) if d else 0.0)


@pair(
    "randomised response",
    fault="a memoised answer per code: the same question has the same answer",
    sound="a fresh answer",
)
def memoised(broken: bool) -> Any:
    codes, keep = list(range(16)), 0.2
    rr = dp.m.make_randomized_response(categories=codes, prob=keep)
    memory: dict[int, int] = {}

    def remembered(answer):
        if answer not in memory:
            memory[answer] = rr(answer)
        return memory[answer]

    def fresh(answer):
        return rr(answer)

    return opaque(
        one_code(0, 15), DISCRETE, PURE, remembered if broken else fresh, lambda d: rr.map(d)
    )


@pair(
    "clamps",
    d_in=50,
    fault="local noise of scale 10 for a value in [0, 20] claims the loss of a value in [0, 10]",
    sound="the range is 20",
)
def local_value(broken: bool) -> Any:
    noise = lap(10.0)

    def report(value):
        return noise(max(0, min(20, value)))

    return opaque(
        dp.atom_domain(T=int),
        dp.absolute_distance(T=int),
        PURE,
        report,
        (lambda d: noise.map(min(d, 10))) if broken else (lambda d: noise.map(min(d, 20))),
    )
