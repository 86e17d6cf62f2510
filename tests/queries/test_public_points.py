"""Public points as a control variate: exact where they are the data, unbiased where they are not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release import Release
from opendp_sim.core.claims import Noise
from opendp_sim.core.errors import SimError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.core.whole import whole_function
from opendp_sim.queries.parts.public_points import with_public
from opendp_sim.spaces.metrics import Symmetric
from opendp_sim.spaces.rows import RealRows, Rows

GAUSS = {"gaussian": {"bandwidth": 1.5}}
SKETCHES: dict[str, dict[str, Any]] = {
    "fourier_sketch": {"frequencies": 150, "kernel": GAUSS, "features": "random"},
    "race_sketch": {"repetitions": 150, "buckets": 64, "family": {"p_stable_l2": {"width": 3.0}}},
    "exponential_sum": {
        "bandwidth": 2.0,
        "accuracy": 0.1,
        "structure": {"fourier": {"frequencies": 60}},
    },
}
WIDTH, SIZE = 6, 400


def points(count: int, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return np.clip(rng.choice([1.0, 3.0], (count, 1)) + rng.normal(0, 0.6, (count, WIDTH)), 0, 4)


def release(
    key: str, data: Any, *, seed: int = 0, scale: float = 0.001, labels: Any = None
) -> Release:
    space = RealRows(
        width=WIDTH, lower=(0.0,), upper=(4.0,), labels=None if labels is None else ("a", "b")
    )
    params = {**SKETCHES[key], "seed": seed}
    if labels is not None:
        params["per_label"] = True
    stages = bind_steps(space, Symmetric(), [lookup("quantize")(bits=10), lookup(key)(**params)])
    flat = whole_function(stages[-1].claim)(resolve(stages, list)(Rows(data, labels)))
    noise = np.rint(np.random.default_rng(seed).normal(0, scale, flat.shape)).astype(np.int64)
    return Release.of_sketch(stages, flat + noise, Noise("discrete_gaussian", scale), {})


def asked(query: str, of: Release, queries: Any, **params: Any) -> Any:
    bound = lookup(query)(**params).bind(of.released, Symmetric())
    return bound.function(of.arrays, of.queries(queries))


def exact(of: Release, data: Any, queries: Any) -> Any:
    """Kernel sums of the rows as the sketch saw them."""
    sums = of.released.capability("kernel_sums", "test")
    grid = of.stages[-1].domain
    seen = [np.rint(of.queries(v).values) * grid.unit for v in (data, queries)]  # type: ignore[attr-defined]
    metric = {"l1": "cityblock", "l2": "euclidean"}[sums.distance]
    return sums.kernel(cdist(seen[0], seen[1], metric)).sum(axis=0)


@pytest.mark.parametrize("key", SKETCHES)
def test_points_that_are_the_data_are_answered_exactly(key: str):
    """Nothing is left to sample: the answer is the sum itself, for any seed."""
    data = points(60, 1)
    for seed in range(3):
        of = release(key, data, seed=seed)
        plain, public = (
            asked("density", of, data, public=which)["density"][:, 0]
            for which in ("none", "queries")
        )
        truth = exact(of, data, data)
        assert np.abs(public - truth).max() < 1e-6 * len(data)
        assert np.abs(plain - truth).max() > 1.0
        height = asked("modes", of, data, public="queries", seed=1, rounds=2)
        at = exact(of, data, height["mode"])
        assert height["height"] == pytest.approx(at, abs=1e-4)


@pytest.mark.parametrize("key", ["fourier_sketch", "race_sketch"])
def test_other_points_leave_no_bias_and_less_error(key: str):
    """80 seeds: each query's mean error within 4.5 standard errors, a third of the error, coverage."""
    data, queries = points(SIZE, 1), points(150, 2)
    errors: dict[str, list[Any]] = {"none": [], "queries": []}
    covered = []
    for seed in range(80):
        of = release(key, data, seed=seed)
        truth = exact(of, data, queries)
        for which, into in errors.items():
            found = asked("density", of, queries, public=which)
            into.append(found["density"][:, 0] - truth)
        covered.append((found["lower"][:, 0] <= truth) & (truth <= found["upper"][:, 0]))
    off = np.array(errors["queries"])
    assert np.abs(off.mean(axis=0) / (off.std(axis=0) / math.sqrt(80))).max() < 4.5
    assert np.sqrt(np.square(off).mean()) < np.sqrt(np.square(errors["none"]).mean()) / 2
    assert np.mean(covered) > 0.93


def test_the_interval_holds_the_noise_of_the_number_of_records():
    """A coarse count and points unlike the data: what the count adds is in the interval."""
    data, covered = points(SIZE, 1), []
    queries = np.clip(points(60, 2) * 0.3, 0, 4)
    for seed in range(60):
        of = release("fourier_sketch", data, seed=seed, scale=60_000.0)
        found = asked("density", of, queries, public="queries")
        truth = exact(of, data, queries)
        covered.append((found["lower"][:, 0] <= truth) & (truth <= found["upper"][:, 0]))
    assert np.mean(covered) > 0.92


def test_classes_are_told_apart_by_it():
    data = points(SIZE, 3)
    labels = (data.mean(axis=1) > 2.0).astype(np.int64)
    of = release("fourier_sketch", data, labels=labels)
    found = asked("density", of, data, public="queries")["density"]
    for label in (0, 1):
        truth = exact(of, data[labels == label], data)
        plain = asked("density", of, data)["density"][:, label]
        assert np.abs(found[:, label] - truth).mean() < np.abs(plain - truth).mean()
    best = asked("classify", of, data, public="queries", rule="map")
    assert np.array_equal(best["score"], found)
    assert (best["label"] == labels).mean() > 0.99
    flags = asked("outliers", of, data, public="queries", threshold=0.5)["score"]
    means = asked("density", of, data, public="queries", normalise=True)["density"]
    assert np.array_equal(flags, means)


def test_refusals():
    of = release("fourier_sketch", points(50, 1))
    sums = of.released.capability("kernel_sums", "test")
    assert with_public("none", "density", of.released, sums, 1.0, None) is sums
    with pytest.raises(SimError, match="OS607"):
        asked("density", of, points(19, 2), public="queries")
    bound = lookup("modes")(seed=1, public="queries").bind(of.released, Symmetric())
    with pytest.raises(SimError, match="OS607"):
        bound.function(of.arrays, None)
    with pytest.raises(SimError, match="OS101"):
        lookup("density")(public="data")
