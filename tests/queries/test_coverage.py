"""Printed intervals cover what they say on the worst data: rows on a lattice."""

from __future__ import annotations

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release import Release
from opendp_sim.core.claims import Noise
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.core.whole import whole_function
from opendp_sim.queries import density
from opendp_sim.spaces.metrics import Symmetric
from opendp_sim.spaces.rows import RealRows, Rows
from tests.bench import interval_coverage as campaign


def release(steps, box, data, scale=0.01):
    real = RealRows(width=data.shape[1], lower=(box[0],), upper=(box[1],))
    stages = bind_steps(real, Symmetric(), steps)
    flat = whole_function(stages[-1].claim)(resolve(stages, list)(Rows(data)))
    noise = np.random.default_rng(1).normal(0, scale, flat.shape)
    return Release.of_sketch(stages, np.rint(flat + noise).astype(np.int64),
                             Noise("discrete_gaussian", scale), {"rho": 1.0})  # fmt: skip


@pytest.mark.parametrize(
    "key", ["threshold_sketch", "moment_tree", "distance_tree", "moments_sketch"]
)
@pytest.mark.parametrize("bits", [3, 5, 8])
def test_distances_cover_rows_between_the_steps(key, bits):
    """All rows and queries sit at the worst place of a step: every one errs alike, in both directions."""
    params = {"threshold_sketch": {"thresholds": 2**12}, "moments_sketch": {}}
    sketch = lookup(key)(**params.get(key, {"levels": 10}))
    unit = 2.0 / 2**bits
    for side, back in ((0.499, -0.499), (-0.499, 0.499)):
        data = np.full((500, 3), unit * (1 + side))
        asked = np.full((1, 3), unit * (back - 1))
        of = release([lookup("quantize")(bits=bits), sketch], (-1.0, 1.0), data)
        query = lookup("distance")().bind(of.released, Symmetric())
        found = query.function(of.arrays, of.queries(asked))
        power = 2 if key == "moments_sketch" else 1
        truth = 500 * float((np.abs(data[0] - asked[0]) ** power).sum())
        assert found["lower"][0, 0] <= truth <= found["upper"][0, 0]


@pytest.mark.parametrize("clusters", [1, 3])
@pytest.mark.parametrize("buckets", [16, 64])
def test_densities_cover_few_clusters_far_away(buckets, clusters):
    """A cluster meets the query whole, or not at all: with 20 hashes .28 of 95 % intervals covered.

    Hashes and noise are drawn from fixed seeds, so this never fails by chance.
    """
    centres = np.random.default_rng(5).uniform(-900.0, 900.0, (clusters, 3))
    data = np.repeat(centres, 300 // clusters, axis=0)
    asked = np.array([[1000.0, -1000.0, 1000.0], centres[0] + 5.0])
    covered = np.zeros(2)
    for seed in range(30):
        sketch = lookup("race_sketch")(
            repetitions=20, buckets=buckets, family={"p_stable_l2": {"width": 1.0}}, seed=seed
        )
        of = release([lookup("quantize")(bits=20), sketch], (-1000.0, 1000.0), data)
        far = np.linalg.norm(data[:, None] - asked[None], axis=2)
        truth = sketch.family.kernel(far).sum(axis=0)
        found = (
            lookup("density")()
            .bind(of.released, Symmetric())
            .function(of.arrays, of.queries(asked))
        )
        covered += (found["lower"][:, 0] <= truth) & (truth <= found["upper"][:, 0])
        alone = lookup("outliers")(threshold=float(truth[1]) / 300, false_alarms=0.05)
        flags = alone.bind(of.released, Symmetric()).function(of.arrays, of.queries(asked[1:]))
        covered[1] -= 0.5 * flags["outlier"][0, 0]  # a false alarm counts as half a miss
    assert (covered >= 27).all(), covered


@pytest.mark.parametrize(("name", "bits", "dimension"), [
    ("race_sketch", 6, 0), ("race_sketch l1", 6, 0), ("race_sketch", 6, 4), ("fourier_sketch", 6, 0),
    ("fourier_sketch exponential", 6, 4), ("exponential_sum", 6, 0), ("gauss_transform_sketch", 8, 0),
])  # fmt: skip
def test_densities_cover_rows_between_the_steps(monkeypatch, name, bits, dimension):
    """All rows and the query are rounded apart by a step: none of the intervals held that."""
    assert campaign.lattice(name, bits, dimension, 2) == 1.0
    if not dimension:
        monkeypatch.setattr(density, "rounded", lambda *_: 0.0)
        assert campaign.lattice(name, bits, dimension, 2) < 1.0


@pytest.mark.parametrize("map_name", ["jl_projection", "l1_embedding"])
def test_distances_behind_projections_cover_rounded_rows(map_name):
    """A step of 1/8 in each of 16 columns, on records in one point."""
    assert campaign.projected(map_name, 4, "one point", 4) == 1.0


@pytest.mark.parametrize("confidence", [0.5, 0.999])
@pytest.mark.parametrize("groups", [1, 9])
def test_densities_cover_unequal_clusters(groups, confidence):
    """Lemma 3 is proved for one cluster: 200, 60, 30 and 10 records in four points, from fixed seeds."""
    assert campaign.race((200, 60, 30, 10), 45, groups, confidence, 0.01, 8) >= confidence
