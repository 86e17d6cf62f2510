"""Row maps: adversarial rows for each lemma, bit for bit whatever the batch, layout or thread."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from opendp_sim.core.errors import DataError, InternalError, ParameterError, SimError, SpaceError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve, stability
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import GridRows, RealRows, Rows, take
from opendp_sim.io.fold import build_sketch
from opendp_sim.transformations.row_maps.bound_contributions import (
    Ranks,
    content_digests,
    least_of_each,
)
from opendp_sim.transformations.row_maps.jl_projection import JlProjection
from tests._tiers import some

FINITE = st.floats(allow_nan=False, allow_infinity=False)
NASTY = st.sampled_from(
    [0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1e-160, 1.0, -1.0, 1e160, 1.7e308, -1.7e308, 0.1, 1 / 3]
)


def images(function: Any, values: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in np.ascontiguousarray(function(Rows(values)).values)]


def assert_local(function: Any, values: np.ndarray) -> None:
    """Every row's image alone is its image in any company, order and layout."""
    whole = images(function, values)
    assert [images(function, values[i : i + 1])[0] for i in range(len(values))] == whole
    assert images(function, values[::-1]) == whole[::-1]
    assert images(function, np.asfortranarray(values)) == whole
    wide = np.zeros((3 * len(values), 2 * values.shape[1]))
    wide[1::3, ::2] = values
    assert images(function, wide[1::3, ::2]) == whole
    shifted = np.zeros(values.size + 1)[1:].reshape(values.shape)  # another alignment
    shifted[:] = values
    assert images(function, shifted) == whole
    for i in range(len(values)):
        assert images(function, np.delete(values, i, axis=0)) == whole[:i] + whole[i + 1 :]


def maps(width: int) -> dict[str, Any]:
    real = RealRows(width=width)
    low = RealRows(width=width, lower=(0.0,), upper=(3.0,))
    return {
        "quantize": lookup("quantize")(bits=7, bounds=(0.0, 3.0)).bind(low, Symmetric()),
        "quantize_to_zero": lookup("quantize")(bits=3, bounds=(-3.0, 0.0)).bind(real, Symmetric()),
        "clip_l1": lookup("clip_rows")(norm="l1", bound=0.7).bind(real, Symmetric()),
        "clip_l2": lookup("clip_rows")(norm="l2", bound=0.7).bind(low, Symmetric()),
        "clip_linf": lookup("clip_rows")(norm="linf", bound=0.7).bind(real, Symmetric()),
    }


@pytest.mark.parametrize("key", sorted(maps(1)))
@pytest.mark.parametrize("width", [1, 2, 7, 33])
def test_real_row_maps_are_local(key: str, width: int) -> None:
    generator = np.random.default_rng(width)
    corners = np.array([0.0, -0.0, 5e-324, 0.1, 1.0, 3.0, 0.5, 2.9999])
    values = generator.choice(corners, size=(19, width)) * generator.choice([1.0, 0.7], (19, 1))
    assert_local(maps(width)[key].function, values)


def test_only_one_zero_comes_out() -> None:
    # np.clip(-0.0, 0, 1) is one zero for one row and the other for two: found here, mended there.
    for key, claim in maps(1).items():
        for count in (1, 2, 3, 9):
            out = claim.function(Rows(np.full((count, 1), -0.0))).values
            assert not np.signbit(out).any(), (key, count)


# --- clip_rows ------------------------------------------------------------------------------------


def exact_norm_at_most(row: np.ndarray, norm: str, bound: float) -> bool:
    entries = [abs(Fraction(float(v))) for v in row]
    if norm == "l1":
        return sum(entries) <= Fraction(bound)
    if norm == "linf":
        return max(entries) <= Fraction(bound)
    return sum(v * v for v in entries) <= Fraction(bound) ** 2


