"""Slices: the bound holds and is nearly reached, the cells and answers are the formulas', and no interval lies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.arithmetic import compiled as fast
from opendp_sim.core.arithmetic.directions import length_of_normal, orthogonal_blocks
from opendp_sim.core.errors import DataError, ParameterError, ReleaseError, SpaceError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.randomness import public_generator
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.transformations.sketches.distances import slice_sketch as module
from tests._tiers import several
from tests.transformations.sketches.distances._distance_tools import Made

GAUSS, LONG = "discrete_gaussian", pytest.mark.long
BALL = GridRows(width=5, unit=0.01, lower=(-100,), upper=(100,), l2=100)
BOX = GridRows(width=3, labels=("a", "b", "c"), unit=0.25, lower=(-9, 0, 4), upper=(54, 31, 40))
WIDE = GridRows(width=40, unit=0.5, lower=(0,), upper=(255,))
SHORT = GridRows(width=2, lower=(0, -1), upper=(1, 1))
POINT = GridRows(width=3, lower=(7,), upper=(7,))
DOMAINS = {"ball": BALL, "box": BOX, "wide": WIDE, "short": SHORT, "point": POINT}


def bound(domain: GridRows, **params: Any) -> Any:
    return lookup("slice_sketch")(**{"seed": 1, **params}).bind(domain, Symmetric())


def cells_of(claim: Any, rows: Rows) -> np.ndarray:
    out = np.zeros(claim.output.size, dtype=np.int64)
    claim.accumulate(rows, out)
    return out


def members(domain: GridRows, count: int, seed: int) -> np.ndarray:
    """Rows of a type: corners, random ones, and the longest that a ball allows."""
    rng = np.random.default_rng(seed)
    low, high = (np.array(np.broadcast_to(v, domain.width)) for v in (domain.lower, domain.upper))
    rows = rng.integers(low, high + 1, (count, domain.width))
    corners = np.where(rng.random((count, domain.width)) < 0.5, low, high)
    rows = np.concatenate([rows, corners]).astype(np.float64)
    if domain.l2 is not None:
        far = rng.normal(size=rows.shape)
        far *= (domain.l2 / np.linalg.norm(far, axis=1))[:, None]
        rows = np.clip(np.trunc(np.concatenate([rows, far])), low, high) + 0.0
        rows = rows[np.square(rows).sum(axis=1) <= domain.l2**2]
    return rows


# --- the bound ------------------------------------------------------------------------------------


@given(
    st.sampled_from(list(DOMAINS)),
    st.integers(1, 90),
    st.sampled_from([2, 4, 10, 64]),
    st.integers(0, 50),
)
def test_no_member_is_above_the_bounds(
    name: str, directions: int, thresholds: int, seed: int
) -> None:
    """All three norms of all three blocks, one record at a time."""
    domain = DOMAINS[name]
    claim = bound(domain, directions=directions, thresholds=thresholds, seed=seed)
    for row in members(domain, 3, seed):
        labels = np.array([2]) if domain.labels else None
        parts = claim.output.split(cells_of(claim, Rows(row[None], labels)))
        for block in claim.output.blocks:
            own = np.abs(parts[block.name]).ravel()
            assert int(own.sum()) <= block.l1
            assert sum(int(v) ** 2 for v in own) <= block.l2_squared
            assert int(own.max()) <= block.linf


def climbed(domain: GridRows, slices: Any, rounds: int) -> tuple[np.ndarray, float]:
    """The longest row that an ascent finds among the members of a ball, and its squared length."""
    rng, best, top = np.random.default_rng(3), 0.0, np.zeros(domain.width)
    axes = slices.projection.folded[:60, :-1]
    rows = np.concatenate([rng.normal(size=(60, domain.width)), axes])
    for step in range(rounds):
        rows *= domain.l2 / np.linalg.norm(rows, axis=1, keepdims=True)
        rows = np.trunc(rows) + 0.0
        levels = np.clip(np.floor(slices.projection.phases(rows)), 0, slices.thresholds)
        values = slices.squares[levels.astype(int)].sum(axis=0)
        if values.max() > best:
            best, top = float(values.max()), rows[values.argmax()]
        wide = 0.3 if step % 2 else 0.05
        rows = top + rng.normal(size=rows.shape) * domain.l2 * wide / math.sqrt(domain.width)
    return top, best


@pytest.mark.parametrize(
    ("width", "directions", "share"),
    [
        (1, 8, 0.99),
        (2, 64, 0.9),
        (16, 256, 0.88),
        pytest.param(64, 1024, 0.88, marks=LONG),
        pytest.param(300, 600, 0.88, marks=LONG),
    ],
)
def test_rows_reach_the_stated_share_of_the_bound(
    width: int, directions: int, share: float
) -> None:
    """Of the squared length, and with it of the squared sensitivity; and none is above."""
    domain = GridRows(width=width, lower=(-4000,), upper=(4000,), l2=4000)
    claim = bound(domain, directions=directions)
    slices = claim.capabilities["distance_sums"].slices
    row, best = climbed(domain, slices, 40)
    assert share * slices.longest < best <= slices.longest
    domain.check(Rows(row[None]))
    cells = cells_of(claim, Rows(row[None]))
    whole = sum(int(v) ** 2 for v in cells)
    assert 0.88 * claim.sensitivity.l2_squared < whole <= claim.sensitivity.l2_squared
    least = claim.capabilities["distance_sums"].half
    centre = cells_of(claim, Rows(np.zeros((1, width))))
    assert -least <= centre[-1] < -0.9 * least  # the other end: a row in the middle


def test_directions_that_are_not_orthonormal_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound rests on them: it is checked on the numbers that are used."""
    real = module.orthogonal_blocks

    def longer(*args: Any) -> np.ndarray:
        made = real(*args)
        made[:, 3] = made[:, 2] + 0.01 * made[:, 3]
        return made

    monkeypatch.setattr(module, "orthogonal_blocks", longer)
    with pytest.raises(ParameterError, match=r"OS102 slice_sketch\.seed"):
        bound(WIDE, directions=40)


