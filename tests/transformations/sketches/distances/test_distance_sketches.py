"""Structures for distances: exact without noise, with the noise that they state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Linear
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.transformations.sketches.distances import distance_tree
from opendp_sim.transformations.sketches.distances._impl.axes import Dyadic
from opendp_sim.transformations.sketches.distances._impl.tree_sums import NearestCells, consistent
from opendp_sim.transformations.sketches.distances.moments_sketch import (
    ClassSums,
    shorten_to_radius,
)
from tests.transformations.sketches.distances._distance_tools import (
    UNEVEN,
    UNIT,
    Made,
    exact_sums,
    some_queries,
    some_rows,
)

ROWS = some_rows(UNEVEN, 60)
QUERIES = some_queries(UNEVEN, 30)

EXACT: list[tuple[str, dict[str, Any], float]] = [
    ("threshold_sketch", {"thresholds": 4096}, 1.0),
    ("threshold_sketch", {"thresholds": 63, "count_weight": 5}, 1.0),
    ("moment_tree", {"levels": 6}, 1.0),
    ("moment_tree", {"levels": 6, "tuned_for": "gaussian"}, 1.0),
    ("moment_tree", {"levels": 7, "p": 2}, 2.0),
    ("moment_tree", {"levels": 6, "p": 3}, 3.0),
    ("moments_sketch", {}, 2.0),
    ("moments_sketch", {"radius": 80 * UNIT}, 2.0),
]


@pytest.mark.parametrize("per_label", [False, True])
@pytest.mark.parametrize(("key", "params", "p"), EXACT, ids=str)
def test_sums_are_exact_without_noise(
    key: str, params: dict[str, Any], p: float, per_label: bool
) -> None:
    made = Made(UNEVEN, ROWS, key, per_label=per_label, **params)
    found = made.ask(QUERIES, p=p)
    true = exact_sums(ROWS, QUERIES, p, 3 if per_label else 1)
    assert found["distance"].shape == true.shape
    assert np.allclose(found["distance"], true, rtol=1e-12, atol=1e-7)
    assert (found["noise_error"] == 0).all()
    assert (found["bias"] == 0).all()
    sizes = np.bincount(ROWS.labels, minlength=3) if per_label else [60]
    assert np.allclose(found["records"], sizes)


@pytest.mark.parametrize("least_squares", [False, True])
@pytest.mark.parametrize("p", [1.0, 2.0, 2.5])
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.9])
def test_far_ends_stretch_by_at_most_alpha(p: float, alpha: float, least_squares: bool) -> None:
    """On leaves of one grid value the published factor holds at every query, inside and outside."""
    even = GridRows(width=2, unit=UNIT, lower=(-3,), upper=(60,))
    rows = some_rows(even, 40)
    queries = some_queries(even, 40)
    made = Made(even, rows, "distance_tree", levels=6, consistent=least_squares)
    found = made.ask(queries, p=p, alpha=alpha)["distance"]
    ratio = found / exact_sums(rows, queries, p, 1)
    assert ratio.min() >= 1 - 1e-9
    assert ratio.max() <= 1 + alpha + 1e-9
    again = made.ask(queries[7:9], p=p, alpha=alpha)["distance"]
    assert np.allclose(again, found[7:9])  # an answer does not depend on its batch


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("key", "params", "how"),
    [
        ("threshold_sketch", {"thresholds": 40}, {}),
        ("moment_tree", {"levels": 3}, {}),
        ("moment_tree", {"levels": 3, "p": 2, "tuned_for": "gaussian"}, {}),
        ("distance_tree", {"levels": 3}, {"alpha": 0.3}),
        ("distance_tree", {"levels": 3, "consistent": True}, {"alpha": 0.3}),
        ("distance_tree", {"levels": 3, "consistent": True}, {"p": 2.5}),
        ("moments_sketch", {}, {}),
    ],
    ids=str,
)
def test_stated_variances_are_those_of_the_linear_map(key: str, params: Any, how: Any) -> None:
    """Reading unit vectors gives every factor, and so the variance and covariance, exactly."""
    made = Made(UNEVEN, ROWS, key, **params)
    offer = made.claim.capabilities["distance_sums"]
    p, alpha = how.get("p"), how.get("alpha", 0.1)

    def read(cells: np.ndarray) -> tuple[Linear, float]:
        arrays = made.output.split(cells)  # type: ignore[attr-defined]
        found = offer.reading(arrays, p, alpha).at(QUERIES)
        return found, float(offer.counted(arrays).sizes[0])

    size = made.cells.size
    nothing, no_count = read(np.zeros(size, dtype=np.int64))
    assert no_count == 0
    assert np.abs(nothing.values).max() < 1e-9
    answers, counts = np.empty((size, len(QUERIES))), np.empty(size)
    for cell in range(size):
        one, counts[cell] = read(np.eye(1, size, cell, dtype=np.int64)[0])
        answers[cell] = one.values[0]
    variance = np.square(answers).sum(axis=0)
    stated = np.broadcast_to(nothing.variance, variance.shape)
    if key == "threshold_sketch":  # the stated one is that at the nearest levels, never smaller
        assert (stated >= variance * (1 - 1e-12)).all()
        assert np.allclose(stated, variance, rtol=0.03)
    else:
        assert np.allclose(stated, variance, rtol=1e-9)
    factor = offer.counted(made.output.split(made.cells)).factor  # type: ignore[attr-defined]
    assert math.isclose(factor**2, np.square(counts).sum(), rel_tol=1e-9)
    shared = np.broadcast_to(nothing.with_count, variance.shape)
    assert np.allclose(shared, (answers * counts[:, None]).sum(axis=0), rtol=1e-9, atol=1e-12)


@pytest.mark.few(2)
@pytest.mark.parametrize("key", ["threshold_sketch", "moment_tree", "distance_tree"])
@pytest.mark.parametrize("least_squares", [False, True])
def test_intervals_are_counted_with_the_stated_variance(key: str, least_squares: bool) -> None:
    if least_squares and key != "distance_tree":
        return
    params: dict[str, Any] = {"threshold_sketch": {"thresholds": 63}}.get(key, {"levels": 6})
    made = Made(UNEVEN, ROWS, key, **params, **({"consistent": True} if least_squares else {}))
    offer = made.claim.capabilities["interval_counts"]
    rng = np.random.default_rng(4)
    for column in range(2):
        low = rng.integers(-30, 70, 40).astype(np.float64)
        high = low + rng.integers(0, 90, 40)
        arrays = made.output.split(made.cells)  # type: ignore[attr-defined]
        found = offer.count(arrays, column, low, high)
        x = ROWS.values[:, column, None]
        assert np.allclose(found.values[0], ((x >= low) & (x <= high)).sum(axis=0))
        variance = np.zeros(40)
        for cell in range(made.cells.size):
            unit = made.output.split(np.eye(1, made.cells.size, cell, dtype=np.int64)[0])  # type: ignore[attr-defined]
            variance += np.square(offer.count(unit, column, low, high).values[0])
        assert np.allclose(found.variance, variance, rtol=1e-9)


def test_one_column_is_made_consistent_for_a_count_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all columns together each count costs as many times more as there are columns."""
    made = Made(UNEVEN, ROWS, "distance_tree", levels=6, consistent=True)
    offer = made.claim.capabilities["interval_counts"]
    noisy = np.random.default_rng(5).integers(-9, 99, made.cells.size)
    arrays = made.output.split(noisy)  # type: ignore[attr-defined]
    nodes = offer.nodes(arrays)
    asked: list[int] = []

    def seen(counts: NDArray[np.float64], height: int) -> NDArray[np.float64]:
        asked.append(counts.ndim)
        return consistent(counts, height)

    monkeypatch.setattr(distance_tree, "consistent", seen)
    for column in range(2):
        whole = np.array([-99.0]), np.array([999.0])
        assert offer.count(arrays, column, *whole).values[0, 0] == nodes[0, column, 0]
    assert asked == [2, 2]


