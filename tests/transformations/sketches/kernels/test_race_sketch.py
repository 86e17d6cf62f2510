"""What is true of RACE alone: its kernels, its unbiasedness, its noise, its two counting paths."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Noise, Stable
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.postprocessing.classify import Classify
from opendp_sim.postprocessing.density import Density
from opendp_sim.transformations.sketches.kernels import race_sketch as module
from opendp_sim.transformations.sketches.kernels._impl.hash_families import (
    PStableL1,
    PStableL2,
    SignedProjections,
)
from opendp_sim.transformations.sketches.kernels.race_sketch import RaceReader, RaceSketch

FAMILIES: list[Any] = [
    {"p_stable_l2": {"width": 1.5}},
    {"p_stable_l2": {"width": 3.0, "joined": 2}},
    {"p_stable_l1": {"width": 2.5}},
    {"srp": {"bits": 3}},
    {"srp": {"bits": 7}},
]
DATA = np.clip(np.random.default_rng(5).normal(0.3, 0.6, (400, 4)), -2, 2)
QUERIES = DATA[:20] * 0.9 + 0.05
SPACE = RealRows(width=4, lower=(-2.0,), upper=(2.0,))


def built(**params: Any) -> tuple[Release, RaceReader]:
    """The sketch of DATA without noise, and its reader."""
    stages = bind_steps(
        SPACE, Symmetric(), [lookup("quantize")(bits=14), RaceSketch.from_spec(params)]
    )
    claim = stages[-1].claim
    assert isinstance(claim, Stable)
    rows = stages[0].claim.function(DATA)  # type: ignore[union-attr,misc]
    flat = whole_function(claim)(rows)
    return Release.of_sketch(stages, flat, None, {}), claim.capabilities["kernel_sums"]


def distances(reader: RaceReader) -> np.ndarray[Any, Any]:
    if reader.distance == "angle":
        return np.arccos(np.clip(1 - cdist(DATA, QUERIES, "cosine"), -1, 1))
    metric = {"l1": "cityblock", "l2": "euclidean"}[reader.distance]
    return cdist(DATA, QUERIES, metric)


def exact(reader: RaceReader) -> np.ndarray[Any, Any]:
    return reader.kernel(distances(reader))


@pytest.mark.few(2)
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_estimates_are_unbiased_for_the_stated_kernel(family: Any) -> None:
    """Fixed seed: the mean z-score over 20 queries is within 4 of zero, rehash collisions included."""
    release, reader = built(repetitions=3000, buckets=16, family=family, seed=1)
    found = reader.estimate(release.arrays, release.queries(QUERIES))
    error = found.groups[0, 0] - exact(reader).sum(axis=0)
    deviation = np.sqrt(found.variance[0] / found.repetitions)
    assert np.abs(error / deviation).max() < 4
    assert (deviation < 1.05 * reader.sketch_deviation(distances(reader))).all()


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_both_counting_paths_are_the_same_integers(family: Any, monkeypatch: Any) -> None:
    params = {"repetitions": 20, "buckets": 32, "family": family, "seed": 4}
    whole, _ = built(**params)
    monkeypatch.setattr(module, "_TABLE_CELLS", 0)
    again, _ = built(**params)
    assert np.array_equal(whole.arrays["counts"], again.arrays["counts"])


def test_kernels_are_collision_probabilities() -> None:
    """Closed forms against 200,000 drawn hashes; five standard errors, fixed seed."""
    rng = np.random.default_rng(3)
    n = 200_000
    for distance in (0.3, 1.0, 4.0):
        for family, w in (
            (PStableL2(width=1.5), rng.standard_normal(n)),
            (PStableL1(width=1.5), rng.standard_cauchy(n)),
        ):
            b = rng.random(n)
            hit = np.floor(b) == np.floor(w * distance / 1.5 + b)
            expected = family.kernel(np.array([distance]))[0]
            assert hit.mean() == pytest.approx(expected, abs=5 * math.sqrt(0.25 / n))
    angles = SignedProjections(bits=2).kernel(np.array([0.0, math.pi / 2, math.pi]))
    assert angles == pytest.approx([1.0, 0.25, 0.0])
    for family in (PStableL2(width=2.0), PStableL1(width=2.0)):
        values = family.kernel(np.linspace(0, 50, 400))
        assert values[0] == pytest.approx(1.0)
        assert all(a >= b for a, b in pairwise(values))


def test_where_the_law_has_no_tail_the_kernel_has_the_same_bits_without_scipy() -> None:
    for reach in (0.01, 30.0, 37.9, 38.5, 39.9, 40.1, 1e3, 1e9):
        distance = np.array([2.0 / reach])
        alone, beside = PStableL2(width=2.0).kernel(distance), np.array([2.0 / reach, 5.0])
        assert alone[0] == PStableL2(width=2.0).kernel(beside)[0]  # the second asks scipy


def test_exactness_is_refused_when_it_cannot_be_proved() -> None:
    grid = GridRows(width=4, unit=1e-12, lower=(-(2**44),), upper=(2**44,))
    with pytest.raises(SpaceError, match="OS203") as error:
        RaceSketch(repetitions=3, buckets=8, family={"p_stable_l2": {"width": 1e-12}}, seed=0).bind(
            grid, Symmetric()
        )
    assert "quantize to fewer bits" in error.value.hint


def test_refusals() -> None:
    good = {"repetitions": 3, "buckets": 8, "family": FAMILIES[0], "seed": 0}
    grid = GridRows(width=4, lower=(-4,), upper=(4,))
    with pytest.raises(SpaceError, match="OS204"):
        RaceSketch.from_spec({**good, "per_label": True}).bind(grid, Symmetric())
    with pytest.raises(ParameterError, match=r"OS101 p_stable_l2\.width"):
        RaceSketch.from_spec({**good, "family": {"p_stable_l2": {"width": 0.0}}})
    with pytest.raises(ParameterError, match=r"OS101 race_sketch\.family"):
        RaceSketch.from_spec({**good, "family": {"minhash": {}}})


def test_classes_are_disjoint_and_answers_agree() -> None:
    """Per-label estimates add up to the unlabelled ones, and classify follows the densities."""
    labels = (DATA[:, 0] > 0.3).astype(np.int64)
    space = RealRows(width=4, lower=(-2.0,), upper=(2.0,), labels=("low", "high"))
    race = {"repetitions": 600, "buckets": 64, "family": FAMILIES[0], "seed": 8}
    stages = bind_steps(
        space,
        Symmetric(),
        [lookup("quantize")(bits=14), RaceSketch.from_spec({**race, "per_label": True})],
    )
    claim = stages[-1].claim
    assert isinstance(claim, Stable)
    flat = whole_function(claim)(stages[0].claim.function(Rows(DATA, labels)))  # type: ignore[union-attr,misc]
    release = Release.of_sketch(stages, flat, Noise("discrete_gaussian", 1e-3), {})
    whole, reader = built(**race)
    queries = release.queries(Rows(QUERIES))
    density = Density().bind(release.released, Symmetric())
    answer = density.function(release.arrays, queries)
    alone = reader.estimate(whole.arrays, whole.queries(QUERIES)).groups[0, 0]
    assert answer["density"].sum(axis=1) == pytest.approx(alone)
    assert (answer["lower"] <= answer["density"]).all()
    assert answer["records"][0].sum() == len(DATA)
    first = Classify().bind(release.released, Symmetric()).function(release.arrays, queries)
    second = Classify().bind(density.output, Symmetric()).function(answer)  # type: ignore[arg-type]
    assert (first["label"] == second["label"]).all()
    truth = (QUERIES[:, 0] > 0.3).astype(int)
    assert (first["label"] == truth).mean() >= 0.75
    scaled = Density(normalise=True).bind(release.released, Symmetric())
    assert (
        Classify(rule="map")
        .bind(scaled.output, Symmetric())
        .function(  # type: ignore[arg-type]
            scaled.function(release.arrays, queries)
        )["label"]
        == answer["density"].argmax(axis=1)
    ).all()


def test_no_record_deviates_more_than_a_coin_of_one_half():
    """The bound that needs no kernel is that of the kernel, at its worst distance."""
    _, reader = built(repetitions=40, buckets=16, family={"p_stable_l2": {"width": 1.0}}, seed=1)
    each = reader.sketch_deviation(np.geomspace(1e-4, 1e4, 4001)[None, :])
    assert each.max() <= reader.most_deviation() <= 1.001 * each.max()
    assert reader.most_deviation() == pytest.approx(0.5 / (15 / 16 * math.sqrt(40)))