# --- building -------------------------------------------------------------------------------------


def imitated(domain: GridRows, directions: int, thresholds: int, seed: int, rows: np.ndarray):
    """Levels and features in plain numpy, from the lemma alone: directions are not rounded here."""
    d = domain.width
    low, high = (np.array(np.broadcast_to(v, d)) for v in (domain.lower, domain.upper))
    middle = (low + high) // 2
    centre = middle if domain.l2 is None else np.zeros(d)
    reach = np.maximum(high - centre, centre - low)
    norm = math.sqrt(np.square(reach).sum()) if domain.l2 is None else domain.l2
    k, m = directions // d * d, length_of_normal(d)
    scale = thresholds / (2 * min(4, m) * norm)
    made = orthogonal_blocks(public_generator(seed, "slice_sketch", "directions"), d, k)
    dithers = public_generator(seed, "slice_sketch", "dithers").integers(0, 2**16, k) / 2**16
    places = (rows - centre) @ made * m * scale + dithers + thresholds / 2
    return np.clip(np.floor(places), 0, thresholds), math.sqrt(
        math.pi / 2
    ) * domain.unit / scale / k


@pytest.mark.parametrize("name", ["ball", "wide"])
def test_cells_and_answers_are_those_of_the_lemma(name: str) -> None:
    """No noise: phi is the indicators less the shares, and a sum is that of differences of levels."""
    domain, k, t = DOMAINS[name], 120, 32
    rows = members(domain, 60, 5)
    claim = bound(domain, directions=k, thresholds=t, seed=9)
    reader = claim.capabilities["distance_sums"]
    slices, (u0, u1) = reader.slices, reader.multipliers
    levels, unit = imitated(domain, k, t, 9, rows)
    parts = claim.output.split(cells_of(claim, Rows(rows)))
    phi = slices.fine * (levels[:, :, None] > np.arange(t)) - slices.shares
    assert np.array_equal(parts["slices"][0], u1 * phi.sum(axis=0))
    assert parts["total"][0] == u0 * len(rows)
    assert parts["squares"][0] == np.square(phi).sum() - len(rows) * reader.middle
    queries = members(domain, 12, 6)
    asked = imitated(domain, k, t, 9, queries)[0]
    exact = unit * np.abs(levels[None] - asked[:, None]).sum(axis=(1, 2))
    found = reader.reading(parts, None, 0.1).at(Rows(queries))
    assert found.values[0] == pytest.approx(exact, rel=1e-11)
    own = np.square(slices.fine * (asked[:, :, None] > np.arange(t)) - slices.shares)
    own = own.sum(axis=(1, 2))
    factor = unit / slices.fine**2
    with_count = (reader.middle + own) / u0
    assert found.variance == pytest.approx(factor**2 * (with_count**2 + 4 * own / u1**2 + 1))
    assert found.with_count == pytest.approx(factor * with_count / u0)


