"""The exact kernel against Python's integers: at the bound, at ties, whatever the batch; and refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given, strategies as st

from opendp_sim.core.arithmetic.grid import (
    PhaseProjection,
    UniversalHash,
    chunks,
    count_ids,
    room_for,
)
from opendp_sim.core.errors import SpaceError
from opendp_sim.transformations.row_maps.jl_projection import signed_hadamard


def exact_ids(projection: PhaseProjection, values: np.ndarray) -> np.ndarray:
    """Floor plus base in rational numbers."""
    out = []
    for row, base in zip(projection.folded, projection.base, strict=True):
        a = [Fraction(float(v)) for v in row]
        out.append(
            [
                floor(sum((int(x) * c for x, c in zip(point, a[:-1], strict=True)), a[-1]))
                + int(base)
                for point in values
            ]
        )
    return np.array(out, dtype=np.int64).reshape(len(projection.folded), len(values))


def test_ids_are_the_floor_in_rational_arithmetic() -> None:
    generator = np.random.default_rng(1)
    for magnitude, scale in ((1, 0.3), (2048, 0.01), (2**20, 3.0), (2**23, 40.0)):
        matrix = generator.standard_cauchy((7, 5)) * scale
        projection = PhaseProjection.fit(matrix, generator.random(5), magnitude, "test")
        values = generator.integers(-magnitude, magnitude + 1, size=(40, 7)).astype(float)
        values[0], values[1] = magnitude, -magnitude
        assert np.array_equal(projection.ids(values), exact_ids(projection, values))


def test_ids_at_ties_and_on_integers() -> None:
    # Phases that are whole, a half, one step below and above: the floor must not be off by one.
    projection = PhaseProjection.fit(np.full((1, 1), 0.25), np.zeros(1), 64, "test")
    values = np.arange(-64, 65, dtype=float)[:, None]
    ids = projection.ids(values)[0]
    assert np.array_equal(ids - projection.base[0], np.floor_divide(np.arange(-64, 65), 4))


@pytest.mark.parametrize("width", [3, 500])
def test_base_covers_the_rounded_matrix_at_its_corners(width: int) -> None:
    # Coarse steps: the rounded matrix reaches farther than the real one, by more than any fixed slack.
    generator = np.random.default_rng(width)
    matrix = generator.standard_cauchy((width, 6)) * (100 / width)
    projection = PhaseProjection.fit(matrix, generator.random(6), 2**23, "test")
    corners = np.sign(projection.folded[:, :-1]) * 2.0**23
    for values in (corners, -corners):
        ids = projection.ids(values)
        assert np.array_equal(ids, exact_ids(projection, values))
        assert (ids >= 0).all()
        assert (ids < 2 * projection.base[:, None]).all()


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 30))
def test_ids_do_not_depend_on_the_batch(seed: int, width: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    projection = PhaseProjection.fit(
        generator.normal(size=(width, 4)), generator.random(4), 4096, "test"
    )
    values = generator.integers(-4096, 4097, size=(count, width)).astype(float)
    whole = projection.ids(values)
    alone = np.concatenate([projection.ids(values[i : i + 1]) for i in range(count)], axis=1)
    assert np.array_equal(alone, whole)
    assert np.array_equal(projection.ids(values[::-1]), whole[:, ::-1])
    assert np.array_equal(projection.ids(np.asfortranarray(values)), whole)
    with ThreadPoolExecutor(2) as pool:
        assert all(np.array_equal(ids, whole) for ids in pool.map(projection.ids, [values] * 4))


def test_a_float_product_would_not_be_local() -> None:
    # Why the grid exists: if this ever fails, BLAS became deterministic and nothing is lost.
    generator = np.random.default_rng(0)
    values, matrix = generator.normal(size=(1001, 64)), generator.normal(size=(64, 100))
    grid = np.rint(values * 1024)
    assert np.array_equal((grid @ np.rint(matrix * 1024))[:-1], grid[:-1] @ np.rint(matrix * 1024))
    rounded = np.rint(matrix * 2.0**30) / 2.0**30
    projection = PhaseProjection.fit(matrix, np.zeros(100), 8192, "test")
    assert np.array_equal(projection.ids(grid)[:, :-1], projection.ids(grid[:-1]))
    assert rounded.shape == matrix.shape


def test_too_fine_a_grid_is_refused_with_a_hint() -> None:
    with pytest.raises(SpaceError) as refused:
        PhaseProjection.fit(np.full((100, 1), 1e9), np.zeros(1), 2**23, "here")
    assert (refused.value.code, refused.value.where) == ("OS203", "here")
    assert "fewer bits" in refused.value.hint


def test_fit_accepts_up_to_the_bound_and_not_beyond() -> None:
    # 8 exact bits remain just below reach = 2**42, and 7 just above.
    fine = PhaseProjection.fit(np.full((1, 1), 2.0**41), np.zeros(1), 1, "test")
    assert int(fine.bits[0]) >= 8
    values = np.array([[1.0], [-1.0], [0.0]])
    assert np.array_equal(fine.ids(values), exact_ids(fine, values))
    with pytest.raises(SpaceError):
        PhaseProjection.fit(np.full((1, 1), 2.0**42), np.zeros(1), 1, "test")


def test_rounding_up_cannot_pass_the_bound_unseen() -> None:
    # Every entry is 0.58 steps and rounds to a whole one: 0.99 * 2**50 asked for, 1.7 * 2**50 there.
    magnitude = int(1.7 * 2**48)
    with pytest.raises(SpaceError) as refused:
        PhaseProjection.fit(np.full((4, 1), 0.58 * 2.0**-20), np.zeros(1), magnitude, "test")
    assert refused.value.code == "OS203"
    assert "steps" in refused.value.expected


def test_universal_hash_is_the_integer_formula() -> None:
    generator = np.random.default_rng(3)
    hashing = UniversalHash.draw(generator, 3, 2, 1000)
    ids = generator.integers(0, 2**40, size=(3, 2, 50))
    expected = [
        [
            (
                (
                    (
                        (int(a[0]) * (int(t[0]) % 2**32) + int(a[1]) * (int(t[1]) % 2**32) + int(b))
                        % 2**64
                    )
                    >> 32
                )
                * 1000
            )
            >> 32
            for t in tuples.T
        ]
        for a, b, tuples in zip(hashing.multipliers, hashing.addends, ids, strict=True)
    ]
    assert np.array_equal(hashing(ids.copy()), expected)


def test_universal_hash_collides_as_often_as_it_says() -> None:
    # 200,000 functions, two fixed tuples: the count is Binomial(200000, 1/W); six deviations either
    # way have probability below 3e-9 a width.
    generator = np.random.default_rng(4)
    for buckets, other in ((2, 1), (7, 12345), (64, 2**31)):
        hashing = UniversalHash.draw(generator, 200_000, 1, buckets)
        pair = np.broadcast_to(np.array([0, other]), (200_000, 1, 2)).copy()
        left, right = hashing(pair).T
        met, mean = int((left == right).sum()), 200_000 / buckets
        assert abs(met - mean) < 6 * (mean * (1 - 1 / buckets)) ** 0.5


@pytest.mark.parametrize("modulus", [2**51, 8])
@pytest.mark.parametrize(("columns", "classes"), [(1, 1), (7, 2), (300, 3)])
def test_grouped_counts_are_those_of_one_column_after_another(
    columns: int, classes: int, modulus: int
) -> None:
    generator = np.random.default_rng(columns)
    projection = PhaseProjection.fit(
        generator.normal(size=(3, columns)) * 0.05, generator.random(columns), 100, "test"
    )
    values = generator.integers(-100, 101, size=(50, 3)).astype(float)
    labels = generator.integers(0, classes, size=50).astype(np.int8)
    width = min(modulus, int(2 * projection.base.max()))
    ids = projection.ids(values, modulus=modulus)
    plain = np.stack(
        [np.bincount(labels.astype(int) * width + c, minlength=classes * width) for c in ids]
    )
    straight, counted = (np.zeros((columns, classes, width), dtype=np.int64) for _ in range(2))
    room, matrix = room_for(50, 3, columns), projection.workspace()
    projection.count(values, labels, straight, matrix=matrix, room=room, modulus=modulus)
    count_ids(ids, labels, counted)
    for found in (straight, counted):
        assert np.array_equal(found.reshape(columns, -1), plain)


def test_starts_are_added_to_ids() -> None:
    generator = np.random.default_rng(5)
    projection = PhaseProjection.fit(generator.normal(size=(3, 9)), generator.random(9), 99, "test")
    values = generator.integers(-99, 100, size=(50, 3)).astype(float)
    far = np.full(9, 2**49)
    assert np.array_equal(projection.ids(values, starts=far) - 2**49, projection.ids(values))


def test_signs_are_those_of_the_floors() -> None:
    """On zero, a step beside it, and at the bound."""
    generator = np.random.default_rng(6)
    matrix = np.concatenate([generator.normal(size=(2, 9)), np.ones((2, 2)), -np.ones((2, 2))], 1)
    for scale, magnitude in ((1.0, 4), (2.0**-30, 2**12), (1 / 3, 2**20)):
        offset = generator.choice([0.0, 2.0**-44, -(2.0**-44), -0.5], size=matrix.shape[1])
        projection = PhaseProjection.fit(matrix * scale, offset, magnitude, "test")
        near = [[0, 0], [1, -1], [0, 1], [-1, 0], [magnitude, -magnitude], [-magnitude] * 2]
        values = np.array(near, dtype=float)
        room = room_for(len(values), 2, projection.columns)
        ids = projection.ids(values)
        signs = projection.signs(values, projection.workspace(), room)
        assert np.array_equal(signs, ids >= projection.base[:, None])
        assert signs.any()
        assert not signs.all()


def test_chunks_cover_all_rows_once() -> None:
    for rows, columns in ((0, 5), (1, 1), (100_000, 7), (1000, 10**7)):
        parts = list(chunks(rows, columns))
        assert [i for part in parts for i in range(part.start, part.stop)] == list(range(rows))


@given(st.integers(0, 2**32), st.integers(1, 17), st.integers(1, 8))
def test_hadamard_is_the_sign_matrix(seed: int, width: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    full = 1 << (width - 1).bit_length()
    signs = (2 * generator.integers(0, 2, size=width) - 1).astype(np.int8)
    places = generator.permutation(full)[: max(1, full // 2)]
    values = generator.integers(-(2**40), 2**40, size=(count, width))
    matrix = np.array(
        [[(-1) ** (i & j).bit_count() * int(signs[j]) for j in range(width)] for i in range(full)]
    )
    assert np.array_equal(
        signed_hadamard(values.astype(float), signs, places), values @ matrix[places].T
    )
