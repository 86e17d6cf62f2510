"""What the house promises to every mechanism: identifiers, errors that carry nothing, narrow labels."""

from __future__ import annotations

import ast
import re
import traceback
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, strategies as st
from opendp.extras.numpy import array2_domain

from opendp_sim.core.arithmetic.grid import count_ids
from opendp_sim.core.arithmetic.rounding import float_down, float_up, sqrt_up
from opendp_sim.core.bridge import to_dp_domain, to_dp_metric
from opendp_sim.core.claims import SketchBlock, sensitivity_of
from opendp_sim.core.constructors import adopt_domain, adopt_metric
from opendp_sim.core.errors import CATALOGUE, DataError, InternalError, SimError, SpaceError
from opendp_sim.core.guard import guarded
from opendp_sim.domains.metrics import IdDistance, Symmetric, VectorNorm
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.domains.serialize import from_json, to_json
from opendp_sim.domains.sketch import IntVector, Sketch
from tests.test_words import files, statements

TESTS = Path(__file__).parent
NUMBER = st.sampled_from([0, 0.0, -0.0, 1, 1.0, True, 0.5, Fraction(1, 2), 2, 2.5])
DOMAINS = st.one_of(
    st.builds(
        RealRows,
        width=st.integers(1, 2),
        labels=st.sampled_from([None, ("a",), ("a", "b"), ('a","b',), (1, 2), ("1", "2")]),
        lower=st.tuples(NUMBER),
        upper=st.tuples(NUMBER),
        norm=st.sampled_from([None, ("l1", 1), ("l1", 1.0), ("l2", 1.0)]),
    ),
    st.builds(GridRows, width=st.integers(1, 2), unit=NUMBER, l2=st.sampled_from([None, 1, 2])),
    st.builds(
        Sketch,
        key=st.sampled_from(["s", "s,False", "t"]),
        blocks=st.lists(
            st.builds(
                SketchBlock,
                name=st.sampled_from(["b", 'b",(1),', "b:(1,):1:1:1:1,c", "c"]),
                shape=st.sampled_from([(1,), (2,), (1, 2)]),
                l1=st.integers(1, 2),
                l2_squared=st.just(1),
                linf=st.just(1),
            ),
            max_size=2,
        ).map(tuple),
    ),
    st.builds(IntVector, st.sampled_from([None, 1, 2])),
)
METRICS = st.one_of(
    st.just(Symmetric()),
    st.builds(IdDistance, st.sampled_from(["a", 'a"'])),
    st.builds(
        VectorNorm,
        st.sampled_from(["l1", "l2", "linf"]),
        st.sampled_from([(), ((1, 1),), ((1, 1), (2, 1))]),
    ),
    st.builds(
        VectorNorm, st.just("linf"), monotone=st.just(True), touched=st.sampled_from([None, 1, 2])
    ),
    st.builds(
        VectorNorm, st.just("linf"), steps=st.just(True), touched=st.sampled_from([None, 1, 2])
    ),
)


@given(DOMAINS, DOMAINS)
def test_domain_identifiers_are_equal_exactly_when_descriptors_are(one: Any, two: Any) -> None:
    assert (one.identifier == two.identifier) == (one == two)


@given(METRICS, METRICS)
def test_metric_identifiers_are_equal_exactly_when_descriptors_are(one: Any, two: Any) -> None:
    assert (one.identifier == two.identifier) == (one == two)


@given(DOMAINS)
def test_descriptors_survive_opendp_and_json(domain: Any) -> None:
    if not isinstance(domain, Sketch):
        assert adopt_domain(to_dp_domain(domain)) == domain
    if isinstance(domain, RealRows | GridRows):
        assert from_json(to_json(domain)) == domain
    assert is_dataclass(domain)
    assert fields(domain)


def test_records_and_metrics_survive() -> None:
    records = Records(
        (Column("x", "array[f32, 3]", (0, 1)), Column("y", "category", keys=("a", 'b"')))
    )
    assert from_json(to_json(records)) == records
    for metric in (Symmetric(), IdDistance("user"), VectorNorm("l1"), VectorNorm("l2")):
        assert adopt_metric(to_dp_metric(metric)) == metric


def test_opendp_s_own_spaces_are_read() -> None:
    plain = adopt_domain(array2_domain(num_columns=3, nan=False, T=float))
    assert (plain.width, plain.norm) == (3, None)  # type: ignore[attr-defined]
    normed = adopt_domain(array2_domain(num_columns=3, nan=False, T=float, norm=2.0, p=2))
    assert normed.norm == ("l2", 2.0)  # type: ignore[attr-defined]
    for foreign in (
        array2_domain(num_columns=3, nan=True, T=float),
        array2_domain(num_columns=3, nan=False, T=float, size=5),
        array2_domain(nan=False, T=float),
        dp.atom_domain(T=float),
    ):
        with pytest.raises(SpaceError, match="OS201"):
            adopt_domain(foreign)
    with pytest.raises(SpaceError, match="OS202"):
        adopt_metric(dp.change_one_distance())


HIDDEN = "record 123.456"


def _fails(kind: type[BaseException]) -> Any:
    def private(data: Any) -> Any:
        local = data  # a frame that holds data
        try:
            raise ValueError(HIDDEN)
        except ValueError as cause:
            if kind is DataError:
                raise DataError("OS603", "x", expected="a", got="b", hint="c") from cause
            raise kind(HIDDEN, local) from cause

    return private