@pytest.mark.parametrize("key", ["threshold_sketch", "moment_tree", "distance_tree"])
@pytest.mark.parametrize("pieces", [1, 3, 5])
def test_counts_inside_and_around_hold_the_true_count(key: str, pieces: int) -> None:
    """Without noise, at every place of both ends in halves of a step, also outside of the range."""
    params: dict[str, Any] = (
        {"thresholds": {1: 1, 3: 7, 5: 63}[pieces]}
        if key == "threshold_sketch"
        else {"levels": pieces}
    )
    made = Made(UNEVEN, ROWS, key, **params)
    offer = made.claim.capabilities["interval_counts"]
    arrays = made.output.split(made.cells)  # type: ignore[attr-defined]
    for column, places in ((0, np.arange(-12, 58, 0.5)), (1, np.arange(-3, 36, 0.5))):
        low, high = (v.ravel() for v in np.meshgrid(places, places))
        x = ROWS.values[:, column, None]
        true = ((x >= low) & (x <= high)).sum(axis=0)
        inner, outer = offer.around(arrays, column, low, high)
        assert (inner.values[0] <= true + 1e-9).all()
        assert (true <= outer.values[0] + 1e-9).all()
        for found in (inner, outer, offer.count(arrays, column, low, high)):
            assert found.variance.max() <= offer.widest(column) * (1 + 1e-9)
        if key == "threshold_sketch" and pieces == 5:  # a threshold at every value
            assert np.allclose(inner.values, outer.values)
        inside = (low <= places[0]) & (high >= places[-1])
        assert np.allclose(inner.values[:, inside], len(ROWS))


