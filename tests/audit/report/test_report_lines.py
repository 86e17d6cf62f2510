"""Lines of a report: they run as printed, and name datasets in one order everywhere."""

from __future__ import annotations

import contextlib
import io
import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import opendp.prelude as dp
import pytest

from opendp_sim.audit import Report, audit, run
from opendp_sim.audit.claims.curves import approx_curve
from opendp_sim.audit.findings import Effort, Evidence, LayerResult, mirrored
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.report.counterexample import Witness
from opendp_sim.audit.report.report import stronger_lines, worst_of
from opendp_sim.audit.trace.explanations import looked
from opendp_sim.audit.trace.layer import LAYER
from tests.audit.growing import audit_until, shown

dp.enable_features("contrib", "honest-but-curious")
_SPACE = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
_NOISE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)
BRIEF = replace(Effort.of("quick"), seconds=0.4, trace_seconds=0.6, scan_pairs=40, total=0.5)
_EVIDENCE = Evidence(
    "event",
    "the loss is 2 times the claim (draw 1: laplace 1, of 0 on the left, 3 on the right, left.py:2)",
    "epsilon 1: P[left in S] <= e^1 P[right in S] + 0",
    "about 0.5 on the left, 0.1 on the right",
    Pair([1, 2], [1], 1),
    ("a", "b"),
)
_WITNESS = Witness("output >= 2", Pair([2], [], 1), (90, 10), 100, 1.2, 0.0, "print(1)")


def _report(evidence: Evidence | None = None, witness: Witness | None = None, **more) -> Report:
    status = "not refuted" if evidence is None else "refuted"
    layer = LayerResult("L3 distribution", status, seconds=1.0, evidence=evidence, **more)
    return Report("obj", 1, "quick", 0, 1e-3, (layer,), 1.0, {}, witness=witness, opaque=True)


def _measurement(function, epsilon: float = 1.0) -> dp.Measurement:
    return dp.m.make_user_measurement(
        *_SPACE, dp.max_divergence(), function, lambda d: epsilon * float(d)
    )


def test_the_script_of_a_report_runs_as_it_is_printed() -> None:
    made = _measurement(lambda rows: _NOISE(3 * len(rows)))
    text = str(audit(made, 1, replace(Effort.of("quick"), seconds=2.0)))
    printed = text[text.index("\n# to count the event yourself:") :]
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(printed, {"obj": made})  # noqa: S102 - the printed lines
    assert "epsilon is at least" in told.getvalue()


def test_datasets_are_shown_as_the_event_was_seen_on_them_and_a_larger_pair_is_said() -> None:
    report = _report(_EVIDENCE, _WITNESS)
    text = str(report)
    assert "    left (x)   [2]\n    right (y)  []\n" in text
    assert "of a larger pair" in text
    assert "90 of 100 on x,\n               10 of 100 on y" in text
    assert "outputs" not in text  # of other datasets
    assert "left = [2]\nright = []" in report.search
    plain = json.loads(report.to_json())["witness"]
    assert "turned" not in plain
    same = str(_report(_EVIDENCE, replace(_WITNESS, pair=_EVIDENCE.pair)))
    assert "left (x)   [1, 2]" in same
    assert "larger" not in same


def test_an_event_that_draws_do_not_show_names_its_own_datasets() -> None:
    text = str(_report(_EVIDENCE, replace(_WITNESS, certified=False)))
    assert "left       [1, 2]" in text
    assert "90 of 100 on x = [2],\n               10 of 100 on y = []" in text


def test_a_counterexample_the_other_way_round_says_the_same() -> None:
    other = _EVIDENCE.flipped()
    assert (other.pair.left, other.outputs) == ([1], ("b", "a"))
    assert "of 0 on the right, 3 on the left, left.py:2" in other.detail
    assert "P[right in S] <= e^1 P[left in S]" in other.claimed
    assert other.flipped() == replace(_EVIDENCE, pair=other.flipped().pair)
    assert mirrored(2.0) == 2.0


