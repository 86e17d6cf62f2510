"""Tasks on released kernel sums: summits, lonely queries, draws."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Noise, Stable
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.measurements.noise._impl.samplers import add_gaussian
from opendp_sim.postprocessing.density import Density
from opendp_sim.postprocessing.modes import Modes
from opendp_sim.postprocessing.outliers import Outliers
from opendp_sim.postprocessing.sample import Sample
from tests._seeded import stream

SPACE = RealRows(width=2, lower=(-1.0,), upper=(1.0,), labels=("a", "b"))
CENTRES = np.array([[-0.5, -0.4], [0.5, 0.3], [0.5, -0.6]])
SIZES = (1200, 600, 300)
SKETCHES: list[dict[str, Any]] = [
    {
        "fourier_sketch": {
            "frequencies": 4000,
            "kernel": {"gaussian": {"bandwidth": 0.25}},
            "seed": 1,
            "features": "random",
        }
    },
    {"gauss_transform_sketch": {"bandwidth": 0.25}},
]


def data() -> Rows:
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [c + rng.normal(0, 0.08, (n, 2)) for c, n in zip(CENTRES, SIZES, strict=True)]
    )
    return Rows(np.clip(values, -1, 1), (np.arange(len(values)) >= SIZES[0]).astype(np.int64))


def release(sketch: dict[str, Any], scale: float = 0.0, **more: Any) -> Release:
    ((key, params),) = sketch.items()
    step = lookup(key).from_spec({**params, **more})
    stages = bind_steps(SPACE, Symmetric(), [lookup("quantize")(bits=12), step])
    claim = stages[-1].claim
    assert isinstance(claim, Stable)
    flat = whole_function(claim)(resolve(stages, list)(data()))
    return Release.of_sketch(stages, flat, Noise("discrete_gaussian", scale), {})


@pytest.mark.few(1)
@pytest.mark.parametrize("sketch", SKETCHES, ids=lambda s: next(iter(s)))
def test_every_cluster_is_a_mode(sketch: Any) -> None:
    of = release(sketch)
    found = Modes(seed=3).bind(of.released, Symmetric()).function(of.arrays, None)
    high = found["mode"][found["height"] > 100]
    assert cdist(CENTRES, high).min(axis=1).max() < 0.05
    assert np.argmin(cdist(CENTRES, found["mode"][:1])) == 0
    assert len(high) == 3
    assert (np.diff(found["height"]) <= 0).all()
    assert found["starts"].sum() == 32


def test_a_mode_is_better_than_its_neighbours() -> None:
    of = release(SKETCHES[1])
    found = Modes(seed=3, starts=4).bind(of.released, Symmetric()).function(of.arrays, None)
    unit = of.released.queries.unit  # type: ignore[union-attr]
    sums = of.released.capability("kernel_sums", "test")
    top = np.rint(found["mode"][0] / unit)
    around = top + np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
    heights = sums.estimate(of.arrays, Rows(around)).groups[0, 0]
    assert heights.argmax() == 0


@pytest.mark.parametrize("sketch", SKETCHES, ids=lambda s: next(iter(s)))
def test_lonely_queries_are_flagged_and_others_are_not(sketch: Any) -> None:
    of = release(sketch)
    queries = np.concatenate([CENTRES, [[-0.9, 0.9], [0.0, 0.95]]])
    post = Outliers(threshold=0.03, false_alarms=0.001).bind(of.released, Symmetric())
    answer = post.function(of.arrays, of.queries(Rows(queries)))
    assert answer["outlier"][:, 0].tolist() == [0, 0, 0, 1, 1]


def test_false_alarms_are_as_stated() -> None:
    """A query exactly at the threshold is flagged at the stated rate, 0.1, or less, over 500 fixed draws.

    At most five binomial deviations, 0.067, above it. It is less
    because the interval holds what rounding to the grid may move a kernel value by. The Gauss
    transform has no sampling error to blur the threshold, and the noise of the released size is 1 in
    500 of it.
    """
    scale = 4e5
    of = release(SKETCHES[1], scale)
    query = of.queries(Rows(np.array([[0.2, 0.0]])))
    sketch = of.released.sketch
    clean = Outliers(threshold=0.5).bind(of.released, Symmetric()).function(of.arrays, query)
    post = Outliers(threshold=float(clean["score"][0, 0]), false_alarms=0.1)
    flag = post.bind(of.released, Symmetric()).function
    size = sketch.size  # type: ignore[attr-defined]
    flags, source, runs = [], stream(1), ((size, Fraction(scale)),)
    for _ in range(500):
        noise = sketch.split(add_gaussian(np.zeros(size, np.int64), runs, source))  # type: ignore[attr-defined]
        noisy = {name: array + noise[name] for name, array in of.arrays.items()}
        flags.append(flag(noisy, query)["outlier"][0, 0])
    assert 0.01 <= np.mean(flags) <= 0.1 + 0.067


def test_draws_of_an_empty_release_are_uniform() -> None:
    of = release(SKETCHES[1])
    nothing = {name: np.zeros_like(array) for name, array in of.arrays.items()}
    post = Sample(size=1000, seed=4).bind(of.released, Symmetric())
    drawn = post.function(nothing, of.queries(Rows(CENTRES)))["candidate"]
    assert set(drawn.tolist()) == {0, 1, 2}


def test_draws_by_label_name_the_class() -> None:
    of = release(SKETCHES[1], per_label=True)
    post = Sample(size=4000, seed=4).bind(of.released, Symmetric())
    drawn = post.function(of.arrays, of.queries(Rows(CENTRES)))
    assert (drawn["label"] == (drawn["candidate"] > 0)).mean() > 0.95


def test_intervals_of_a_biased_sketch_cover() -> None:
    """An accuracy of 0.1 of every kernel value: the interval holds it (Lemma 1 of density.md)."""
    space = RealRows(width=2, lower=(-1.0,), upper=(1.0,))
    points = np.random.default_rng(1).uniform(-1, 1, (20000, 2))
    steps = [
        lookup("quantize")(bits=12),
        lookup("exponential_sum")(
            bandwidth=0.5, accuracy=0.1, seed=1, structure={"gauss_transform": {"order": 8}}
        ),
    ]
    stages = bind_steps(space, Symmetric(), steps)
    rows = resolve(stages[:1], list)(Rows(points))
    flat = whole_function(stages[-1].claim)(rows)  # type: ignore[arg-type]
    of = Release.of_sketch(stages, flat, Noise("discrete_gaussian", 1.0), {})
    queries = points[:50]
    sums = of.released.capability("kernel_sums", "test")
    exact = sums.kernel(cdist(points, queries)).sum(axis=0)
    answer = Density().bind(of.released, Symmetric()).function(of.arrays, of.queries(Rows(queries)))
    assert (answer["lower"][:, 0] <= exact).all()
    assert (exact <= answer["upper"][:, 0]).all()


def test_more_groups_than_repetitions_are_the_repetitions() -> None:
    for key, params in (
        (
            "fourier_sketch",
            {"frequencies": 5, "kernel": {"gaussian": {"bandwidth": 1.0}}, "seed": 1},
        ),
        ("gauss_transform_sketch", {"bandwidth": 1.0}),
    ):
        stages = bind_steps(
            RealRows(width=2, lower=(-1.0,), upper=(1.0,)),
            Symmetric(),
            [lookup("quantize")(bits=8), lookup(key)(**params)],
        )
        flat = whole_function(stages[-1].claim)(Rows(np.zeros((9, 2))))  # type: ignore[arg-type]
        of = Release.of_sketch(stages, flat, Noise("discrete_gaussian", 3.0), {})
        answers = [
            Density(estimator=how)
            .bind(of.released, Symmetric())
            .function(of.arrays, of.queries(Rows(np.zeros((2, 2)))))
            for how in ("mean", "median_of_means")
        ]
        assert all(np.isfinite(answer["lower"]).all() for answer in answers)
    assert np.array_equal(answers[0]["noise_error"], answers[1]["noise_error"])