# --- the closed forms of the proofs ---------------------------------------------------------------


@pytest.mark.parametrize("upper", [(64,), (64, 64, 64, 64), (64, 128, 512, 1024)])
@pytest.mark.parametrize("thresholds", [64, 1024])
def test_threshold_noise_is_the_price_of_one_query(upper: Any, thresholds: int) -> None:
    """Within 1 %: sum of ranges / sqrt(2 rho), for every number of thresholds and columns."""
    domain = GridRows(width=len(upper), unit=UNIT, lower=(0,) * len(upper), upper=upper)
    made = Made(domain, some_rows(domain, 3), "threshold_sketch", thresholds=thresholds)
    spread = made.claim.capabilities["distance_sums"].spread(1.0, 0.1)
    closed = sum(upper) * UNIT / math.sqrt(2 * 0.5)
    assert math.isclose(made.scale(rho=0.5) * spread, closed, rel_tol=0.01)


# --- the pieces -----------------------------------------------------------------------------------


@given(
    st.integers(1, 400),
    st.lists(
        st.lists(st.integers(-(2**24), 2**24), min_size=3, max_size=3), min_size=1, max_size=6
    ),
)
def test_shortened_rows_are_within_the_radius(radius: int, values: Any) -> None:
    rows = np.array(values, dtype=np.float64)
    found = shorten_to_radius(rows, radius)
    exact = [sum(int(v) ** 2 for v in row) for row in found]
    assert max(exact) <= radius**2
    for before, after in zip(rows, found, strict=True):
        if sum(int(v) ** 2 for v in before) <= radius**2:
            assert np.array_equal(before, after)
        alone = shorten_to_radius(before[None], radius)[0]
        assert alone.tobytes() == after.tobytes()


def test_class_sums_are_the_integer_sums() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-(2**24), 2**24, (500, 7)).astype(np.float64)
    labels = rng.integers(0, 4, 500)
    sums = ClassSums(5, 7, 64)
    for start in range(0, 500, 64):
        sums.add(values[start : start + 64], labels[start : start + 64])
    found = sums.totals
    for label in range(5):
        assert found[label].tolist() == [
            sum(int(v) for v in values[labels == label, column]) for column in range(7)
        ]
    whole = ClassSums(1, 7, 100)
    whole.add(values, None)
    assert np.array_equal(whole.totals[0], found.sum(axis=0))


def test_moments_about_the_middle_of_the_box_are_exact_and_cheaper() -> None:
    """A box of positive values: a quarter of the squared bound, the same distances, the same means."""
    d = 7
    domain = GridRows(width=d, labels=("a", "b"), unit=UNIT, lower=(0,), upper=(40,))
    rng = np.random.default_rng(2)
    data = Rows(rng.integers(0, 41, (90, d)).astype(float), rng.integers(0, 2, 90))
    claim = lookup("moments_sketch")(per_label=True).bind(domain, Symmetric())
    reader = claim.capabilities["distance_sums"]
    assert reader.centre.tolist() == [20.0] * d
    assert reader.bound_squared == d * 20**2 == d * 40**2 // 4
    cells = np.zeros(claim.output.size, dtype=np.int64)
    claim.accumulate(data, cells)
    arrays = claim.output.split(cells)
    queries = rng.integers(-9, 60, (12, d)).astype(float)
    found = reader.reading(arrays, None, 0.1).at(Rows(queries)).values
    for label in (0, 1):
        own = data.values[data.labels == label]
        exact = np.square(own[None] - queries[:, None]).sum(axis=(1, 2)) * UNIT**2
        assert found[label] == pytest.approx(exact, rel=1e-12)
    sums = reader.class_sums(arrays, 0.0)
    means = sums.centre + sums.sums / sums.counts[:, None]
    for label in (0, 1):
        assert means[label] == pytest.approx(data.values[data.labels == label].mean(axis=0))
    # Sums alone are moved after the pass over the rows; rows far from zero before it.
    plain = lookup("moments_sketch")(per_label=True, squares=False).bind(domain, Symmetric())
    short = np.zeros(plain.output.size, dtype=np.int64)
    plain.accumulate(data, short)
    again = plain.capabilities["class_means"].class_sums(plain.output.split(short), 0.0)
    assert np.array_equal(again.sums, sums.sums)
    far = 2**40
    wide = GridRows(width=d, labels=("a", "b"), unit=UNIT, lower=(far,), upper=(far + 40,))
    moved = lookup("moments_sketch")(per_label=True, squares=False).bind(wide, Symmetric())
    cells = np.zeros(moved.output.size, dtype=np.int64)
    moved.accumulate(Rows(data.values + far, data.labels), cells)
    assert np.array_equal(cells, short)


