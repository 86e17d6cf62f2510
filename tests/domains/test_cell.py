"""A cell's canonical value: one for each value, whatever object holds it, and its column alone decides."""

from __future__ import annotations

import datetime as dt
import enum
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.domains.category_codes import NumberPlaces, key_indices
from opendp_sim.domains.cell import (
    LONGEST_TEXT,
    MISSING,
    canonical_cell,
    hashes,
    integer_cell,
    real,
    reals,
    tagged,
    text,
    texts,
    wholes,
)
from opendp_sim.domains.column import Column
from opendp_sim.domains.ids import id_array, pack_ids, persons, unpack_ids
from opendp_sim.domains.normalise import normal
from opendp_sim.domains.records import Records
from opendp_sim.domains.rows import GridRows, Rows


class Word(str):
    """A text that lies about itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return "another"

    def __repr__(self) -> str:
        return "another"

    def strip(self, chars: Any = None) -> str:
        return "another"


class Number(enum.IntEnum):
    FIVE = 5


class Letter(enum.StrEnum):
    A = "a"


SAME = [
    ("a", [np.str_("a"), Word("a"), Letter.A, " a ", np.array(["a"])[0]]),
    (5, [np.int8(5), np.uint64(5), Number.FIVE, Decimal("5.0"), np.int64(5)]),
    (1, [True, np.True_, np.bool_(True)]),
    (0.5, [np.float32(0.5), np.float64(0.5), Decimal("0.5"), np.float16(0.5)]),
]


@pytest.mark.parametrize(("value", "cells"), SAME, ids=lambda v: str(v)[:9])
def test_equal_values_have_one_form(value: Any, cells: list[Any]) -> None:
    for cell in cells:
        found = canonical_cell(cell)
        assert type(found) is type(value), cell
        assert found == value, cell


@pytest.mark.parametrize(
    "cell",
    [
        None,
        "",
        "  ",
        math.nan,
        np.float64("nan"),
        np.ma.masked,
        b"a",
        [1],
        dt.date(2020, 1, 1),
        np.datetime64("2020-01-01"),
        np.timedelta64(5, "s"),
        np.timedelta64(5),
        np.timedelta64("NaT"),
        1j,
        "x" * (LONGEST_TEXT + 1),
        Decimal("nan"),
        object(),
    ],
    ids=lambda v: f"{type(v).__name__} {str(v)[:9]}",
)
def test_what_holds_no_value_is_missing(cell: object) -> None:
    assert canonical_cell(cell) is None
    assert text(cell) == ""
    assert integer_cell(cell) == MISSING
    assert math.isnan(real(cell))


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("517", 517),
        ("517.0", 517),
        (" 5e2 ", 500),
        (517.0, 517),
        (np.float32(8), 8),
        ("-3.00", -3),
        ("9007199254740993.0", 2**53 + 1),
        (2.0**53, MISSING),
        (0.5, MISSING),
        ("0.5", MISSING),
        ("1e999999999", MISSING),
        (2**63, MISSING),
        (-(2**63) - 1, MISSING),
        (2**63 - 1, 2**63 - 1),
        ("9" * 5000, MISSING),
        ("nan", MISSING),
        ("inf", MISSING),
        (math.inf, MISSING),
        (True, 1),
    ],
    ids=lambda v: str(v)[:12],
)
def test_a_whole_number_is_read_however_it_is_written(cell: object, number: int) -> None:
    assert integer_cell(cell) == number


WRITTEN = [
    (5, "5"),
    (np.int8(-5), "-5"),
    (np.uint64(2**64 - 1), "18446744073709551615"),
    (Number.FIVE, "5"),
    (101.0, "101"),
    (np.float32(8), "8"),
    (Decimal("5.00"), "5"),
    ("007", "007"),
    ("5.0", "5.0"),
    (0.5, ""),
    (2.0**53, ""),
    (math.inf, ""),
    (Decimal("0.5"), ""),
    (True, ""),
    (np.False_, ""),
    (10**400, ""),
    (10**5000, ""),
]


@pytest.mark.parametrize(("cell", "written"), WRITTEN, ids=lambda v: str(type(v).__name__))
def test_a_whole_number_in_a_text_column_is_its_digits(cell: object, written: str) -> None:
    assert text(cell) == written
    assert texts(held([cell, "a"])).tolist() == [written, "a"]


def test_numbers_are_keys_by_value_and_then_by_digits_in_every_form() -> None:
    keys = ("5", 6, "6", "07", "x", 10**30)
    cells = [5, 6, 7, 5.0, 6.0, 0.5]
    expected = [0, 1, -1, 0, 1, -1]
    assert key_indices(held(cells), keys).tolist() == expected
    assert key_indices(np.array(cells), keys).tolist() == expected
    assert key_indices(np.array([5, 6, 7], dtype="u8"), keys).tolist() == [0, 1, -1]
    truths = [True, False]
    assert key_indices(held(truths), ("1", "0", 0)).tolist() == [-1, 2]
    assert key_indices(np.array(truths), ("1", "0", 0)).tolist() == [-1, 2]


def test_a_number_beyond_floats_is_infinite() -> None:
    assert [real(c) for c in (10**400, -(10**400), "1e400")] == [math.inf, -math.inf, math.inf]


def test_what_is_hashed_names_its_type() -> None:
    assert len({tagged("5"), tagged(5), tagged("i5"), tagged("s5"), tagged("\ud800")}) == 5
    assert np.array_equal(hashes(["a", "b"], 7), hashes(["a", "b"], 7))
    assert not np.array_equal(hashes(["a", "b"], 7), hashes(["a", "b"], 8))


def test_a_number_has_one_hash_in_whatever_company() -> None:
    numbers = [0, -1, 7, 2**63 - 1, -(2**63), 10**30]
    beside_a_text = hashes([*numbers, "a"], 7)
    assert np.array_equal(hashes(numbers, 7), beside_a_text[:-1])


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=4),
    st.from_regex(r"\s?[+-]?[0-9_]{1,4}(\.[0-9]{0,2})?(e[0-9]{1,3})?\s?", fullmatch=True),
    st.sampled_from([np.str_("a"), Word("a"), Number.FIVE, np.int8(3), np.float32(0.1), b"a"]),
    st.sampled_from(
        [Decimal("1.5"), Decimal("1e30"), np.ma.masked, "x" * (LONGEST_TEXT + 1), "nan"]
    ),
)
COLUMNS = (
    Column("v", "str"),
    Column("v", "int64"),
    Column("v", "float64"),
    Column("v", "category", keys=("a", 5, "5", 1)),
    Column("v", "array[i64, 1]"),
    Column("v", "array[f32, 1]"),
)


def held(cells: list[Any]) -> np.ndarray:
    out = np.empty(len(cells), dtype=object)
    for at, cell in enumerate(cells):
        out[at] = cell
    return out


@given(st.lists(CELLS, max_size=6))
def test_a_cell_is_read_by_itself(cells: list[Any]) -> None:
    """A column is its cells, one by one: no fast path for some columns gives another value."""
    for column in COLUMNS:
        found = normal(held(cells), column)
        alone = [normal(held([cell]), column) for cell in cells]
        parts = np.concatenate(alone) if alone else found
        assert found.dtype == parts.dtype
        assert all(type(a) is type(b) for a, b in zip(found.tolist(), parts.tolist(), strict=True))
        assert np.array_equal(found, parts, equal_nan=found.dtype.kind == "f")
        again = normal(found, column, indices=True)
        assert np.array_equal(again, found, equal_nan=found.dtype.kind == "f"), "not idempotent"
    for read, one in ((texts, text), (wholes, integer_cell)):
        assert read(cells).tolist() == [one(cell) for cell in cells]
    assert np.array_equal(reals(cells), [real(cell) for cell in cells], equal_nan=True)


@given(st.lists(CELLS, max_size=6))
def test_what_comes_through_the_door_is_plain(cells: list[Any]) -> None:
    allowed = {"O": {str}, "i": {int}, "f": {float}}
    for column in COLUMNS:
        found = normal(held(cells), column)
        assert set(map(type, found.ravel().tolist())) <= allowed[found.dtype.kind]


# --- masked arrays ----------------------------------------------------------------------------

MASK = [False, True]
MASKED = [
    ("float64", np.ma.array([0.5, 0.7], mask=MASK), [0.5, np.nan]),
    ("float64", np.ma.array([1, 2], mask=MASK), [1.0, np.nan]),
    ("int64", np.ma.array([1, 2], mask=MASK), [1, MISSING]),
    (
        "array[u8, 1]",
        np.ma.array([[1], [2]], mask=[[m] for m in MASK], dtype="u1"),
        [[1], [MISSING]],
    ),
    ("array[f32, 1]", np.ma.array([0.5, 2], mask=MASK), [[0.5], [np.nan]]),
    ("str", np.ma.array(["a", "b"], mask=MASK), ["a", ""]),
    ("str", np.ma.array(["a", "b"], mask=MASK, dtype=object), ["a", ""]),
]


@pytest.mark.parametrize(("dtype", "given_cells", "expected"), MASKED, ids=lambda v: str(v)[:12])
def test_masked_is_missing(dtype: str, given_cells: Any, expected: list[Any]) -> None:
    found = normal(given_cells, Column("v", dtype))
    assert np.array_equal(found, np.array(expected, found.dtype), equal_nan=found.dtype.kind == "f")


def test_a_masked_label_is_foreign() -> None:
    column = Column("v", "category", keys=("a", "b"))
    assert normal(np.ma.array(["a", "b"], mask=MASK), column).tolist() == [0, -1]


# --- declarations -----------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [(" a", "b"), ("a", 0.5), (np.str_("a"), "a"), (Number.FIVE, 5)])
def test_keys_are_canonical_too(keys: Any) -> None:
    with pytest.raises(SpecError, match="OS304"):
        Column("v", "category", keys=keys)


@pytest.mark.parametrize(
    "cell", [None, 5, b"a", np.nan, ["a"], np.str_("a"), Word("a"), ""], ids=lambda v: repr(v)[:9]
)
def test_a_text_column_admits_exactly_text(cell: object) -> None:
    records = Records((Column("v", "str"),))
    assert records.member({"v": held(["a", "b"])})
    assert not records.member({"v": held(["a", cell])})


def test_membership_never_raises() -> None:
    records = Records((Column("v", "str"),))
    for data in (None, [], {}, {"v": "a"}, {"v": None}, {"v": 5}, {5: 5}):
        assert not records.member(data)


def test_a_code_point_that_is_none_is_missing() -> None:
    """numpy's texts may hold any 32 bits; Python has no text of them, and raises a bare SystemError."""
    records = Records(
        (
            Column("w", "str"),
            Column("k", "category", keys=("a", "", 7)),
            Column("d", "date"),
            Column("t", "bool"),
        )
    )
    for order in "<>":
        for bad in (0x110000, 2**32 - 1):
            raw = np.array([97, bad, 98, 0, 0x10FFFF], dtype=f"{order}u4").view(f"{order}U1")
            packed = np.zeros(5, dtype=[("b", "i1"), ("f", raw.dtype)])
            packed["f"] = raw
            for column in (raw, packed["f"], np.repeat(raw, 2)[::2]):
                words, keys, days, truths = (normal(column, c) for c in records.columns)
                assert words.tolist() == ["a", "", "b", "", "\U0010ffff"]
                assert keys.tolist() == [0, -1, -1, 1, -1]
                assert set(days.tolist()) == set(truths.tolist()) == {MISSING}
            with pytest.raises(DataError):
                persons(raw)
    cells = np.empty(2, dtype=object)
    cells[:] = [raw[:2], [1.0, 2.0]]
    assert np.isnan(normal(cells, Column("x", "array[f64, 2]"))).tolist() == [
        [True] * 2,
        [False] * 2,
    ]


