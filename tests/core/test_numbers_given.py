"""Parameters that are numpy's numbers, 0-d arrays and arrays: equal to Python's, at every door."""

from __future__ import annotations

import pickle
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays, integer_dtypes

import opendp_sim.prelude as sim
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.errors import ParameterError, SimError
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl import program
from opendp_sim.dsl.text.diagnostic import Refused
from opendp_sim.transformations.row_maps.quantize import Quantize
from opendp_sim.transformations.sketches.kernels.race_sketch import (
    RaceSketch,
    make_race_sketch,
    then_race_sketch,
)
from tests._cli import run
from tests._small import write_small


@given(arrays(st.sampled_from([np.float64, np.float32, np.float16]), (2, 3)))
def test_floats_of_fewer_bits_are_the_double_of_equal_value(array: Any) -> None:
    for value, found in zip(array.ravel(), np.ravel(python_value(array)), strict=True):
        assert (
            np.isnan(value) or Fraction(float(found)) == Fraction(*value.as_integer_ratio())
            if (np.isfinite(value))
            else str(float(value)) == str(found)
        )
        assert type(python_value(value)) is float


@given(arrays(integer_dtypes() | st.sampled_from([np.dtype("u8"), np.dtype("?")]), 3))
def test_whole_numbers_and_truths_are_python_s(array: Any) -> None:
    kind = bool if array.dtype.kind == "b" else int
    for value, found in zip(array, python_value(array), strict=True):
        assert type(found) is type(python_value(np.array(value))) is kind
        assert found == value


def test_what_no_double_equals_is_not_rounded() -> None:
    assert python_value(np.longdouble(0.1)) == 0.1
    third = np.longdouble(1) / 3
    if third == float(third):
        pytest.skip("a long double is a double here")
    assert python_value(third) == repr(third)
    with pytest.raises(ParameterError, match=r"quantize\.bounds"):
        Quantize(bits=8, bounds=(third, 4.0))
    masked = np.ma.array([0.0, 1.0], mask=[True, False])
    assert python_value(masked) is masked
    with pytest.raises(ParameterError, match=r"quantize\.bounds"):
        Quantize(bits=8, bounds=masked)


RACE: dict[str, Any] = {"repetitions": 4, "buckets": 8, "seed": 3}
BOUNDS = Quantize(bits=8, bounds=(-4.0, 4.0))
COLUMNS = Quantize(bits=8, bounds=((-4.0, -1.0), (4.0, 1.0)))


@pytest.mark.parametrize(
    ("params", "equal"),
    [
        ({"bits": np.int64(8), "bounds": np.array([-4, 4])}, BOUNDS),
        ({"bits": np.array(8), "bounds": np.array([-4, 4], np.float32)}, BOUNDS),
        ({"bits": np.uint8(8), "bounds": (np.float64(-4), np.array(4))}, BOUNDS),
        ({"bits": 8, "bounds": np.array([[-4.0, -1.0], [4.0, 1.0]])}, COLUMNS),
        ({"bits": 8, "bounds": [np.array([-4, -1]), np.array([4, 1])]}, COLUMNS),
        ({"bits": 8, "bounds": np.array([-4, 4], dtype=object)}, BOUNDS),
    ],
)
def test_constructors_take_them(params: dict[str, Any], equal: Quantize) -> None:
    assert Quantize(**params) == equal
    assert Quantize(**params).spec() == equal.spec()
    assert sim.then_quantize(**params).sim_note.mechanism == equal


@pytest.mark.parametrize("bits", [np.float64(8), np.array([8]), np.True_, 8.0, True])
def test_what_python_s_are_refused_for_is_refused(bits: Any) -> None:
    with pytest.raises(ParameterError, match=r"quantize\.bits"):
        sim.then_quantize(bits=bits, bounds=(-4.0, 4.0))


def hash_of(**given: Any) -> str:
    words = {"bits": 8, "bounds": [0.0, 1.0], "unit": 1, "epsilon": 1.0} | given
    made = program("tiny").data(
        "rows",
        source={"memory": "rows"},
        columns={"x": {"dtype": "array[f64, 2]", "bounds": words["bounds"]}},
    )
    made = made.privacy(
        unit={"add_remove": words["unit"], "of": "row"},
        measure="pure",
        budget={"epsilon": words["epsilon"]},
    )
    steps = [
        {"select": {"features": "x"}},
        {"quantize": {"bits": words["bits"]}},
        {"race_sketch": RACE | {"family": {"p_stable_l2": {"width": 0.5}}}},
    ]
    made = made.stage("s", "rows", steps=steps).stage("n", "s", release={"noise": "laplace"})
    return made.output("o", "n", save="o.npz").plan().program.hash


def test_the_builder_takes_them() -> None:
    for words in (
        {"bits": np.array(8), "unit": np.int8(1)},
        {"bounds": np.array([0.0, 1.0], np.float32), "epsilon": np.float32(1)},
        {"bounds": (np.array(0.0), np.float64(1)), "epsilon": np.array(1.0)},
    ):
        assert hash_of(**words) == hash_of()
    with pytest.raises(Refused):
        hash_of(epsilon=np.longdouble(1) / 3)


def test_a_text_is_shown_in_quotes_and_a_description_is_not():
    """It was "expected int >= 1; got 3"."""
    with pytest.raises(ParameterError) as refused:
        RaceSketch(repetitions="3", buckets=8, family={"srp": {"bits": 4}}, seed=1)
    assert "got '3'. Hint" in str(refused.value)
    assert pickle.loads(pickle.dumps(refused.value)).args == refused.value.args  # noqa: S301
    with pytest.raises(ParameterError, match="got nothing"):
        RaceSketch(buckets=8, family={"srp": {"bits": 4}}, seed=1)


def test_a_sketch_names_norm_among_its_words():
    for make in (make_race_sketch, then_race_sketch):
        given = () if make is then_race_sketch else (None, None)
        with pytest.raises(ParameterError) as refused:
            make(*given, repetitions=3, buckets=8, family={"srp": {"bits": 4}}, seed=1, nrom="l2")
        assert "count_weight, norm; got nrom" in str(refused.value)
        assert refused.value.hint == "did you mean 'norm'?"


@pytest.mark.few(1)
@pytest.mark.parametrize("word", ["1", "true", "0.5"])
def test_a_column_that_yaml_reads_as_no_text_is_to_be_quoted(tmp_path, word):
    """It was "name a vector column, or a list of numeric columns"."""
    for name in (word, f"[{word}]"):
        spec = write_small(tmp_path, ("features: x,", f"features: {name},"))
        said = run("check", spec).stderr
        assert f'write it in quotes, "{word}"' in " ".join(said.split())


@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_no_value_of_a_column_is_in_a_record_s_refusal(key):
    """A private column by mistake: an array became a tuple, and a message repeated every value."""
    record, messages = REGISTRY[key], []
    for name, wrong in product(record.model_fields, COLUMNS):
        try:
            record(**{name: wrong})
        except SimError as error:
            messages.append(str(error))
    assert [m for m in messages if any(value in m for value in ("123456", "Alice"))] == []


COLUMNS = (
    np.full(6, 123456.75),
    np.array([123456.75, 1.0]),
    [123456.75] * 6,
    pd.Series(["Alice", "b"]),
    np.array(["Alice"] * 6),
)