@pytest.mark.few(1)
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@settings(max_examples=150)
@given(
    st.integers(1, 6).flatmap(lambda d: st.lists(NASTY | FINITE, min_size=d, max_size=d)),
    st.sampled_from([1.0, 0.1, 3.0, 1e-100, 1e100, 7e-5]),
)
def test_clipped_rows_really_keep_the_bound(norm: str, row: list[float], bound: float) -> None:
    values = np.array([row])
    claim = lookup("clip_rows")(norm=norm, bound=bound).bind(RealRows(width=len(row)), Symmetric())
    out = claim.function(Rows(values)).values[0]
    assert exact_norm_at_most(out, norm, bound)
    assert all(
        abs(a) <= abs(b) and np.sign(a) * np.sign(b) >= 0 for a, b in zip(out, row, strict=True)
    )
    claim.output.check(Rows(out[None, :]))


@pytest.mark.parametrize("norm", some(["l2", "l1"], 2))
def test_rows_on_the_edge_keep_the_bound(norm: str) -> None:
    # Rows scaled to the bound by floats: half of them are really a little longer.
    generator = np.random.default_rng(9)
    longer = 0
    for width in (2, 3, 64, 1000):
        claim = lookup("clip_rows")(norm=norm, bound=1.0).bind(RealRows(width=width), Symmetric())
        values = generator.normal(size=(60, width))
        values /= np.linalg.norm(values, ord=int(norm[1]), axis=1, keepdims=True)
        out = claim.function(Rows(values)).values
        longer += sum(not exact_norm_at_most(row, norm, 1.0) for row in values)
        assert all(exact_norm_at_most(row, norm, 1.0) for row in out)
        assert np.abs(out - values).max() < 4 * (width + 8) * 2.0**-52
    assert longer > 40  # else this test would see nothing


def test_clipping_carries_bounds_into_the_type() -> None:
    bounded = RealRows(width=2, lower=(1.0, -9.0), upper=(10.0, 0.5))
    output = lookup("clip_rows")(norm="l2", bound=2.0).bind(bounded, Symmetric()).output
    assert (output.lower, output.upper) == ((0.0, -2.0), (2.0, 0.5))
    assert output.norm == ("l2", 2.0)
    steps = bind_steps(
        RealRows(width=4),
        Symmetric(),
        [lookup("clip_rows")(norm="l2", bound=1.0), lookup("quantize")(bits=10)],
    )
    grid = steps[-1].claim.output
    assert isinstance(grid, GridRows)
    assert grid.l2 is not None
    assert 512 <= grid.l2 <= 515  # 1.0 is 512 steps, plus sqrt(4) / 2 and one


# --- jl_projection -------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "hadamard"])
@pytest.mark.parametrize(("width", "magnitude"), [(1, 7), (5, 2**11), (40, 2**22), (100, 2**43)])
def test_projection_is_the_integer_product(form: str, width: int, magnitude: int) -> None:
    grid = GridRows(width=width, unit=0.5, lower=(-magnitude,), upper=(magnitude,))
    claim = JlProjection(dimension=1 if width == 1 else 5, seed=3, form=form).bind(
        grid, Symmetric()
    )
    generator = np.random.default_rng(width)
    values = generator.integers(-magnitude, magnitude + 1, size=(12, width)).astype(np.float64)
    values[0], values[1] = magnitude, -magnitude
    eye = np.eye(width)
    signs = claim.function(Rows(eye)).values.astype(int)  # the matrix, row by row
    assert set(signs.ravel().tolist()) <= {-1, 1}
    expected = [
        [sum(int(x) * int(s) for x, s in zip(row, column, strict=True)) for column in signs.T]
        for row in values
    ]
    found = claim.function(Rows(values)).values
    assert found.astype(object).tolist() == expected
    claim.output.check(Rows(found))
    assert_local(claim.function, values)
    assert claim.on_queries(Rows(values)).values.tobytes() == found.tobytes()


@pytest.mark.parametrize("form", ["dense", "hadamard"])
def test_projection_bounds_are_attained_and_norms_hold(form: str) -> None:
    grid = GridRows(width=6, lower=(-3, 0, -8, 1, 0, -1), upper=(3, 9, 0, 2, 1, 1))
    claim = JlProjection(dimension=4, seed=8, form=form).bind(grid, Symmetric())
    corners = np.array(list(itertools.product(*zip(grid.lower, grid.upper, strict=True))), float)
    out = claim.function(Rows(corners)).values
    assert out.min() == claim.output.lower[0]
    assert out.max() == claim.output.upper[0]
    short = GridRows(width=6, lower=(-9,), upper=(9,), l2=9)
    claim = JlProjection(dimension=4, seed=8, form=form).bind(short, Symmetric())
    assert claim.output.l2 is not None
    values = np.rint(np.random.default_rng(0).normal(size=(4000, 6)) * 3)
    values = values[np.square(values).sum(axis=1) <= 81]
    lengths = np.square(claim.function(Rows(values)).values).sum(axis=1)
    assert lengths.max() <= claim.output.l2**2
    assert lengths.max() >= 0.3 * claim.output.l2**2  # and it is not far from true
    assert -claim.output.lower[0] <= math.isqrt(6 * 81)