@pytest.mark.few(1)
@pytest.mark.parametrize("per_label", [False, True])
def test_bits_do_not_depend_on_layout_batches_or_the_compiled_loop(
    per_label: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.concatenate([members(BOX, 700, s) for s in range(2)])
    labels = np.random.default_rng(1).integers(0, 3, len(values))
    claim = bound(BOX, directions=300, thresholds=16, per_label=per_label)
    whole = cells_of(claim, Rows(values, labels))
    turned = np.asfortranarray(values[::-1])
    assert np.array_equal(cells_of(claim, Rows(turned, labels[::-1])), whole)
    narrow = Rows(values, labels.astype(np.int8))
    assert np.array_equal(cells_of(claim, narrow), whole)
    parts = np.zeros_like(whole)
    for start in range(0, len(values), 37):
        own = slice(start, start + 37)
        claim.accumulate(Rows(values[own], labels[own]), parts)
    assert np.array_equal(parts, whole)
    again = bound(BOX, directions=300, thresholds=16, per_label=per_label)
    monkeypatch.setattr("opendp_sim.transformations.sketches.distances.slice_sketch._TOGETHER", 7)
    assert np.array_equal(cells_of(again, Rows(values, labels)), whole)
    pytest.importorskip("numba")
    for name, value in {"_done": 2**60, "_tried": False, "_made": None}.items():
        monkeypatch.setattr(fast.COUNTED, name, value)
    assert np.array_equal(cells_of(claim, Rows(values, labels)), whole)
    assert fast.COUNTED._made is not None


def test_no_records_are_no_cells_and_an_answer() -> None:
    for per_label in (False, True):
        none = Rows(np.zeros((0, 3)), np.zeros(0, dtype=np.int64))
        made = Made(BOX, none, "slice_sketch", directions=60, seed=1, per_label=per_label)
        assert not made.cells.any()
        for mean in (False, True):
            answer = made.ask(members(BOX, 5, 1), GAUSS, made.scale(rho=0.5), mean=mean)
            assert np.isfinite(answer["distance"]).all()
            assert (np.abs(answer["distance"]) < 8 * answer["noise_error"]).all() or mean


def test_a_row_outside_the_ball_is_no_member() -> None:
    """The type refuses it; the sensitivity of a box without a norm bound is that of its corners."""
    long = Rows(np.array([[100.0, 1.0, 0, 0, 0]]))
    with pytest.raises(DataError, match="OS605"):
        BALL.check(long)
    box = GridRows(width=5, unit=0.01, lower=(-100,), upper=(100,))
    box.check(long)
    claim = bound(box, directions=50)
    for row in np.array(np.meshgrid(*[[-100.0, 100.0]] * 5)).reshape(5, -1).T:
        whole = sum(int(v) ** 2 for v in cells_of(claim, Rows(row[None])))
        assert 0.75 * claim.sensitivity.l2_squared < whole <= claim.sensitivity.l2_squared


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("width", "directions"), [(2, 64), (16, 128), pytest.param(40, 200, marks=LONG)]
)
def test_the_scatter_over_seeds_is_the_lemmas(width: int, directions: int) -> None:
    """Records in one point, fixed seeds: unbiased near and far, deviation at most the stated and near it."""
    domain = GridRows(width=width, lower=(-500,), upper=(500,))
    rows = np.zeros((1, width))
    level = math.sqrt(width) * 500 / 16
    rng = np.random.default_rng(0)
    ahead = rng.normal(size=width)
    ahead /= np.linalg.norm(ahead)
    queries = np.rint(ahead * np.array([[0.3], [2.0], [12.0]]) * level)
    exact = np.linalg.norm(queries, axis=1)
    found = []
    for seed in range(80):
        made = Made(domain, Rows(rows), "slice_sketch", directions=directions, seed=seed)
        found.append(made.ask(queries)["distance"][:, 0])
    own = made.claim.capabilities["distance_sums"].sliced
    stated = np.hypot(own.relative * exact, own.by_record)
    error = np.array(found) - exact
    assert (np.abs(error.mean(axis=0)) < 4.5 * stated / math.sqrt(80)).all()
    spread = np.sqrt(np.square(error).mean(axis=0))
    assert (spread < 1.25 * stated).all()
    assert spread[2] > 0.7 * stated[2]


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["one point", "beside the query", "a cloud"])
@pytest.mark.parametrize("directions", [3, *(pytest.param(n, marks=LONG) for n in (30, 600))])
@pytest.mark.parametrize("mean", [False, True])
def test_intervals_cover(kind: str, directions: int, mean: bool) -> None:
    """Fixed seeds of the directions, fresh noise: .95 of 60 draws at the worst query.

    A right interval of .95 fails 12 or more times of 60 at one of 3 queries with chance below 1e-4; these
    cover .98 and more, for which it is below 1e-8.
    """
    domain = GridRows(width=3, unit=0.1, lower=(-200,), upper=(200,))
    rng = np.random.default_rng(4)
    rows = {
        "one point": np.full((400, 3), 77.0),
        "beside the query": np.full((400, 3), 3.0),
        "a cloud": rng.integers(-200, 201, (400, 3)).astype(float),
    }[kind]
    queries = np.array([[0.0, 0, 0], [-150, 20, 4], [400, 400, -300]])
    exact = np.linalg.norm(rows[None] - queries[:, None], axis=2).sum(axis=1) * 0.1
    exact = exact / 400 if mean else exact
    held = np.zeros(3)
    for seed in range(60):
        made = Made(domain, Rows(rows), "slice_sketch", directions=directions, seed=seed)
        found = made.ask(queries, GAUSS, made.scale(rho=2.0), mean=mean)
        held += (found["lower"][:, 0] <= exact) & (exact <= found["upper"][:, 0])
    assert held.min() >= 49