def test_a_witness_says_whether_its_sides_are_exchanged() -> None:
    """Only keys of the left come out, so the event is one of the left whatever side was given first."""

    def release(rows: list[int]) -> str:
        return "some" if rows else "none"

    for pair in (Pair([1], [], 1), Pair([], [1], 1)):
        witness = shown(_measurement(release), pair, approx_curve(1.0, 0.0), 0.5)
        assert witness is not None
        assert witness.turned == (witness.pair.left != pair.left)


def test_noise_is_tested_on_one_dataset() -> None:
    evidence = replace(_EVIDENCE, pair=Pair([1], [1], 0), outputs=None)
    assert "    dataset    [1]\n" in str(_report(evidence))


def _view(*draws: object, loss: float = 0.0) -> SimpleNamespace:
    view = SimpleNamespace(draws=draws, other=draws)
    return SimpleNamespace(pair=Pair([1], [], 1), loss=loss, view=view)


def _tracer(*best: SimpleNamespace, odd: tuple[str, ...] = (), hidden: bool = False) -> Any:
    seen = SimpleNamespace(best=list(best), odd=dict.fromkeys(odd), pairs=9, sizes={1})
    budget = SimpleNamespace(name="quick")
    return SimpleNamespace(
        seen=seen, hidden=hidden, stateful=False, unlike=False, budget=budget, functions=[]
    )


_PRICED = SimpleNamespace(law=object(), free=None, hint=None, options=None)


def test_a_cost_above_the_claim_is_a_hint_and_not_nothing_odd() -> None:
    told = looked(_tracer(_view(_PRICED, loss=3.0)), refuted=False)
    assert "the costliest is 3 of the claim" in told
    assert 'a hint that draws did not confirm: budget="deep"' in told
    assert "nothing odd" not in told
    deep = _tracer(_view(_PRICED, loss=3.0))
    deep.budget.name = "deep"
    assert 'budget="deep"' not in looked(deep, refuted=False)
    assert "hint" not in looked(_tracer(_view(_PRICED, loss=3.0)), refuted=True)
    assert looked(_tracer(_view(_PRICED, loss=0.5)), refuted=False).endswith("nothing odd")
    assert "up to 1 record;" in told


@pytest.mark.long
def test_noise_behind_a_function_is_not_called_missing() -> None:
    def squares(rows: list[int]) -> int:
        return sum(min(row * row, 100) for row in rows)

    number = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    made = dp.t.make_user_transformation(*_SPACE, *number, squares, lambda d: 100 * d)
    priced = "too large, by however little would have been calculated"
    text = str(audit_until(lambda r: priced in str(r), made >> dp.m.then_laplace(100.0), 1, BRIEF))
    assert "without noise" not in text
    assert priced in text


def test_advice_is_what_can_be_done_with_such_outputs() -> None:
    def said(*, asked: bool = False, budget: str = "quick", **facts: object) -> str:
        layer = LayerResult("L0 structure", "not refuted", facts=facts)
        return stronger_lines([layer], budget, asked=asked)[-1]

    assert "core=" not in said()
    assert "audit(this)" in said(advice="audit(this)")
    assert 'budget="deep"' in said()
    assert 'budget="deep"' not in said(budget="deep")
    assert "drive=" in said(asked=True)


def test_a_hint_stands_under_the_headline() -> None:
    hint = "a hint, and no finding: the costliest is 2 of the claim"
    assert str(_report(facts={"hint": hint})).split("\n")[1] == f"  {hint}"
    assert hint not in str(_report(_EVIDENCE, facts={"hint": hint}))


@pytest.mark.long
def test_a_pair_above_the_claim_along_its_tape_is_a_hint() -> None:
    """Equal noisy values need not be the cheapest coupling: a parity of them keeps the claim."""
    report = audit(_measurement(lambda rows: _NOISE(len(rows)) % 2, 0.5), 1)
    assert report.verdict == "not refuted"
    assert report.hints[0].startswith("a hint, and no finding: the costliest is 2 of the claim")
    assert audit(_measurement(lambda rows: _NOISE(len(rows))), 1, BRIEF).hints == []


