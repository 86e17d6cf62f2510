"""Exceptions are outputs: every line of what they say is read, and nothing that the data did not make."""

from __future__ import annotations

from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.claims.curves import approx_curve
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.outputs import encoding
from opendp_sim.audit.outputs.encoding import shortened
from opendp_sim.audit.outputs.reading import as_chosen, numpys_own
from tests.audit.growing import shown
from tests.audit.report.test_counterexample import (
    _certified as certified,
    _measurement as measurement,
)

NUMBER = dp.atom_domain(T=int), dp.absolute_distance(T=int)


def _lines(rows: list[int]) -> int:
    raise ValueError(f"the sum was {len(rows)}\nbad data")


def _long(rows: list[int]) -> int:
    raise ValueError("x" * 500 + str(len(rows)))


def _spaces(rows: list[int]) -> int:
    raise ValueError("bad" + " " * len(rows))


def _group(rows: list[int]) -> int:
    raise ExceptionGroup("several", [ValueError(len(rows)), KeyError("name")])


def _within(rows: list[int]) -> int:
    try:
        return {}[len(rows)]
    except KeyError:
        raise ValueError("bad") from ValueError("a\nb")


@pytest.mark.parametrize("fails", [_lines, _long, _spaces, _group])
def test_every_line_of_an_exception_is_read(fails) -> None:
    for run in (fails, measurement(fails), measurement(measurement(fails))):
        first, second = (encoding.outcome(run, data) for data in ([1], [1, 2]))
        assert first.text != second.text
        assert first == encoding.outcome(run, [1])
        assert len(first.text) < 500
        assert "\n" not in first.text


def test_no_place_of_a_traceback_and_no_address_is_read() -> None:
    def fails(_: list[int]) -> int:
        raise ValueError(object())

    told = [encoding.outcome(measurement(f), [3]).text for f in (fails, _lines, _within)]
    assert told[0] == "OpenDPException: ValueError: <object object at 0x>"
    assert told[1] == "OpenDPException: ValueError: the sum was 1\\nbad data"
    assert told[2] == "OpenDPException: ValueError: bad; caused by ValueError: a\\nb"


def test_a_raw_line_of_an_exception_is_shown() -> None:
    noise = dp.m.make_laplace(*NUMBER, 1.0)

    def release(rows: list[int]) -> int:
        if (noisy := noise(len(rows))) > 0:
            _lines(rows)
        return noisy

    obj = measurement(release)
    witness = shown(obj, Pair([], [1], 1), approx_curve(1.0, 0.0), 1.0)
    assert witness is not None
    assert certified(witness.script, obj) > 1.5


def test_what_is_cut_off_an_output_is_told_apart() -> None:
    texts = [b"h" * 600 + bytes([n]) for n in (1, 2, 1)]
    for outputs in (texts, [f"{text!r}" for text in texts], [[1, text] for text in texts]):
        symbols = encoding.encode(outputs).symbols
        assert (symbols[0] == symbols[1], symbols[0] == symbols[2]) == (False, True)
    cells = encoding.encode([b"ab", b"ac"]).cells
    assert cells.tolist() == [[97, 98], [97, 99]]
    assert shortened("abc", 3) == "abc"


OWN = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


def test_a_run_has_the_state_that_was_chosen_and_the_auditor_numpys_own() -> None:
    with np.errstate(all="raise"):
        chosen = np.geterr()
        with numpys_own():
            assert np.geterr() == OWN
            assert as_chosen(lambda _: np.geterr())(None) == chosen
            assert np.geterr() == OWN
        assert np.geterr() == chosen


def test_what_a_run_sets_for_itself_ends_with_it() -> None:
    def sets(_: Any) -> None:
        np.seterr(all="raise")
        raise ValueError

    before = np.geterr()
    with numpys_own():
        try:
            as_chosen(sets)(None)
        except ValueError:
            assert np.geterr() == OWN
    assert np.geterr() == before


def test_an_audit_inside_an_audited_run_starts_from_what_the_run_sees() -> None:
    with np.errstate(over="raise"), numpys_own():

        def inner(_: Any) -> Any:
            with numpys_own():
                return as_chosen(lambda _: np.geterr()["over"])(None)

        assert as_chosen(inner)(None) == "raise"