@pytest.mark.long
@pytest.mark.parametrize(
    ("directions", "confidence"), several([(3, 0.95), (8, 0.95), (3, 0.5), (8, 0.8)], 3)
)
def test_few_directions_cover_where_dithers_decide(directions: int, confidence: float) -> None:
    """Without noise: all records in one place, so that an error is a mean of a few dithers.

    Fixed seeds. It held .904, .920, .707 and .379 of these before half a step was added.
    """
    line = GridRows(width=1, lower=(0,), upper=(10000,))
    queries = 5000 + 78.125 * np.array([[0.2], [0.3], [0.43], [0.5], [1.43]])
    exact, held = 400 * np.abs(queries[:, 0] - 5000), np.zeros(5)
    for seed in range(200):
        made = Made(
            line, Rows(np.full((400, 1), 5000.0)), "slice_sketch", directions=directions, seed=seed
        )
        found = made.ask(queries, confidence=confidence)
        held += (found["lower"][:, 0] <= exact) & (exact <= found["upper"][:, 0])
    assert held.min() >= 200 * confidence


def test_noise_is_the_stated_one_and_the_same_for_every_number_of_directions() -> None:
    """About 3.1 B / sqrt(2 rho) at the bound and 2.1 in the middle, a third to a fifth of the embedding's 10."""
    edge = np.array([[100.0, 0, 0, 0, 0], [0.0, 0, 0, 0, 0]])
    for directions in (500, 50):
        made = Made(
            BALL, Rows(np.zeros((1, 5))), "slice_sketch", directions=directions, seed=directions
        )
        found = made.ask(edge, GAUSS, made.scale(rho=0.5))["noise_error"][:, 0]
        assert found[0] == pytest.approx(2.9, rel=0.06)
        assert found[1] == pytest.approx(1.95, rel=0.06)
        spread = made.claim.capabilities["distance_sums"].spread(None, 0.1)
        assert found[0] <= spread * made.scale(rho=0.5) * (1 + 1e-9)
    scale = made.scale(rho=0.5)
    errors = [made.ask(edge, GAUSS, scale)["distance"][:, 0] for _ in range(300)]
    # 300 releases: a relative standard error of 4.1 %; 25 % is 6 of them.
    assert np.std(errors, axis=0) == pytest.approx(found, rel=0.25)