@pytest.mark.parametrize("kind", [ValueError, DataError, KeyError])
def test_an_exception_carries_no_data(kind: type[BaseException]) -> None:
    with pytest.raises(SimError) as caught:
        guarded(_fails(kind), "here")(np.full(3, 77.25))
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename.endswith("bridge.py"):
            held = repr(frame.tb_frame.f_locals)
            assert "77.25" not in held
            assert HIDDEN not in held
        frame = frame.tb_next
    assert HIDDEN not in "".join(traceback.format_exception(error))


def test_arithmetic_warnings_do_not_depend_on_data(recwarn: pytest.WarningsRecorder) -> None:
    guarded(lambda x: x / 0.0, "here")(np.array([1.0, 0.0]))
    guarded(lambda x: np.array([1e308]) * x, "here")(np.array([1e308]))
    assert not recwarn.list


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint64, np.int64])
def test_narrow_labels_do_not_wrap(dtype: Any) -> None:
    out = np.zeros((1, 5, 128), dtype=np.int64)
    count_ids(np.zeros((1, 3), dtype=np.int64), np.array([2, 2, 4], dtype=dtype), out)
    assert out.sum(axis=(0, 2)).tolist() == [0, 0, 2, 0, 1]


def test_rows_take_no_attribute() -> None:
    """OpenDP hangs the input of a call on an output that takes attributes."""
    with pytest.raises(AttributeError):
        Rows(np.zeros((1, 1))).__opendp_dict__ = {}  # type: ignore[attr-defined]


@given(st.fractions(min_value=0, max_value=10**30))
def test_outward_rounding(value: Fraction) -> None:
    assert Fraction(float_up(value)) >= value >= Fraction(float_down(value))
    root = Fraction(sqrt_up(value))
    assert root**2 >= value
    assert root**2 <= value * (1 + Fraction(1, 2**50)) ** 2


def test_overflow_fails_closed() -> None:
    sensitivity = sensitivity_of(
        [SketchBlock("a", (1,), l1=2**40, l2_squared=2**80, linf=2**40)], monotone=True
    )
    assert sensitivity.bound("l1", 2**22) == 2**62
    with pytest.raises(SpaceError, match="OS205"):
        sensitivity.bound("l1", 2**23)
    assert sensitivity.bound("l2", 2**31) == float(2**71)


def test_every_error_is_catalogued_and_hints() -> None:
    with pytest.raises(RuntimeError):
        InternalError("OS999", "x", expected="a", got="b", hint="c")
    with pytest.raises(RuntimeError):
        InternalError("OS901", "x", expected="a", got="b", hint="")
    assert list(CATALOGUE) == sorted(CATALOGUE)


def test_every_function_of_a_test_file_is_run() -> None:
    """A rename once took the prefix from six tests, and nothing failed."""
    prose = re.compile(r'"""[\s\S]*?"""|(?<!\S)# .*')
    code = {f: prose.sub("", f.read_text("utf-8")) for f in sorted(TESTS.rglob("*.py"))}
    used = {w for t in code.values() for w in re.findall(r"(?<!^def )\b\w+", t, re.MULTILINE)}
    never = [
        f"{file.relative_to(TESTS)}: {name}"
        for file, text in code.items()
        if file.name.startswith("test_")
        for above, name in re.findall(r"^(@.*\n)?def (\w+)", text, re.MULTILINE)
        if not name.startswith("test_") and "fixture" not in above and name not in used
    ]
    assert not never


ROOT = Path(__file__).parents[1]


def modules() -> dict[str, ast.Module]:
    """Return every module of the package by its dotted name."""
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): tree
        for file, tree in files().items()
        if file.name != "__init__.py"
    }


def needed(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports, in functions and for types too."""
    for child in statements(tree):
        if isinstance(child, ast.ImportFrom) and child.module:
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
            yield child.module
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)


def circle(needs: dict[str, set[str]]) -> list[str]:
    """Return the modules of one circle; none where there is no circle."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_needs_one_that_needs_it() -> None:
    known = modules()
    needs = {
        name: {each for each in needed(tree) if each in known and each != name}
        for name, tree in known.items()
    }
    assert sum(map(len, needs.values())) > 2 * len(known)
    assert circle(needs) == []


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


MARK = "# fmt: " + "skip"
_KEPT = re.compile(r"\bparam\(|\braise\b|\w*(?:Error|[Rr]efus\w*)\(|\bOS\d{3}\b|\bhint=")


def against(text: str) -> list[int]:
    """Return the marked lines of statements that are no parameters and no refusals."""
    lines = text.splitlines()
    marked = [number for number, line in enumerate(lines, 1) if line.endswith(MARK)]
    own: dict[int, ast.stmt] = {}
    for node in statements(ast.parse(text)):  # what is inside comes after what is around it
        if isinstance(node, ast.stmt):
            own |= dict.fromkeys(
                marked[bisect_left(marked, node.lineno) : bisect_right(marked, node.end_lineno)],
                node,
            )
    return [
        number
        for number, node in own.items()
        if not _KEPT.search("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    ]


@pytest.mark.parametrize("folder", ["opendp_sim", "tests", "docs"])
def test_only_parameters_and_refusals_are_kept_from_the_formatter(folder: str) -> None:
    found = {}
    for file in sorted((ROOT / folder).rglob("*.py")):
        text = file.read_text("utf-8")
        if MARK in text and (lines := against(text)):
            found[str(file.relative_to(ROOT))] = lines
    assert found == {}


def test_a_table_kept_from_the_formatter_is_found() -> None:
    assert against(f"x = [1,\n     2]  {MARK}\n") == [2]
    assert against(f'raise ValueError("OS101",\n    got=1)  {MARK}\n') == []
