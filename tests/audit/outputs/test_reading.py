"""What an output holds is read wherever it is kept, told where it is not, and the same in every run."""

from __future__ import annotations

import array
import collections
import copy
import dataclasses
import datetime as dt
import enum
import functools
import io
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.claims.curves import approx_curve
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.outputs.encoding import Raised, encode, outcome, structure
from opendp_sim.audit.outputs.predicates import imports_of, literal
from opendp_sim.audit.outputs.reading import Reader, kept_words, read
from tests._tiers import some
from tests.audit.growing import shown, witnessed
from tests.audit.report.test_counterexample import _certified, _measurement
from tests.audit.test_sound_programs import BRIEF

Rows = list[int]
NUMBER = dp.atom_domain(T=int), dp.absolute_distance(T=int)


class Mangled:
    __slots__ = ("__rows", "answer")

    def __init__(self, rows: Rows) -> None:
        self.answer, self.__rows = 7, tuple(rows)


def subclass(base: type, value: Any) -> Callable[[Rows], Any]:
    kind = type("Kind", (base,), {})

    def wrap(rows: Rows) -> Any:
        made = value.view(kind) if base is np.ndarray else kind(value)
        made.rows = list(rows)
        return made

    return wrap


def class_of_a_run(rows: Rows) -> type:
    return type("Answer", (), {"kept": tuple(rows)})


def method_of_a_run(rows: Rows) -> Any:
    class Answer:
        def kept(self) -> Rows:
            return rows

    return Answer()


def class_attribute(rows: Rows) -> Any:
    class Answer:
        kept = tuple(rows)

    made = Answer()
    made.answer = 7
    return made


class Steps:
    def __init__(self, rows: Rows) -> None:
        self.rows, self.left = list(rows), [7]

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        self.rows.clear()
        if self.left:
            return self.left.pop()
        raise StopIteration


class Key:
    def __init__(self, rows: Rows) -> None:
        self.rows = tuple(rows)

    def __repr__(self) -> str:
        return "Key"


def written(kind: Callable[[], Any], encoded: bool) -> Callable[[Rows], Any]:
    def wrap(rows: Rows) -> Any:
        buffer = kind()
        buffer.write(repr(rows).encode() if encoded else repr(rows))
        return buffer

    return wrap


def marked(rows: Rows) -> Any:
    def answer() -> int:
        return 7

    answer.rows = list(rows)  # type: ignore[attr-defined]
    return answer


def total(rows: Rows) -> int:
    return sum(rows)


READ: dict[str, Callable[[Rows], Any]] = {
    "a private slot": Mangled,
    "a number of one's own": subclass(float, 7.0),
    "a list of one's own": subclass(list, [7]),
    "a mapping of one's own": subclass(dict, {"n": 7}),
    "an array of one's own": subclass(np.ndarray, np.array([7])),
    "a method of a list": lambda r: list(r).index,
    "an iterator's attribute": Steps,
    "a buffer of text": written(io.StringIO, encoded=False),
    "an attribute of a function": marked,
    "a function in a partial call": lambda r: functools.partial(max, *r),
    "a bound method": lambda r: Key(r).__init__,
    "a factory of missing keys": lambda r: collections.defaultdict(lambda: r, n=7),
    "a view of a mapping": lambda r: dict.fromkeys([*r, 1]).keys(),
    "a key": lambda r: {Key(r): 7},
    "an array of C's": lambda r: array.array("q", r),
    "an attribute of an object's class": class_attribute,
    "an attribute of a class": class_of_a_run,
    "a variable of a method": method_of_a_run,
    "a constant of a function": lambda r: eval(f"lambda: {sum(r)}"),  # noqa: S307
    "an exception's argument": lambda r: KeyError(Key(r)),
    "what masked cells are filled with": lambda r: np.ma.array([7], fill_value=sum(r)),
    "an imaginary part": lambda r: np.array([7 + 1j * sum(r)]),
    "the last digits of an array": lambda r: np.array([2**60 + sum(r)]),
    "the last digits of a wide float": lambda r: np.array([np.longdouble(1) + len(r) * 2.0**-60]),
    "metadata of an array": lambda r: np.zeros(1, np.dtype("f8", metadata={"rows": tuple(r)})),
    "long bytes": lambda r: b"h" * 600 + bytes(r),
}