@pytest.mark.long
def test_what_was_given_is_given_again() -> None:
    made, tried = _measurement(lambda rows: _NOISE(len(rows))), [([1], [])]
    report = audit(made, 1, BRIEF, pairs=tried, mine=False)
    assert "beta=0.001, pairs=pairs, mine=False)  # with what you gave" in report.search
    assert "given" not in audit(made, 1, BRIEF).search
    compile(report.search, "search", "exec")


@pytest.mark.long
def test_without_constants_of_its_code_the_noise_is_recorded_all_the_same() -> None:
    """The whole layer was dropped without a word; a number of the code is still not tried."""
    seen: list[int] = []

    def release(rows: list[int]) -> int:
        seen.extend(row for row in rows if row == 918_273_645)
        return _NOISE(len(rows))

    made = _measurement(release)
    report = audit(made, 1, BRIEF, mine=False)
    assert [layer.layer for layer in report.layers].count(LAYER) == 1
    assert 918_273_645 not in seen
    audit(made, 1, BRIEF)
    assert 918_273_645 in seen


# --- three verdicts -------------------------------------------------------------------------------


def test_the_three_verdicts_say_what_they_are() -> None:
    priced = _report(facts={"priced": _EVIDENCE, "pairs": 1234, "hint": ""})
    assert (priced.verdict, priced.evidence, priced.priced) == ("priced", None, _EVIDENCE)
    assert "priced by L3 distribution: the loss is 2 times the claim" in str(priced)
    assert "No problem found" not in str(priced)
    assert json.loads(priced.to_json())["priced"]["claimed"] == _EVIDENCE.claimed
    quiet = _report(facts={"pairs": 1234})
    first, second = str(quiet).split("\n")[:2]
    assert "not refuted" in first
    assert second == "  No problem found in 1,234 pairs. This is not a proof."
    refuted = _report(_EVIDENCE, facts={"priced": _EVIDENCE, "warning": "!"})
    assert (refuted.verdict, refuted.priced, refuted.warnings) == ("refuted", None, [])
    assert worst_of([quiet, priced]) == "priced"
    assert worst_of([quiet, priced, refuted]) == "refuted"
    assert worst_of([quiet]) == "not refuted"


def test_a_price_passes_a_test_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    priced = _report(facts={"priced": _EVIDENCE})
    monkeypatch.setattr(run, "audit", lambda *_, **__: priced)
    with pytest.warns(UserWarning, match="priced by L3 distribution"):
        assert run.assert_not_refuted(None) is priced


def test_a_release_without_noise_under_a_finite_claim_is_a_warning() -> None:
    report = audit(_measurement(lambda rows: "fixed"), 1, BRIEF)
    assert report.verdict == "not refuted"
    (text,) = report.warnings
    assert text.startswith("it drew no noise on ")
    assert f"  warning: {text}" in str(report)
    assert audit(_measurement(lambda rows: _NOISE(len(rows))), 1, BRIEF).warnings == []


def test_a_coin_beside_the_tape_is_no_refutation() -> None:
    """Calculated, the loss is 2; with the coin it is log(.001 + .999 e^2) = 1.99914."""

    def release(rows: list[int]) -> int:
        beside = time.perf_counter_ns() % 1000  # drawn by no generator
        return _NOISE(2 * len(rows) if beside else 0)

    assert audit(_measurement(release, 1.9995), 1, BRIEF).verdict != "refuted"


def test_the_records_of_frames_are_counted() -> None:
    """Pairs of frames were said to have "up to 1 record", whatever was drawn."""
    pl = pytest.importorskip("polars")
    space = dp.lazyframe_domain([dp.series_domain("v", dp.atom_domain(T=dp.i32))])
    made = dp.m.make_user_measurement(
        space,
        dp.symmetric_distance(),
        dp.max_divergence(),
        lambda frame: _NOISE(frame.select(pl.len()).collect().item()),
        float,
    )
    (never,) = [line for line in str(audit(made, 1, BRIEF)).splitlines() if "never drawn" in line]
    assert int(never.rpartition("more than ")[2].split()[0]) > 1