def test_classes_are_told_apart_by_mean_distances() -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 3, 600)
    places = np.array([[-5, 5, 10], [20, 25, 35], [50, 5, 10]])[labels]
    rows = np.clip(np.rint(places + rng.normal(0, 3, (600, 3))), BOX.lower, BOX.upper)
    made = Made(BOX, Rows(rows, labels), "slice_sketch", directions=300, seed=2, per_label=True)
    found = made.ask(
        rows[:100], GAUSS, made.scale(rho=1.0), key="nearest_class", rule="mean_distance"
    )
    assert (found["label"] == labels[:100]).mean() > 0.95


# --- refusals and advice --------------------------------------------------------------------------


def test_what_it_cannot_do_is_refused() -> None:
    made = Made(BALL, Rows(np.zeros((1, 5))), "slice_sketch", directions=5, seed=0)
    with pytest.raises(ReleaseError, match=r"OS702 distance\.p"):
        made.ask(np.zeros((1, 5)), p=1.0)
    with pytest.raises(ParameterError, match=r"OS102 slice_sketch\.thresholds"):
        bound(BALL, thresholds=7)
    with pytest.raises(SpaceError, match="OS204"):
        bound(BALL, per_label=True)
    with pytest.raises(SpaceError, match="OS203"):
        bound(GridRows(width=9, lower=(-(2**45),), upper=(2**45,)))
    with pytest.raises(ParameterError, match="OS103"):
        bound(GridRows(width=10**6, lower=(0,), upper=(1,)), directions=65536)


def test_every_size_that_is_allowed_stays_within_a_cell() -> None:
    """The features of the most directions and thresholds: below 2**32, and large ones are drawn later."""
    for width, directions, thresholds in ((16, 65536, 1024), (5000, 65536, 128), (1, 1, 2)):
        domain = GridRows(width=width, lower=(0,), upper=(255,))
        claim = bound(domain, directions=directions, thresholds=thresholds)
        assert max(block.linf for block in claim.output.blocks) < 2**32
    assert bound(WIDE, directions=99).output.shapes["slices"] == (1, 80, 128)
    assert bound(WIDE, directions=39).output.shapes["slices"] == (1, 39, 128)


def test_advice_names_what_is_better() -> None:
    (one,) = bound(GridRows(width=1, lower=(0,), upper=(9,))).advice
    assert "threshold_sketch" in one
    (few,) = bound(WIDE, directions=39).advice
    assert "raise `directions`" in few
    assert not bound(WIDE).advice
    embedded = lookup("l1_embedding")(directions=64, seed=1).bind(BALL, Symmetric()).output
    assert "embedding" in bound(embedded).advice[0]