def test_projection_refusals() -> None:
    grid = GridRows(width=4, lower=(-(2**50),), upper=(2**50,))
    for form in ("dense", "hadamard"):
        with pytest.raises(SpaceError) as refused:
            JlProjection(dimension=2, seed=0, form=form).bind(grid, Symmetric())
        assert refused.value.code == "OS203"
    with pytest.raises(ParameterError) as bad:
        JlProjection(dimension=5, seed=0, form="hadamard").bind(
            GridRows(width=3, upper=(1,)), Symmetric()
        )
    assert bad.value.code == "OS102"


def test_another_seed_is_another_matrix_and_the_same_seed_the_same() -> None:
    grid = GridRows(width=9, upper=(1,))
    for form in ("dense", "hadamard"):
        one, same, other = (
            JlProjection(dimension=8, seed=s, form=form).bind(grid, Symmetric()).matrices[0]
            for s in (1, 1, 2)
        )
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)


# --- select --------------------------------------------------------------------------------------

RECORDS = Records(
    (
        Column("x", "array[f32, 2]", bounds=(-0.1, 1.0)),
        Column("age", "int64", bounds=(0.0, 120.0)),
        Column("free", "float64"),
        Column("kind", "category", keys=("a", "b")),
        Column("user", "str", role="privacy_id"),
    )
)


def test_select_types() -> None:
    def type_of(metric: Any = None, **params: Any) -> RealRows:
        return lookup("select")(**params).bind(RECORDS, metric or Symmetric()).output

    rows = type_of(features=["age", "x"], label="kind")
    assert (rows.width, rows.labels, rows.ids) == (3, ("a", "b"), False)
    assert (rows.lower, rows.upper) == ((0.0, -0.1, -0.1), (120.0, 1.0, 1.0))
    assert type_of(features="x").lower == (-0.1,)
    assert type_of(features=["x", "free"]).lower == ()
    assert type_of(features="x", person="user").ids
    assert type_of(IdDistance("user"), features="x").ids


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"features": "y"}, "expected one of"),
        ({"features": ["x", "agee"]}, "did you mean 'age'"),
        ({"features": "kind"}, "numeric"),
        ({"features": "x", "label": "age"}, "category"),
        ({"features": "x", "person": "usr"}, "did you mean 'user'"),
    ],
)
def test_select_refuses_unfit_columns(params: dict[str, Any], said: str) -> None:
    with pytest.raises(SpaceError) as refused:
        lookup("select")(**params).bind(RECORDS, Symmetric())
    assert refused.value.code == "OS204"
    assert said in str(refused.value)


def test_select_lands_within_bounds_that_float32_cannot_hold() -> None:
    claim = lookup("select")(features="x").bind(RECORDS, Symmetric())
    data = {"x": np.full((3, 2), -0.1, dtype=np.float32)}
    assert float(data["x"][0, 0]) < -0.1
    claim.output.check(claim.function(data))
    queries = claim.on_queries({"x": np.array([[-5.0, 9.0]])})
    assert queries.values.tolist() == [[-5.0, 9.0]]


# --- bound_contributions -------------------------------------------------------------------------

PEOPLE = Records(
    (
        Column("user", "int64", role="privacy_id"),
        Column("x", "array[f64, 1]"),
        Column("note", "str"),
    )
)


def people(rows: list[tuple[int, float, str]]) -> dict[str, np.ndarray]:
    return {
        "user": np.array([r[0] for r in rows], dtype=np.int64),
        "x": np.array([[r[1]] for r in rows], dtype=np.float64).reshape(len(rows), 1),
        "note": np.array([r[2] for r in rows] + [None], dtype=object)[:-1],
    }