@pytest.mark.parametrize(
    "far", [10**5000, -(10**5000), 2**64, -(2**63) - 1], ids=("long", "low", "high", "below")
)
def test_a_person_has_64_bits(far: int) -> None:
    """Digits of a longer integer are more than Python turns into text: refused where ids come in."""
    for ids in ([far], [1, far], np.array([far, 1], dtype=object)):
        with pytest.raises(DataError) as told:
            persons(ids)
        assert told.value.code == "OS602"
    assert persons([2**64 - 1, -(2**63)]) == [2**64 - 1, -(2**63)]
    rows = Rows(np.zeros((1, 1), dtype=np.int64), None, id_array([far]))
    with pytest.raises(DataError):
        GridRows(1, ids=True, unit=1.0).normal(rows)


@pytest.mark.parametrize(
    "kept",
    [
        b"[1" + b"0" * 5000 + b"]",
        b"[" * 10**5,
        b"{}",
        b"[1.5]",
        b"[null]",
        b'["a", 5]',
        b"[36893488147419103232]",
        b"\xff",
    ],
)
def test_kept_identifiers_that_nobody_packed_are_refused_without_a_word_of_them(
    kept: bytes,
) -> None:
    """A number of 5,000 digits raised Python's own ValueError."""
    with pytest.raises(DataError, match="OS602") as caught:
        unpack_ids(np.frombuffer(kept, dtype=np.uint8))
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "ids",
    [
        [2**64 - 1, -(2**63), 2**53 + 1],
        ["a", "\ud800", "é\0", '"', "\\u0041"],
        ["\ud83d\ude00", "\U0001f600"],  # two halves, and the character: two persons
        [],
    ],
)
def test_identifiers_are_packed_with_every_digit(ids: list[Any]) -> None:
    assert unpack_ids(pack_ids(ids)).tolist() == ids


