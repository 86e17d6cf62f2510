"""Weighted sums of kernels: unbiased for either sign, with the noise and sampling error they state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import lookup
from opendp_sim.dsl import Refused, plan_file
from tests._small import write_small
from tests.transformations.sketches.kernels._kernel_data import (
    bound,
    built,
    distances,
    grid,
    kernel_values,
    points,
)

UNIT = 1 / 2048
SCALES = [[0.5, {"gaussian": {"bandwidth": 0.3}}], [0.5, {"gaussian": {"bandwidth": 1.2}}]]
SHARP = [[2.0, {"gaussian": {"bandwidth": 0.6}}], [-1.0, {"gaussian": {"bandwidth": 0.9}}]]
MIXED = [
    [1.5, {"exponential": {"bandwidth": 0.5}}],
    [-0.7, {"rational": {"bandwidth": 0.8}}],
    [0.1, {"gaussian": {"bandwidth": 1.0}}],
]
L1 = [
    [-1.0, {"laplacian": {"bandwidth": 0.9}}],
    [3.0, {"rational": {"bandwidth": 1.5, "distance": "l1"}}],
]
ALL = pytest.mark.parametrize(
    "terms", [SCALES, SHARP, MIXED, L1], ids=["scales", "sharp", "mixed", "l1"]
)


def sketch(terms: Any, frequencies: int, seed: int, width: int = 3, **params: Any) -> Any:
    kernel = {"weighted": {"terms": terms}}
    return bound(
        "fourier_sketch", grid(width), frequencies=frequencies, kernel=kernel, seed=seed, **params
    )


@pytest.mark.few(2)
@ALL
def test_sums_are_unbiased_and_their_standard_error_is_theirs(terms: Any) -> None:
    """Fixed seed, no noise: every query within 4 standard errors of brute force."""
    claim = sketch(terms, 6000, seed=5)
    rows, queries = points(300, 3, seed=2), points(20, 3, seed=3, reach=3000)
    exact = kernel_values(claim, rows, queries, UNIT).sum(axis=0)
    reader = claim.capabilities["kernel_sums"]
    found = reader.estimate(built(claim, rows), queries)
    deviation = np.sqrt(found.variance[0] / found.repetitions)
    assert np.abs((found.groups[0, 0] - exact) / deviation).max() < 4
    assert (
        deviation <= 1.05 * reader.sketch_deviation(distances(claim, rows, queries, UNIT))
    ).all()
    grouped = reader.estimate(built(claim, rows), queries, 9).groups[:, 0]
    assert np.abs((np.median(grouped, axis=0) - exact) / deviation).max() < 6


def test_weights_change_no_cell_and_no_sensitivity() -> None:
    """The same frequencies with other weights of the same size: the same bits, the same sensitivity."""
    one, other = (
        sketch(SHARP, 60, seed=3),
        sketch([[2.0, SHARP[0][1]], [1.0, SHARP[1][1]]], 60, seed=3),
    )
    assert (
        one.sensitivity
        == other.sensitivity
        == bound("fourier_sketch", grid(3), frequencies=60, kernel=SHARP[0][1], seed=3).sensitivity
    )
    rows = points(50, 3, seed=1)
    for name, block in built(one, rows).items():
        assert np.array_equal(block, built(other, rows)[name])


def test_spec_round_trip_and_refusals() -> None:
    cls = lookup("fourier_sketch")
    record = cls(frequencies=9, seed=1, kernel={"weighted": {"terms": MIXED}})
    assert cls.from_spec(record.spec()) == record
    assert isinstance(hash(record), int)
    with pytest.raises(ParameterError, match=r"OS102 fourier_sketch\.frequencies"):
        sketch(MIXED, 5, seed=1)
    with pytest.raises(
        ParameterError, match=r"OS102 fourier_sketch\.kernel: expected kernels of one"
    ):
        sketch([SCALES[0], L1[0]], 100, seed=1)
    nan, inf = float("nan"), float("inf")
    for terms in (
        [],
        [[1.0]],
        [[nan, SCALES[0][1]]],
        [[inf, SCALES[0][1]]],
        [["2", SCALES[0][1]]],
        [[1.0, {"gauss": {}}]],
        [[1.0, {"weighted": {"terms": SCALES}}]],
    ):
        with pytest.raises(ParameterError, match=r"OS101 weighted\.terms"):
            sketch(terms, 100, seed=1)
    with pytest.raises(ParameterError, match=r"OS101 gaussian\.bandwidth"):
        sketch([[1.0, {"gaussian": {"bandwidth": 0.0}}]], 100, seed=1)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("term", "place"),
    [
        ("[2.0, {gaussian: {bandwidth: 0}}]", (1, 1, "gaussian", "bandwidth")),
        ("[2.0, {gaussian: {bandwith: 1.0}}]", (1, 1, "gaussian", "bandwith")),
        ("[2.0, {gaussian: {}}]", (1, 1, "gaussian")),
        ("[2.0, gaussian]", (1, 1)),
        ("[2.0, {gauss: {bandwidth: 1.0}}]", (1, 1)),
        ("[2.0, {rational: {bandwidth: 1.0, distance: l7}}]", (1, 1, "rational", "distance")),
        ("['2', {gaussian: {bandwidth: 1.0}}]", (1, 0)),
        ("[2.0]", (1,)),
    ],
)
def test_a_finding_points_into_the_wrong_term(
    term: str, place: tuple[int | str, ...], tmp_path: Path
) -> None:
    """Two terms of one kernel: the second is wrong, and the caret is under it, not under the step."""
    kernel = f"{{weighted: {{terms: [[1.0, {{gaussian: {{bandwidth: 1.0}}}}], {term}]}}}}"
    old = 'race_sketch: {repetitions: 100, buckets: 16, family: {p_stable_l2: {width: "${width}"}}, seed: 7, per_label: true, count_weight: 0}'
    spec = write_small(
        tmp_path,
        (old, f"fourier_sketch: {{frequencies: 90, kernel: {kernel}, seed: 7}}"),
        ("    expect: {stability: 1, sensitivity: {l1: 100, l2: 10, linf: 1}}\n", ""),
    )
    with pytest.raises(Refused) as caught:
        plan_file(spec)
    (finding,) = [f for f in caught.value.findings if "terms" in f.path]
    assert finding.path[-len(place) :] == place
    assert finding.path[-len(place) - 1] == "terms"


@pytest.mark.few(1)
@pytest.mark.parametrize("terms", [SHARP, [[1.0, SCALES[1][1]], [1.0, SCALES[1][1]]]])
def test_intervals_cover_however_few_frequencies_a_term_has(terms: Any) -> None:
    """Two frequencies a term: 95 % intervals cover at least 91 % over 100 fixed seeds x 20 queries.

    With D - 1 = 3 degrees of freedom they covered 87 %.
    """
    rows, queries = points(400, 3, seed=1), points(20, 3, seed=2)
    covered = []
    for seed in range(100):
        claim = sketch(terms, 4, seed=seed)
        found = claim.capabilities["kernel_sums"].estimate(built(claim, rows), queries)
        reach = student.ppf(0.975, found.freedom[0]) * np.sqrt(found.variance[0] / 4)
        exact = kernel_values(claim, rows, queries, UNIT).sum(axis=0)
        covered.append(np.abs(found.groups[0, 0] - exact) <= reach)
    assert np.mean(covered) > 0.91
    assert found.freedom.min() >= 1
    assert found.freedom.max() <= 2 + 1e-9
