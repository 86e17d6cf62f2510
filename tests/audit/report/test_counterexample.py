"""Counterexamples for people: what is printed runs as it stands, and shows the finding."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import decimal
import fractions
import io
import itertools
import math
import re
from random import Random
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.claims.curves import approx_curve
from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.outputs import encoding
from opendp_sim.audit.outputs.predicates import PlainEvent, imports_of, literal, parts_of
from opendp_sim.audit.outputs.reading import Reader
from opendp_sim.audit.report.counterexample import affordable, best_events, find_witness, smaller
from opendp_sim.audit.report.report import found_lines
from opendp_sim.audit.report.repro_script import Shown, event_script
from opendp_sim.audit.run import witness_of
from opendp_sim.audit.work import metered
from tests._tiers import some
from tests.audit.growing import audit_until, shown, witnessed
from tests.audit.test_sound_programs import BRIEF

dp.enable_features("contrib", "honest-but-curious")
_INTS = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
_NANS = dp.vector_domain(dp.atom_domain(T=float, nan=True)), dp.symmetric_distance()
_NUMBER = dp.atom_domain(T=int), dp.absolute_distance(T=int)


_NOISE = dp.m.make_laplace(*_NUMBER, scale=1.0)


def _measurement(function, epsilon=1.0, space=_INTS):
    return dp.m.make_user_measurement(
        *space, dp.max_divergence(), function, lambda d: epsilon * float(d)
    )


def _said(script: str, obj: object) -> str:
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(script, {"obj": obj})  # noqa: S102 - the printed lines
    return told.getvalue()


def _certified(script: str, obj: object) -> float:
    return float(_said(script, obj).split("at least ")[1].split(" ")[0])


@pytest.mark.parametrize(
    "value",
    [
        [1, 2.5, "a'b", None, True, b"\0"],
        [math.inf, -math.inf],
        (np.float32(1.5), np.int16(3), np.bool_(True)),
        np.array([[1.0, math.inf]]),
        np.array([], dtype=float).reshape(0, 2),
        [dt.date(2020, 1, 2), dt.datetime(2020, 1, 2, 3), dt.timedelta(3)],  # noqa: DTZ001
        [decimal.Decimal("1.5"), fractions.Fraction(1, 3)],
        {"k": (1,), 2: {3}},
        range(3),
    ],
)
def test_a_dataset_is_written_as_what_makes_it_again(value: object) -> None:
    text, names = literal(value), {}
    exec(imports_of(text), names)  # noqa: S102
    made = eval(text, names)  # noqa: S307
    assert repr(made) == repr(value)


def test_nan_and_frames_are_written_too() -> None:
    assert math.isnan(eval(literal(math.nan)))  # noqa: S307
    pd = pytest.importorskip("pandas")
    text = literal(pd.DataFrame({"a": [1, 2]}))
    assert imports_of(text) == "import pandas as pd"
    assert eval(text, {"pd": pd}).equals(pd.DataFrame({"a": [1, 2]}))  # noqa: S307


def test_an_event_of_numbers_steps_over_what_is_no_number() -> None:
    """A release that is sometimes None, and sometimes raises, is counted all the same."""
    noise = dp.m.make_laplace(*_NUMBER, 0.5)

    def release(rows: list[int]) -> int | None:
        noisy = noise(len(rows))
        if noisy < 0:  # so often that some are sure to be seen
            raise ValueError("too small")
        return noisy if noisy >= 1 else None

    obj = _measurement(release, 0.5)
    witness = shown(obj, Pair([], [1], 1), approx_curve(0.5, 0.0), 1.0)
    assert witness is not None
    assert _certified(witness.script, obj) > 0.5
    pair = Pair([], [math.nan], 1)
    script = event_script(
        pair, PlainEvent("output >= 1", lambda o: o >= 1), Shown(count=9), [None, 2]
    )
    assert "hit(output):" in script
    assert "0.0 0.0" in _said(script, _measurement(lambda _: None, space=_NANS))


def test_noise_that_an_object_keeps_is_shown_on_any_object() -> None:
    def factory() -> object:
        kept = dp.m.make_laplace(*_NUMBER, 100.0)(0)
        return _measurement(lambda rows: len(rows) + kept)

    once = "One object, made once"
    report = audit_until(lambda r: once in r.replay, factory(), 1, BRIEF, seed=0)
    assert once in report.replay
    for _ in range(3):
        assert _certified(report.replay, factory()) > 1


@dataclasses.dataclass
class _Hidden:
    value: int
    rows: int = dataclasses.field(repr=False)


class _Silent:
    def __init__(self, value: int, rows: int) -> None:
        self.value, self._rows = value, rows

    def __repr__(self) -> str:
        return f"Silent({self.value})"


_WRAPS = [
    _Hidden,
    _Silent,
    lambda value, rows: (v for v in (value, rows)),
    lambda value, rows: lambda q="sum": value if q == "sum" else rows,
    lambda value, rows: f'{{"value": {value}, "meta": {{"n": {rows}}}}}',
    lambda value, rows: np.ma.masked_array([value, rows], mask=[False, True]),
]


@pytest.mark.parametrize("wrap", some(_WRAPS, 5))
def test_what_an_output_holds_is_read_and_shown(wrap) -> None:
    noise = dp.m.make_laplace(*_NUMBER, 1.0)
    obj = _measurement(lambda rows: wrap(noise(len(rows)), len(rows)))
    witness = shown(obj, Pair([], [1], 1), approx_curve(1.0, 0.0), 1.0)
    assert witness is not None
    assert witness.certified
    assert _certified(witness.script, obj) > 3


def test_what_is_not_read_is_named() -> None:
    reader = Reader()
    assert reader.read([object(), 1]) == ["<object>", 1]
    assert list(reader.unread) == ["object"]
    deep = Reader()
    deep.read(row for row in range(10_000))
    assert any("beyond" in what for what in deep.unread)
    report = audit(_measurement(lambda _: object()), 1, BRIEF, seed=0)
    assert "output holds an object of type object that was not read" in str(report)
    assert report.to_dict()["unread"] == ["object"]


def test_causes_and_notes_of_an_exception_are_outputs() -> None:
    def fails(rows: list[int]) -> int:
        raise RuntimeError("bad luck") from ValueError(len(rows))

    told = [encoding.outcome(f, [1, 2]).text for f in (fails, _measurement(fails))]
    assert ["bad luck" in text and "ValueError: 2" in text for text in told] == [True, True], told
    error = ValueError("x")
    error.add_note("of 3 rows")
    assert encoding.Raised.of(error).text == "ValueError: x; of 3 rows"


def test_two_small_parts_are_one_event() -> None:
    left = [(i % 2, 500 + i if i % 2 else i) for i in range(400)]
    right = [(i % 2, i if i % 2 or i % 3 else 500 + i) for i in range(400)]
    best = best_events(left, right, approx_curve(1.0, 0.0), 1)[0]
    assert " and " in best.event.text
    assert {sum(map(best.event.holds, side)) for side in (left, right)} >= {0}
    assert [name for name, _ in parts_of([[1, [2]]])] == ["output[0]", "output[1][0]"]


@pytest.mark.long
def test_a_large_pair_is_made_small_before_it_is_counted() -> None:
    def release(rows: list[int]) -> int:
        if 5 in rows:
            raise ValueError("missing value code")
        return 0

    obj = _measurement(metered(release))
    pair = Pair([-2] * 20_000, [*[-2] * 20_000, 5], 1)
    assert affordable(obj, pair, 0.1) < 100
    witness = shown(obj, pair, approx_curve(1.0, 0.0), 0.5)
    assert witness is not None
    assert len(witness.script) < 1500
    assert _certified(witness.script, obj) > 3


def test_two_orders_of_records_never_shrink_to_the_same_dataset() -> None:
    """A refutation at distance 0 was shown on x = y = [True, True]."""
    tried = list(smaller(Pair([0, 0, 1, 1], [1, 1, 0, 0], 0)))
    assert tried
    assert all(pair.left != pair.right for pair in tried)


def test_what_moves_from_call_to_call_is_no_event_and_its_script_says_nothing_of_a_sound_object() -> (
    None
):
    """A counter tells the first runs from the last ones, whatever they are asked."""
    calls = itertools.count()
    obj = _measurement(lambda rows: (next(calls), _NOISE(3 * min(len(rows), 1))), 0.5)
    witness = shown(obj, Pair([], [0], 1), approx_curve(0.5, 0.0), 1.0)
    assert witness is not None
    assert witness.certified
    assert "output[1]" in witness.event
    sound = _measurement(lambda rows: (next(calls), _NOISE(min(len(rows), 1))))
    event = PlainEvent("output[0] >= COUNT", lambda output: output[0] >= 0)
    script = event_script(Pair([], [0], 1), event, Shown(count=400), [])
    said = _said(script.replace("COUNT", str(next(calls) + 400)), sound)
    assert float(re.search(r"at least ([0-9.]+)", said)[1]) < 1.0


_HUGE = 10**400


@pytest.mark.parametrize(
    "shown",
    [
        lambda n: _HUGE + n,
        lambda n: fractions.Fraction(_HUGE + n, 3),
        lambda n: _HUGE if n > 2 else 0.5,
    ],
)
def test_a_number_that_no_float_reaches_ends_no_search(shown) -> None:
    found = find_witness(
        metered(lambda rows: shown(_NOISE(10 * len(rows)))),
        Pair([], [1], 1),
        approx_curve(0.1, 0.0),
        0.1,
    )
    assert found is not None
    assert found.hits[0] > found.hits[1]


def test_an_error_in_the_search_for_an_event_drops_no_finding() -> None:
    evidence = Evidence("event", "seen", "1", "2", Pair([], [1], 1))
    case: Any = None  # whatever is asked of it is an error
    assert witness_of(case, evidence, "", None, 0.0) is None
    assert "the search for one ended with AttributeError" in "".join(
        found_lines(evidence, "L3", None)
    )


def test_an_event_that_was_never_seen_is_not_chosen() -> None:
    """Two rays that no output is in had the smallest lack of all events of a finding that draws do not show."""
    sides = [["abcd"] * 20 + [""] * 20, [""] * 20 + ["abcd"] * 20]
    for chosen in best_events(*sides, approx_curve(3.0, 0.0), 400):
        assert any(map(chosen.event.holds, sides[chosen.swapped])), chosen.event.text
    found = find_witness(metered(lambda _: "abcd"), Pair([], [1], 1), approx_curve(3.0, 0.0), 0.1)
    assert found is None or min(found.hits) > 0


def test_noise_that_is_taken_back_is_shown_by_two_calls() -> None:
    kept: list[int] = []
    wide = dp.m.make_laplace(*_NUMBER, scale=30.0)

    def function(rows: list[int]) -> int:
        if kept:
            return min(len(rows), 1) - kept.pop()
        kept.append(wide(0))
        return min(len(rows), 1) + kept[0]

    obj = _measurement(function)
    report = witnessed(obj, 1, seed=0)
    assert report.witness is not None
    assert report.witness.certified
    assert "calls" in report.witness.event
    said = _said(report.replay, obj)
    assert float(re.search(r"at least ([0-9.]+)", said)[1]) > 2.0


def test_the_last_digits_of_naive_float_noise_are_an_event() -> None:
    """Textbook Laplace in doubles: from 2 no number below 1 is reached that has 54 binary digits."""
    random = Random(1)  # noqa: S311 - the textbook

    def noise() -> float:
        u = random.random() - 0.5
        return math.copysign(math.log(1 - 2 * abs(u)), u)

    sides = [[n - noise() for _ in range(800)] for n in (1, 2)]
    best = best_events(*sides, approx_curve(1.0, 0.0), 1)[0]
    assert "as_integer_ratio()[1] >= 2**" in best.event.text
    assert sum(map(best.event.holds, sides[1])) <= 3 < sum(map(best.event.holds, sides[0])) / 30