@given(st.data())
def test_no_row_is_farther_from_the_centre_than_the_bound(data: st.DataObject) -> None:
    """Whatever the box and the norm bound: members of the type stay within B, and the sensitivity holds."""
    ends = [
        sorted((data.draw(st.integers(-60, 60)), data.draw(st.integers(-60, 60)))) for _ in "ab"
    ]
    l2 = data.draw(st.sampled_from([None, 5, 30, 90]))
    domain = GridRows(
        width=2, lower=tuple(a for a, _ in ends), upper=tuple(b for _, b in ends), l2=l2
    )
    radius = data.draw(st.sampled_from([None, 3.0, 20.0]))
    row = [data.draw(st.sampled_from([a, b, (a + b) // 2, max(a, min(b, 0))])) for a, b in ends]
    if l2 is not None and sum(v * v for v in row) > l2**2:
        return
    claim = lookup("moments_sketch")(radius=radius).bind(domain, Symmetric())
    cells = np.zeros(claim.output.size, dtype=np.int64)
    claim.accumulate(Rows(np.array([row], dtype=float)), cells)
    sensitivity = claim.sensitivity
    assert sum(int(v) ** 2 for v in cells) <= sensitivity.l2_squared
    assert int(np.abs(cells).sum()) <= sensitivity.l1
    assert int(np.abs(cells).max()) <= sensitivity.linf
    reader = claim.capabilities["distance_sums"]
    plain = domain.l2 is None and radius is None
    if plain and all(v in end for v, end in zip(row, ends, strict=True)):  # a corner
        assert reader.bound_squared >= sum(
            (v - c) ** 2 for v, c in zip(row, reader.centre, strict=True)
        )


GRID = GridRows(width=3, unit=0.5, lower=(0, -3, 5), upper=(12, 4, 5))


def axes_of(height):
    pairs = zip(GRID.lower, GRID.upper, strict=True)
    return [Dyadic(low, top - low + 1, height) for low, top in pairs]


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("height", [1, 3, 6])
def test_no_record_s_distance_is_farther_off_than_is_said(power, height):
    cells = NearestCells(GRID, height)
    asked = np.random.default_rng(1).integers([-2, -6, 5], [15, 9, 6], (40, 3)).astype(np.float64)
    places, beyond, missed = cells.located(asked, power)
    assert ((beyond == 0) | (power == 1)).all()
    record = np.array([7, -1, 5])
    leaves = [
        axis.leaves(np.array([x]))[0] for axis, x in zip(axes_of(height), record, strict=True)
    ]
    own = np.where(cells.counts == cells.spans, record - np.array(GRID.lower), leaves)
    said = ((np.abs(places - own[:, None]) ** power) * cells.powers(power)[:, None]).sum(axis=0)
    truth = ((GRID.unit * np.abs(asked - record)) ** power).sum(axis=1)
    assert (np.abs(said + beyond - truth) <= missed + 1e-9).all()


def test_a_height_that_tells_all_values_apart_loses_nothing():
    cells = NearestCells(GRID, 4)
    inside = np.array([[0.0, 4.0, 5.0], [12.0, -3.0, 5.0]])
    places, beyond, missed = cells.located(inside, 2.0)
    assert places.T.tolist() == [[0, 7, 0], [12, 0, 0]]
    assert not beyond.any()
    assert not missed.any()
    assert cells.most_lost(2.0) == 0.0