def told(wrap: Callable[[Rows], Any], rows: Rows) -> tuple[Any, ...]:
    value = read(wrap(rows))
    encoded = encode([value])
    return encoded.symbols[0], repr(encoded.cells), structure(value)


@pytest.mark.parametrize("name", READ)
def test_what_an_output_keeps_is_read_and_the_same_in_every_run(name: str) -> None:
    first, second, again = (told(READ[name], rows) for rows in ([1, 2, 9], [1, 2], [1, 2, 9]))
    assert first != second
    assert first == again


@pytest.mark.parametrize(
    "make",
    [
        lambda pd, r: pd.Series(["a"], dtype=pd.CategoricalDtype(["a", *map(str, r)])),
        lambda pd, r: pd.DataFrame({"v": pd.Series([7], dtype="Int64" if r[2:] else "int64")}),
        lambda pd, r: pd.DataFrame({"v": [7]}).rename_axis(index=f"{len(r)}"),
        lambda pd, r: pd.DataFrame({"v": [7]}).rename_axis(columns=f"{len(r)}"),
        lambda pd, r: pd.DataFrame([[7, len(r)]], columns=["v", "v"]),
        lambda pd, r: pd.Index([7], name=str(r)),
        lambda pd, r: pd.Categorical(["a"], categories=["a", *map(str, r)]),
    ],
)
def test_types_names_and_categories_of_frames_are_read(make: Any) -> None:
    pd = pytest.importorskip("pandas")
    first, second, again = (
        told(lambda r: make(pd, r), rows) for rows in ([1, 2, 9], [1, 2], [1, 2, 9])
    )
    assert first != second
    assert first == again


def caught(_: Rows) -> Exception:
    try:
        raise ValueError("bad")
    except ValueError as error:
        return error


class Asked:
    answer = 7

    def __init__(self) -> None:
        self.value = 7

    @property
    def rows(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (caught([]), "traceback"),
        ((v for v in [7]), "generator"),
        (np.arange(9)[:1], "larger array"),
        (memoryview(bytes(9))[:1], "more than it shows"),
        (int, "type"),
        (io, "module"),
        (Asked(), "properties"),
        (functools.lru_cache(total), "lru_cache"),
        ([object()], "object"),
    ],
)
def test_what_cannot_be_read_is_named(value: Any, name: str) -> None:
    reader = Reader()
    reader.read(value)
    assert any(name in what for what in reader.unread), reader.unread


@dataclasses.dataclass
class Plain:
    value: int = 7


def test_what_was_read_in_full_names_nothing() -> None:
    class Local:
        def __init__(self) -> None:
            self.value = 7

        def asked(self) -> int:
            return self.value

    pair = collections.namedtuple("pair", "a b")  # noqa: PYI024
    values = [Plain(), Local(), pair(1, 2), dataclasses.make_dataclass("Made", ["value"])(7)]
    values += [np.zeros((2, 3)).T, np.array([2**40]), collections.Counter("aab"), iter([1])]
    for value in [*values, io.StringIO("x"), {1, 2}, dt.date(2020, 1, 1), slice(1), enum.Flag]:
        reader = Reader()
        reader.read(value)
        assert not reader.unread or value is enum.Flag, reader.unread
    assert read(values[2]) is values[2]
    assert read(values[0]) == {"value": 7}
    assert "function" in read(total)


def test_addresses_and_freshly_made_parts_are_no_event() -> None:
    class Local:
        def __init__(self) -> None:
            self.inner = object()

        def __repr__(self) -> str:
            return f"Local({self.inner!r})"

    wraps: list[Callable[[], Any]] = [Local, lambda: lambda: total, lambda: copy.copy, Plain]
    for wrap in (
        *wraps,
        lambda: [object().__repr__],
        lambda: {Key([]): object()},
        lambda: iter([]),
    ):
        first, held = repr(read(wrap())), wrap()
        assert first == repr(read(held)) == repr(read(wrap()))


