"""Budgets count work: the speed of a machine decides no verdict."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from typing import Any

import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit, work
from opendp_sim.audit.work import run_cost
from tests.audit.growing import scaled
from tests.audit.opaque.kit import PURE, SYMMETRIC, opaque, whole
from tests.audit.test_sound_programs import BRIEF

_NOISE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)


def _made(noise: Any, claim: float) -> Any:
    return opaque(whole(0, 9), SYMMETRIC, PURE, lambda rows: noise(sum(rows)), lambda d: claim * d)


_SMALL = replace(
    BRIEF, seconds=0.1, trace_seconds=0.1, stability_seconds=0.02, witness_seconds=0.05
)


def _told(made: Any) -> tuple[list[Any], int]:
    """Return verdict, finding and runs, and the runs of the layer whose number depends on its draws."""
    report = audit(made, 1, _SMALL)
    rows = [
        (x.layer, x.status, x.runs * (x.status != "refuted" and not x.layer.startswith("L3")))
        for x in report.layers
    ]
    drawn = sum(x.runs for x in report.layers if x.layer.startswith("L3"))
    return [report.verdict, report.layer, report.tried, *rows], drawn


@pytest.mark.parametrize("claim", [9.0, pytest.param(1.0, marks=pytest.mark.long)])
def test_a_report_does_not_depend_on_the_clock(
    claim: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same runs in every layer at 20 times and at a twentieth of a processor's speed."""
    monkeypatch.setattr(work, "_GUARD", 1e9)  # the last guard is a clock, and has its own test
    real, made = time.process_time, _made(_NOISE, claim)
    first, drawn = _told(made)
    assert first[0] == ("not refuted" if claim == 9.0 else "refuted")
    for speed in (20.0, 0.05):
        monkeypatch.setattr(time, "process_time", scaled(real, speed))
        found, runs = _told(made)
        assert found == first
        if claim == 9.0:  # a bet that is won ends after as many draws as the noise lets it
            assert drawn / 3 < runs < 3 * drawn


def test_runs_cost_their_lines_and_not_their_time() -> None:
    def lines(rows: list[int]) -> int:
        total = 0
        for row in rows:
            total += row
        return total

    few, many = run_cost(lines, [1] * 10), run_cost(lines, [1] * 1000)
    assert 10 < many / few < 100
    assert run_cost(lines, [1] * 10) == pytest.approx(few)
    assert run_cost(lambda _: time.sleep(0.01), []) < 1e-4
    assert run_cost(lambda _: 1 / 0, []) < 1e-4


def test_garbage_costs_a_run_nothing() -> None:
    """A collection, and what others hang on it, depends on the process and not on the run."""

    def cells(rows: list[int]) -> list[list[int]]:
        return [[row] for row in rows]

    def others(_phase: str, _info: dict[str, int]) -> None:
        for _ in range(100):
            pass

    alone, before = run_cost(cells, [1] * 100), gc.get_threshold()
    gc.callbacks.append(others)
    gc.set_threshold(1)
    try:
        assert run_cost(cells, [1] * 100) == pytest.approx(alone)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(others)
    assert gc.isenabled()


def test_the_last_guard_ends_what_has_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call into C costs one line; the report warns that the search was ended early."""
    made = _made(_NOISE, 9.0)
    assert not any("last guard" in text for text in audit(made, 1, _SMALL).warnings)
    monkeypatch.setattr(work, "_GUARD", 0.0)
    report = audit(made, 1, _SMALL)
    assert report.verdict == "not refuted"
    assert any("last guard" in text for text in report.warnings)


def test_a_plan_that_runs_in_c_costs_what_it_takes() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.LazyFrame({"x": [1, 2]})
    per_line = work._LINE
    assert run_cost(lambda lf: lf.collect(), frame) > 600 * per_line
    assert run_cost(lambda lf: lf.select("x"), frame) < 600 * per_line
