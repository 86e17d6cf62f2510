"""Small mechanisms that play the project's own until those are audited themselves.

Each is written once, with its faults as arguments, so that a broken twin differs from the sound one
in exactly the argument it names. Releases are vectorised: one draw of noise serves many runs.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import opendp.prelude as dp

from opendp_sim.audit import NoiseLaw
from opendp_sim.measurements.noise._impl.samplers import add_gaussian, add_laplace

SYMMETRIC, CHANGE_ONE = dp.symmetric_distance(), dp.change_one_distance()
PURE, ZCDP = dp.max_divergence(), dp.zero_concentrated_divergence()
APPROX = dp.approximate(dp.max_divergence())
FINE = 64
"""Steps in one unit for noise on real values."""


def laplace(shape: Any, scale: float, grid: int = 1) -> np.ndarray:
    """Discrete Laplace noise on multiples of 1 / grid."""
    cells = int(np.prod(shape))
    if cells == 0:
        return np.zeros(shape)
    steps = Fraction(scale * grid).limit_denominator(4096)
    noise = add_laplace(np.zeros(cells, np.int64), [(cells, steps)])
    return noise.reshape(shape) / grid if grid > 1 else noise.reshape(shape).astype(float)


def gaussian(shape: Any, scale: float) -> np.ndarray:
    """Discrete Gaussian noise on the integers."""
    cells = int(np.prod(shape))
    steps = Fraction(scale).limit_denominator(4096)
    return add_gaussian(np.zeros(cells, np.int64), [(cells, steps)]).reshape(shape).astype(float)


Release = tuple[Any, dict[str, Any]]
"""What ``additive`` returns: the OpenDP measurement and the options its audit takes."""


def measurement(
    domain: Any, metric: Any, measure: Any, many: Callable[[Any, int], Any], claim: Any
) -> Any:
    """An OpenDP measurement of a vectorised mechanism."""
    return dp.m.make_user_measurement(domain, metric, measure, lambda x: many(x, 1)[0], claim)


def additive(
    domain: Any,
    core: Callable[[Any], np.ndarray],
    scale: Any,
    *,
    family: str = "discrete_laplace",
    metric: Any = SYMMETRIC,
    measure: Any = None,
    claim: Callable[[int], float] | None = None,
    add: Callable[[np.ndarray, int, Any], np.ndarray] | None = None,
    declared: Any = None,
) -> Release:
    """core + noise. ``add`` (core, count, scale) replaces the honest noise; ``declared`` its scale."""
    gauss = family == "discrete_gaussian"
    draw = gaussian if gauss else laplace

    def honest(value: np.ndarray, count: int, b: Any) -> np.ndarray:
        return value + draw((count, value.size), b)

    def many(x: Any, count: int) -> Any:
        return (add or honest)(core(x), count, scale)

    made = measurement(
        domain,
        metric,
        measure or (ZCDP if gauss else PURE),
        many,
        claim or ((lambda d: 1.0 * d * d) if gauss else (lambda d: 1.0 * d)),
    )
    law = NoiseLaw(family, scale if declared is None else declared)
    return made, {"core": core, "noise": law, "sample": many}


# --- RACE: repetitions of hash counts ---------------------------------------------------

LINE = dp.vector_domain(dp.atom_domain(T=int))
POINTS = dp.numpy.array2_domain(num_columns=2, nan=False, T=float)
ROWS, BUCKETS = 6, 4


def race_core(
    *, replace_seed: bool = False, running: bool = False, shape: bool = False
) -> Callable[[Any], np.ndarray]:
    public = np.random.default_rng(7).integers(-8, 9, size=(2, ROWS))

    def core(x: Any) -> np.ndarray:
        points = np.clip(np.asarray(x, dtype=float).reshape(-1, 2), -64, 64)
        own = np.random.default_rng(len(points)).integers(-8, 9, size=(2, ROWS))
        projected = np.rint(points * 4) @ (own if replace_seed else public)
        if running and len(points):  # single precision prefix sums: each row sees those before it
            start = np.zeros((1, ROWS))
            steps = np.concatenate([start, projected * 0.37]).astype(np.float32)
            sums = np.cumsum(steps, axis=0, dtype=np.float32)
            projected = np.diff(sums, axis=0) / 0.37
        buckets = (np.floor(projected / 16).astype(np.int64)) % BUCKETS
        counts = np.zeros((ROWS, BUCKETS))
        for r in range(ROWS):
            np.add.at(counts[r], buckets[:, r], 1)
        flat = counts.ravel()
        return np.concatenate([flat, np.zeros(min(len(points), 2))]) if shape else flat

    return core


def race(scale: float = ROWS, **options: Any) -> Release:
    faults = {k: options.pop(k) for k in ("replace_seed", "running", "shape") if k in options}
    return additive(POINTS, race_core(**faults), scale, **options)


# --- one noisy number and small vectors --------------------------------------------------


def counts(scale: float = 1.0, cells: int = 6, **options: Any) -> Release:
    """A histogram over public keys: one record moves one cell by one."""

    def core(x: Any) -> np.ndarray:
        places = [min(max(int(v), 0), cells - 1) for v in x]
        return np.bincount(places, minlength=cells).astype(float)

    return additive(LINE, core, scale, **options)


# --- the individual filter: a few votes at one target, a purse for each record -------------

QUERIES, PURSE, CLASSES = 6, 1.0, 2


def knn(
    *,
    sigma: float = 1.2,
    charge: float = 1.0,
    late: bool = False,
    spend: bool = True,
    refill: bool = False,
    silent_when_empty: bool = False,
) -> Any:
    """Answer the same question again and again; records whose purse is empty drop out.

    A record is an integer: its label is the lowest bit, and it is near when it is at least zero.
    """
    vote = dp.m.make_gaussian(
        dp.vector_domain(dp.atom_domain(T="i64"), size=CLASSES), dp.l2_distance(T=float), sigma
    )
    price = charge * vote.map(1.0)

    def run(x: Any) -> Any:
        near = [int(v) for v in x if int(v) >= 0]
        purse = [PURSE] * len(near)
        out = []
        for _ in range(QUERIES):
            floor = 0.0 if late else price
            active = (
                [i for i, z in enumerate(purse) if (z >= floor if not late else z > 0)]
                if spend
                else list(range(len(near)))
            )
            if silent_when_empty and not active:
                out.append(0)
                continue
            tally = np.zeros(CLASSES, dtype=np.int64)
            for i in active:
                tally[near[i] & 1] += 1
                purse[i] -= price
            answer = vote(tally)
            out.append(int(np.argmax(answer)))
            if refill:
                purse = [PURSE] * len(near)
        return tuple(out)

    return dp.m.make_user_measurement(LINE, SYMMETRIC, ZCDP, run, lambda d: PURSE * d * d)


def knn_without_filter(sigma: float) -> tuple[Any, dict[str, Any]]:
    """All records vote every time, on a budget for one; vectorised."""

    def many(x: Any, count: int) -> list[Any]:
        near = [int(v) & 1 for v in x if int(v) >= 0]
        tally = np.bincount(near, minlength=CLASSES)
        return list((tally + gaussian((count, QUERIES, CLASSES), sigma)).argmax(axis=2))

    made = measurement(LINE, SYMMETRIC, ZCDP, many, lambda d: PURSE * d * d)
    return made, {"sample": many}


# --- compositions -----------------------------------------------------------------------------


def two_counts(
    *,
    first: float = 2.0,
    second: float = 2.0,
    shared: bool = False,
    overlap: bool = False,
    skip: bool = False,
    raises: bool = False,
    twice: bool = False,
) -> Any:
    """Two noisy counts, of even and of non-negative records, half of the budget each."""
    vector = dp.vector_domain(dp.atom_domain(T="i64"), size=1)
    one = dp.m.make_laplace(vector, dp.l1_distance(T="i64"), first)
    two = dp.m.make_laplace(vector, dp.l1_distance(T="i64"), second)

    def run(x: Any) -> Any:
        even = sum(int(v) % 2 == 0 for v in x)
        low = len(x) if overlap else sum(int(v) >= 0 for v in x)
        a = one(np.array([even]))[0]
        if raises and not len(x):
            raise ValueError("no records")
        if shared:
            return a, low + (a - even)
        if skip and even < 1:
            return a, 0
        b = two(np.array([low]))[0]
        if twice:
            return a, b, two(np.array([low]))[0]
        return a, b

    return dp.m.make_user_measurement(LINE, SYMMETRIC, PURE, run, lambda d: 1.0 * d)