def test_what_opendp_notes_on_an_output_is_no_part_of_it() -> None:
    """It keeps the arguments of the call, the data, on every object that it returns."""
    obj = _measurement(lambda _: Plain())
    assert read(obj([1, 2])) == read(obj([1])) == {"value": 7}
    wrapped = _measurement(lambda _: subclass(float, 7.0)([3]))
    assert read(wrapped([1])) == {"value": 7.0, "attributes": {"rows": [3]}}
    pd = pytest.importorskip("pandas")
    values = [pd.Series([7]), io.StringIO("x"), lambda: 7, ValueError("x"), Key([]), Steps([])]
    values += [functools.partial(max, 7), Mangled([])]
    for value in values:
        kept = _measurement(lambda _, value=value: value)
        assert "[1, 2]" not in repr(read(kept([1, 2])))


class Counted:
    made = itertools.count()

    def __init__(self, value: int) -> None:
        self._value, self.number, self.token = value, next(self.made), object()

    @functools.cached_property
    def half(self) -> float:
        return self._value / 2


@pytest.mark.long
def test_a_sound_program_may_return_objects() -> None:
    noise = dp.m.make_laplace(*NUMBER, 1.0)

    def release(rows: Rows) -> Any:
        value, buffer = noise(len(rows)), io.StringIO()
        buffer.write(str(value))
        if value > 4:
            raise ValueError(f"{value} is large\nof {object()}")
        parts = [subclass(float, value)([7]), iter([value, 7]), np.array([value, 7]).reshape(2, 1)]
        return [Counted(value), lambda: value, buffer, marked([7]), class_attribute([7]), *parts]

    assert audit(_measurement(release), 1, BRIEF, seed=0).verdict == "not refuted"


class Service:
    def __init__(self, rows: Rows) -> None:
        self._rows = list(rows)


@pytest.mark.long
def test_a_finding_about_what_an_object_keeps_says_so() -> None:
    report = witnessed(_measurement(Service), 1, BRIEF, seed=0)
    assert report.witness is not None
    assert "['_rows']" in report.witness.event
    assert "keeps `_rows` (Service), which whoever is handed it can read" in str(report)
    assert "dp.new_queryable" in str(report)
    assert kept_words({"value": "A", "rows": "A"}, "output['value'] >= 3").count("`") == 4
    assert kept_words({"rows": "A"}, "output >= 3") == kept_words({}, None) == ""
    assert "`rows` (A)" in kept_words({"rows": "A"}, None)


def test_reading_that_fails_is_told() -> None:
    class Fails:
        def __init__(self) -> None:
            self.value = 7

        def __repr__(self) -> str:
            raise ValueError("no text")

    reader = Reader()
    assert isinstance(reader.read(Fails()), Raised)
    assert "raised ValueError" in next(iter(reader.unread))


@pytest.mark.parametrize(
    "name",
    some(
        [
            *("an iterator's attribute", "a mapping of one's own", "a buffer of text"),
            *("a private slot", "an imaginary part"),
        ],
        3,
    ),
)
def test_it_is_shown_by_lines_that_run(name: str) -> None:
    noise = dp.m.make_laplace(*NUMBER, 1.0)

    def release(rows: Rows) -> Any:
        return [noise(len(rows)), READ[name](rows or [5])]

    obj = _measurement(release)
    witness = shown(obj, Pair([], [1], 1), approx_curve(1.0, 0.0), 0.3)
    assert witness is not None
    assert _certified(witness.script, obj) > 1.1


def test_an_exception_is_written_as_itself() -> None:
    raised = outcome(lambda _: {}["a"], [])
    names: dict[str, Any] = {}
    exec(imports_of(literal(raised)), names)  # noqa: S102
    assert eval(literal(raised), names) == raised  # noqa: S307