def kept(
    rows: list[tuple[int, float, str]], most: int, size: int = 100, seed: int = 0
) -> Counter[Any]:
    """Survey and run in blocks of ``size``; return the multiset of rows kept."""
    data = people(rows)
    blocks = [take(data, slice(i, i + size)) for i in range(0, len(rows), size)]
    claim = lookup("bound_contributions")(max_rows=most, seed=seed).bind(PEOPLE, IdDistance("user"))
    assert claim.survey is not None
    function = claim.survey(blocks)
    out: Counter[Any] = Counter()
    for block in blocks:
        got = function(block)
        out.update(zip(got["user"].tolist(), got["x"][:, 0].tolist(), got["note"], strict=True))
    return out


ROW = st.tuples(
    st.integers(0, 3), st.sampled_from([0.0, 1.0, 2.5]), st.sampled_from(["", "a", "b"])
)


@pytest.mark.long
@settings(max_examples=150)
@given(st.lists(ROW, max_size=25), st.integers(1, 4), st.integers(1, 9), st.randoms())
def test_what_is_kept_of_a_person_is_their_own_affair(
    rows: list[Any], most: int, size: int, shuffler: Any
) -> None:
    whole = kept(rows, most)
    for person in range(4):
        mine = [row for row in rows if row[0] == person]
        of_mine = Counter({row: n for row, n in whole.items() if row[0] == person})
        assert of_mine.total() == min(most, len(mine))
        assert kept(mine, most) == of_mine
        assert kept([row for row in rows if row[0] != person], most) == whole - of_mine
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    assert kept(shuffled, most, size) == whole


