"""Classes of few records: labels are declared without looking, so empty classes are usual."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Stable
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.postprocessing.classify import Classify
from opendp_sim.postprocessing.density import Density

SPACE = RealRows(width=2, lower=(-1.0,), upper=(1.0,), labels=("low", "high", "nobody"))
RHO, RELEASES, EACH = 0.05, 12, 2500
SKETCHES: list[dict[str, Any]] = [
    {"fourier_sketch": {"frequencies": 500, "kernel": {"gaussian": {"bandwidth": 0.3}}, "seed": 1}},
    {
        "race_sketch": {
            "repetitions": 500,
            "buckets": 128,
            "seed": 1,
            "family": {"p_stable_l2": {"width": 0.5, "joined": 2}},
        }
    },
    {"gauss_transform_sketch": {"bandwidth": 0.3}},
]


def clusters(each: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    values = np.concatenate([rng.normal(c, 0.12, (each, 2)) for c in (-0.5, 0.5)])
    return Rows(np.clip(values, -1, 1), np.repeat([0, 1], each))


def releases(sketch: dict[str, Any], rows: Rows, count: int = RELEASES) -> list[Release]:
    ((key, params),) = sketch.items()
    step = lookup(key).from_spec({**params, "per_label": True})
    stages = bind_steps(SPACE, Symmetric(), [lookup("quantize")(bits=12), step])
    claim = stages[-1].claim
    assert isinstance(claim, Stable)
    flat = whole_function(claim)(resolve(stages, list)(rows))
    assert claim.sensitivity is not None
    scale = claim.sensitivity.bound("l2", 1) / math.sqrt(2 * RHO)
    noise: Any = lookup("gaussian")(scale=scale).bind(claim.output, claim.output.metric("l2"))  # type: ignore[attr-defined]
    return [Release.of_sketch(stages, noise.function(flat), noise.noise, {}) for _ in range(count)]


@pytest.fixture(scope="module", params=SKETCHES, ids=lambda s: next(iter(s)))
def noisy(request: Any) -> list[Release]:
    return releases(request.param, clusters(EACH, 0))


@pytest.mark.few(2)
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("rule", ["max_likelihood", "map"])
def test_labels_from_densities_are_those_of_the_release(
    noisy: list[Release], normalise: bool, rule: Any
) -> None:
    of = noisy[0]
    asked = of.queries(clusters(50, 2))
    density = Density(normalise=normalise).bind(of.released, Symmetric())
    post = Classify(rule=rule).bind(density.output, Symmetric())  # type: ignore[arg-type]
    direct = Classify(rule=rule).bind(of.released, Symmetric()).function(of.arrays, asked)
    through = post.function(density.function(of.arrays, asked))
    assert (through["label"] == direct["label"]).all()
    assert through["score"] == pytest.approx(direct["score"], rel=1e-9, abs=1e-12)


@pytest.mark.few(1)
def test_the_floor_is_public(noisy: list[Release]) -> None:
    """The floor is the same for other data and other noise: it closes over parameters only."""
    of = noisy[0]
    fewer = releases(SKETCHES[0], clusters(7, 5), 1)[0]
    same = fewer if "features" in of.arrays else noisy[1]
    floors = {
        float(
            d.bind(r.released, Symmetric()).function(r.arrays, r.queries(clusters(1, 0)))[
                "least_records"
            ][0, 0]
        )
        for r in (of, noisy[2], same)
        for d in (Density(), Density(normalise=True))
    }
    assert len(floors) == 1
    assert floors.pop() > 4 / math.sqrt(2 * RHO)


def test_small_classes_alone_are_compared_by_their_sums() -> None:
    """Lemma 2 (c) of classify.md: with every class below the floor the rules agree."""
    of = releases(SKETCHES[0], clusters(3, 0), 1)[0]
    asked = of.queries(clusters(50, 1))
    rules = [
        Classify(rule=rule).bind(of.released, Symmetric()) for rule in ("max_likelihood", "map")
    ]
    first, second = (post.function(of.arrays, asked)["label"] for post in rules)
    assert (first == second).all()