@pytest.mark.parametrize("keys", [("a", "b"), ("a", 5, "x", ""), (5, 517)])
def test_categories_read_together_are_the_cells_read_alone(keys: tuple[str | int, ...]) -> None:
    """Objects, lists and texts of numpy's: where all cells are plain texts a faster way is taken."""
    column, rng = Column("v", "category", keys=keys), np.random.default_rng(2)
    texts_only = ["a", " a ", "", "5", "517.0", " x", "b", "z", "\ud800", "5 "]
    odd = [
        *texts_only,
        None,
        5,
        5.0,
        True,
        Word("a"),
        Letter.A,
        np.str_("b"),
        Number.FIVE,
        b"a",
        [1],
    ]
    for cells in (texts_only, odd, [*texts_only, None]):
        alone = [normal([cell], column)[0] for cell in cells]
        for _ in range(30):
            picked = rng.integers(0, len(cells), rng.integers(0, 12)).tolist()
            whole = normal([cells[at] for at in picked], column)
            assert whole.tolist() == [alone[at] for at in picked]


def test_a_text_that_no_key_is_may_be_a_number_that_one_is() -> None:
    cells = np.array(["a", "7", " 7 ", "8", "", None, 7, 7.0, 7.5], dtype=object)
    assert key_indices(cells, ("a", 7, "8")).tolist() == [0, 1, 1, 2, -1, -1, 1, 1, -1]
    assert key_indices(np.array([7, 8]), ("a", 7, "8")).tolist() == [1, 2]


@pytest.mark.parametrize("apart", [1, 3, 10**6, 2**57])
def test_places_of_numbers_are_those_of_a_dictionary(apart: int) -> None:
    """In a table and by binary search, at the ends of 64 bits too."""
    ends = (MISSING + 1, MISSING + 2, 2**63 - 1)
    for low in (0, MISSING + 1, 2**63 - 1 - 40 * apart):
        places = {low + apart * n: 39 - n for n in range(40)}
        found = NumberPlaces(places)
        near = [key + step for key in places for step in (-1, 0, 1)]
        asked = [n for n in (*near, *ends, MISSING, 0) if MISSING <= n < 2**63]
        assert found.of(np.array(asked)).tolist() == [places.get(n, -1) for n in asked]
    assert NumberPlaces({}).of(np.array([0, 1])).tolist() == [-1, -1]