@pytest.mark.parametrize(
    "bits", [pytest.param(1, marks=pytest.mark.long), pytest.param(0, marks=pytest.mark.long)]
)
def test_no_hash_is_so_bad_that_others_matter(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof rests on the digests of tied rows, not on the hash: here nearly all rows tie."""
    real = Ranks.hashes
    monkeypatch.setattr(Ranks, "hashes", lambda *a: real(*a) & np.uint64(2**bits - 1))
    test_what_is_kept_of_a_person_is_their_own_affair()


def test_what_is_dropped_on_the_way_was_not_among_the_least() -> None:
    generator = np.random.default_rng(5)
    persons = generator.integers(0, 3000, 600_000)
    hashes = generator.integers(0, 2**64, len(persons), dtype=np.uint64)
    parts = [(persons[i : i + 70_000], hashes[i : i + 70_000]) for i in range(0, 600_000, 70_000)]
    found, least = least_of_each(iter(parts), 3)
    for person in (0, 17, 2999):
        assert least[found == person].tolist() == sorted(hashes[persons == person].tolist())[:3]


def test_blocks_that_are_gone_are_not_taken_for_none() -> None:
    data = people([(1, 0.0, "a")] * 5)
    claim = lookup("bound_contributions")(max_rows=2).bind(PEOPLE, IdDistance("user"))
    with pytest.raises(InternalError):
        claim.survey(iter([data]))


def test_the_two_zeros_are_one_and_the_seed_matters() -> None:
    rows = [(1, 0.0, "a"), (1, -0.0, "a")]
    ranks = Ranks(0, PEOPLE, "user")
    contents = ranks.contents(people(rows))
    assert len(set(ranks.hashes(contents, 2).tolist())) == 1
    assert len(set(content_digests(contents, np.arange(2)))) == 1
    many = [(1, float(i), "") for i in range(40)]
    assert kept(many, 3, seed=1) != kept(many, 3, seed=2)


def test_more_rows_than_surveyed_are_refused() -> None:
    data = people([(1, 0.0, "a")] * 5)
    claim = lookup("bound_contributions")(max_rows=2).bind(PEOPLE, IdDistance("user"))
    assert claim.survey is not None
    function = claim.survey([data])
    assert len(function(data)["user"]) == 2
    with pytest.raises(InternalError) as refused:
        function(data)
    assert refused.value.code == "OS903"
    assert len(function.fresh()(data)["user"]) == 2
    with pytest.raises(InternalError) as refused:  # as many rows, of somebody without a limit
        function.fresh()(people([(2, 0.0, "a")] * 5))
    assert refused.value.code == "OS903"


@pytest.mark.parametrize("size", [1, 3, 40])
def test_no_pass_keeps_more_rows_of_a_person_than_the_limit(size: int) -> None:
    """Not over other records than were surveyed either: as many, of persons who were met (OS601)."""
    before = people([(user, float(user), "a") for user in range(40)])
    after = people([(7, float(at), "a") for at in range(40)])
    claim = lookup("bound_contributions")(max_rows=2).bind(PEOPLE, IdDistance("user"))
    assert claim.survey is not None
    function = claim.survey([before])
    blocks = (
        {name: column[at : at + size] for name, column in after.items()}
        for at in range(0, 40, size)
    )
    kept: list[int] = []
    with pytest.raises(DataError, match="OS601"):
        kept.extend(len(function(block)["user"]) for block in blocks)
    assert sum(kept) <= 2
    assert len(function.fresh()(before)["user"]) == 40


def test_the_chain_of_a_person_unit() -> None:
    # As a spec writes it: bound, select, quantize, sketch; one person is at most two rows.
    mechanisms = [
        lookup("bound_contributions")(by="user", max_rows=2),
        lookup("select")(features="x"),
        lookup("quantize")(bits=4, bounds=(0.0, 4.0)),
        lookup("race_sketch")(
            repetitions=3, buckets=4, family={"p_stable_l2": {"width": 1.0}}, seed=1
        ),
    ]
    stages = bind_steps(PEOPLE, IdDistance("user"), mechanisms)
    assert stability(stages) == 2
    assert stages[1].metric == Symmetric()
    data = people([(p, float(i % 4), "") for p in range(5) for i in range(p)])

    def blocks(size: int) -> Any:
        return lambda: [take(data, slice(i, i + size)) for i in range(0, 10, size)]

    expected = build_sketch(stages, blocks(10))
    assert (expected[: 3 * 4].reshape(3, 4).sum(axis=1) == 1 + 2 + 2 + 2).all()
    for size, workers in ((1, 1), (3, 2), (2, 3)):
        assert np.array_equal(build_sketch(stages, blocks(size), workers=workers), expected)


def test_select_may_come_first() -> None:
    mechanisms = [lookup("select")(features="x"), lookup("bound_contributions")(max_rows=1)]
    stages = bind_steps(PEOPLE, IdDistance("user"), mechanisms)
    data = people([(1, 0.5, ""), (1, 0.6, ""), (2, 0.5, "")])
    out = resolve(stages, lambda: [data])(data)
    assert len(out) == 2
    assert out.ids is None
    stages[-1].claim.output.check(out)


@pytest.mark.parametrize(
    ("ids", "good"),
    [
        (np.array([1, 1, 2]), True),
        (np.array(["a", "a", "b"]), True),
        (np.array(["a", "a", "b"], dtype=object), True),
        (np.array([np.nan, np.nan, 1.0]), False),
        (np.array([np.nan, np.nan, 1.0], dtype=object), False),
    ],
)
def test_identifiers_that_name_nobody_are_refused(ids: np.ndarray, good: bool) -> None:
    domain = RealRows(width=1, ids=True)
    claim = lookup("bound_contributions")(max_rows=1).bind(domain, IdDistance("user"))
    assert claim.survey is not None
    rows = Rows(np.zeros((3, 1)), None, ids)
    if good:
        assert len(claim.survey([rows])(rows)) == 2
        return
    with pytest.raises(SimError) as refused:
        claim.survey([rows])
    assert refused.value.code == "OS602"


@pytest.mark.parametrize(
    ("domain", "metric", "params", "code"),
    [
        (PEOPLE, Symmetric(), {}, "OS202"),
        (PEOPLE, IdDistance("nobody"), {}, "OS204"),
        (PEOPLE, IdDistance("user"), {"by": "note"}, "OS204"),
        (RealRows(width=1), IdDistance("user"), {}, "OS204"),
    ],
)
def test_bounding_refuses_spaces_without_persons(
    domain: Any, metric: Any, params: dict[str, Any], code: str
) -> None:
    with pytest.raises(SpaceError) as refused:
        lookup("bound_contributions")(max_rows=1, **params).bind(domain, metric)
    assert refused.value.code == code
