"""What is passed beside the object is looked at first, and what rests on it says so."""

from __future__ import annotations

import itertools
import time
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import (
    Effort,
    NoiseLaw,
    Subject,
    assert_not_refuted,
    audit,
    claimed_distance as asked,
)
from opendp_sim.audit.claimed_distance import check_computes, check_unconditional
from opendp_sim.audit.declaration import has_other_type
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.audit.options import WithPairs, distance_apart, first_tried, given_pairs, separated
from opendp_sim.audit.report.repro_script import imported
from opendp_sim.core.bridge import to_dp_domain, to_dp_metric
from opendp_sim.core.errors import AuditError
from opendp_sim.domains.metrics import IdDistance, Symmetric, VectorNorm
from opendp_sim.domains.rows import GridRows, Rows

dp.enable_features("contrib", "honest-but-curious")
_SPACE = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
_COUNT = _SPACE >> dp.t.then_count() >> dp.m.then_laplace(1.0)
_LAW = NoiseLaw("discrete_laplace", 1.0)
_BRIEF = replace(
    Effort.of("quick"),
    seconds=0.3,
    trace_seconds=0.3,
    stability_seconds=0.2,
    total=0.6,
    noise_runs=100,
    witness_seconds=0.1,
)
_ENDS = replace(_BRIEF, seconds=3.0, trace_seconds=2.0, stability_seconds=1.0, total=5.0)
"""For audits that end early by what they find: a slow machine needs the time, others do not."""


def _raises(*_given: object) -> int:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"noise": "laplace", "core": len}, "audit.noise"),
        ({"noise": NoiseLaw("discrete_laplace", -1.0), "core": len}, "a scale above 0"),
        ({"noise": NoiseLaw("discrete_laplace", "a"), "core": len}, "a scale above 0"),
        ({"core": "x", "noise": _LAW}, "audit.core"),
        ({"core": len}, "core= and noise= together"),
        ({"noise": _LAW}, "core= and noise= together"),
        ({"drive": 3}, "audit.drive"),
        ({"pmf": "x"}, "audit.pmf"),
        ({"pmf": _raises}, "audit.pmf"),
        ({"pmf": lambda _: 3}, "audit.pmf"),
        ({"pmf": lambda rows: {0: 0.4 if rows else 0.9}}, "add up to 1"),
        ({"pmf": lambda _: {0: 1.5, 1: -0.5}}, "add up to 1"),
        ({"pairs": [([1, 2],)]}, "audit.pairs"),
        ({"pairs": [3]}, "audit.pairs"),
        ({"events": {"a": 3}}, "audit.events"),
        ({"events": [len]}, "audit.events"),
        ({"events": {"a": _raises}}, "audit.events.a"),
        ({"generator": _raises}, "audit.generator"),
        ({"generator": lambda _: None}, "audit.generator"),
        ({"seed": "hello"}, "audit.seed"),
        ({"seed": -1}, "audit.seed"),
        ({"seed": True}, "audit.seed"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_an_option_of_another_kind_is_refused_by_its_name(options: dict, told: str) -> None:
    with pytest.raises(AuditError, match="OS501") as error:
        audit(_COUNT, 1, _ENDS, **options)
    assert told in str(error.value)


def test_pairs_that_the_claim_does_not_speak_of_are_left_out() -> None:
    """Six records apart is no counterexample to a claim about one."""
    with pytest.warns(
        UserWarning, match="1 of 2 given pairs are further apart than d_in = 1"
    ) as told:
        report = audit(_COUNT, 1, _BRIEF, pairs=[([1, 2], [5, 6, 7, 8]), ([1], [])])
    assert told[0].filename == __file__
    assert report.verdict == "not refuted"


@pytest.mark.parametrize(
    ("metric", "left", "right", "far"),
    [
        (dp.symmetric_distance(), [1, 2], [2, 1], False),
        (dp.symmetric_distance(), [1, 2], [3, 2], True),
        (dp.insert_delete_distance(), [1, 2], [2, 1], True),
        (dp.insert_delete_distance(), [1], [1, 1], False),
        (dp.insert_delete_distance(), [1] * 6000, [1] * 6002, True),
        (dp.change_one_distance(), [1, 2], [1, 3], False),
        (dp.change_one_distance(), [1], [1, 3], True),
        (dp.hamming_distance(), [1, 2], [2, 1], True),
        (dp.symmetric_distance(), [1], None, False),  # no dataset: said elsewhere
    ],
    ids=lambda value: str(value) if isinstance(value, dp.Metric) else None,
)
def test_how_far_pairs_are_apart(metric: dp.Metric, left: list, right: list, far: bool) -> None:
    assert separated(left, right, 1, metric, dp.vector_domain(dp.atom_domain(T=int))) == far


def test_how_far_tables_of_ours_are_apart() -> None:
    table = to_dp_domain(GridRows(width=1, labels=(0, 1), ids=True, lower=(-4,), upper=(4,)))
    persons, records = to_dp_metric(IdDistance("user")), to_dp_metric(Symmetric())
    none, one, other = (
        Rows(np.array([[v]] * n, float), np.zeros(n, np.int64), np.zeros(n, np.int64))
        for v, n in ((0, 0), (1, 2), (2, 1))
    )
    assert not separated(none, one, 1, persons, table)
    assert separated(none, one, 1, records, table)  # two records of a person who comes
    assert separated(one, other, 1, persons, table)  # a person changes: goes, and comes
    assert not separated(one, other, 2, persons, table)
    norm = to_dp_metric(VectorNorm("l1", weights=((1, 2),)))
    assert not separated([0, 0], [2, 0], 1, norm, None)
    assert separated([0, 0], [2, 1], 1, norm, None)
    few = to_dp_metric(VectorNorm("linf", steps=True, touched=1))
    assert separated([0, 0], [1, 1], 1, few, None)
    assert not separated([0, 0], [1, 1], 2, few, None)
    up = dp.linf_distance(T=int, monotonic=True)
    assert separated([0, 0], [1, -1], 1, up, None)
    assert distance_apart([1], [2, 3], dp.symmetric_distance(), None) == ("SymmetricDistance", 3)
    assert distance_apart(b"a", b"b", dp.discrete_distance(), None) == ("DiscreteDistance", None)


def test_datasets_of_a_generator_are_neighbours_under_the_discrete_distance() -> None:
    """The refusal of a bit vector asked for the generator that had been passed."""
    bits = dp.bitvector_domain(max_weight=8), dp.discrete_distance()
    made = dp.m.make_user_measurement(*bits, dp.max_divergence(), len, float)
    found = audit(made, 1, _ENDS, generator=lambda rng: bytes(int(rng.integers(3))))
    assert found.verdict == "refuted"
    space = space_of(*bits, 1, generator=lambda rng: bytes([int(rng.integers(3))]))
    rng = np.random.default_rng(0)
    same = space.draw(rng, 0)
    assert same.left == same.right
    assert space.mutate(same, rng) is same
    assert {pair.right for pair in space.corners(rng)} == {b"\0", b"\1", b"\2"}
    with pytest.raises(AuditError, match="says no neighbours"):
        space_of(bits[0], dp.absolute_distance(T=int), 1, generator=lambda _: b"")


def test_distances_of_vectors_and_unknown_ones() -> None:
    assert separated([1, 2], [1, 4], 1, dp.l1_distance(T=int), None)
    assert not separated([1, 2], [2, 3], 1, dp.linf_distance(T=int), None)
    assert not separated("x", "y", 1, dp.discrete_distance(), None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (pair,) = given_pairs([[1, 2]], 1, None, None)
    assert (pair.left, pair.right, pair.distance) == (1, 2, 1)


@pytest.mark.parametrize(
    ("core", "told"),
    [
        (_raises, "ZeroDivisionError when it was called, as on every dataset tried"),
        (lambda _: [1, 2, 3], "3 numbers where a release has 1"),
        (lambda _: "x", "no numbers"),
        pytest.param(  # L1 called this exact
            lambda rows: 2 * len(rows), "releases on one side of core=", marks=pytest.mark.long
        ),
    ],
    ids=["raises", "shape", "text", "twice"],
)
def test_a_declaration_that_does_not_fit_is_no_finding(core: object, told: str) -> None:
    with pytest.raises(AuditError, match="OS501") as error:
        audit(_COUNT, 1, _BRIEF, core=core, noise=_LAW)
    assert told in str(error.value)
    assert "audit.core" in str(error.value)


@pytest.mark.parametrize(("family", "drawn"), [("laplace", "laplace"), ("gaussian", "normal")])
def test_releases_around_their_noiseless_part_are_not_called_unlike_it(
    family: str, drawn: str
) -> None:
    """Risk of each 1e-6; numbers so large that noise is rounded away, and cells without a number."""
    rng = np.random.default_rng(3)
    core = np.array([0.0, 5.0, 1e17, np.nan, np.inf])
    subject = Subject(
        run=lambda _: core + getattr(rng, drawn)(size=5),
        core=lambda _: core,
        noise=NoiseLaw(family, 1.0),
        privacy_map=float,
        measure=dp.max_divergence(),
    )
    assert not has_other_type(subject, [])
    assert has_other_type(replace(subject, core=lambda _: core + 0.5), [])
    assert has_other_type(replace(subject, run=_raises), [])
    assert not has_other_type(replace(subject, run=_raises, core=_raises), [])


@pytest.mark.parametrize("field", ["seconds", "total"])
def test_a_budget_without_time_is_refused(field: str) -> None:
    with pytest.raises(AuditError, match="seconds above 0"):
        audit(_COUNT, 1, replace(_BRIEF, **{field: 0.0}))


@pytest.mark.long
def test_a_broken_object_is_refuted_without_the_declaration_that_it_does_not_fit() -> None:
    """L1 prices what is no part of the object; draws see that its own noise is too little."""
    noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 0.5)
    made = dp.m.make_user_measurement(
        *_SPACE, dp.max_divergence(), lambda rows: noise(8 * len(rows)), lambda d: 0.5 * d
    )
    law = NoiseLaw("discrete_laplace", 16.0)
    report = audit(made, 1, _ENDS, core=lambda rows: 99 * len(rows) + 50, noise=law)
    assert report.layer not in ("L1 stability", "L2 noise law")
    assert "declared   releases do not fit core= and noise=, which were left out" in str(report)


@pytest.mark.long
def test_what_rests_on_a_declaration_says_so() -> None:
    wrong = audit(_COUNT, 1, _ENDS, core=len, noise=NoiseLaw("discrete_laplace", 4.0))
    assert wrong.layer == "L2 noise law"
    assert (
        "declared   the object releases something else than core= and noise= say, or they"
        in str(wrong)
    )
    assert wrong.witness is None  # of one dataset
    less = audit(_COUNT, 1, _ENDS, core=len, noise=NoiseLaw("discrete_laplace", 0.5))
    assert less.layer == "L2 noise law"  # and not L1, which takes the scale at its word
    low = replace_map(_COUNT, 0.5)
    text = str(audit(low, 1, _ENDS, core=len, noise=_LAW, trace=False))
    assert "core= and noise= by whoever asked: if they are wrong, so is this finding" in text


def replace_map(made: dp.Measurement, part: float) -> dp.Measurement:
    """Return the same releases under a smaller claim."""
    return dp.m.make_user_measurement(*_SPACE, dp.max_divergence(), made, lambda d: part * d)


def test_noise_that_is_a_measurement_is_compared_by_draws() -> None:
    two = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)
    with pytest.raises(AuditError, match="releases on one side of core="):
        audit(_COUNT, 1, _BRIEF, core=lambda rows: 2 * len(rows), noise=two)


@pytest.mark.long
def test_noise_that_is_the_measurement_s_own_is_not_refuted() -> None:
    one = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)
    assert audit(_COUNT, 1, _BRIEF, core=len, noise=one).verdict == "not refuted"


@pytest.mark.long
def test_releases_that_all_raise_are_said_at_the_top() -> None:
    made = dp.m.make_user_measurement(
        *_SPACE, dp.max_divergence(), lambda _: __import__("no_such_module_of_tests"), float
    )
    lines = str(audit(made, 1, _BRIEF)).split("\n")
    assert "not refuted, but nothing was released (" in lines[0]
    with pytest.raises(AuditError, match="an object that releases something"):
        assert_not_refuted(made, 1, _BRIEF)
    assert lines[2].startswith("  every release raised, so that nothing was released: ")
    assert "No module named 'no_such_module_of_tests'" in lines[2]


def test_a_driver_of_a_module_is_imported_by_the_script() -> None:
    assert imported(_raises) == f"from {__name__} import _raises as drive"
    assert imported(lambda q: q) == ""
    assert imported(3) == ""


def test_what_code_prints_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    def loud(rows: list[int]) -> int:
        print("rows", 1)
        return 0 * len(rows)

    made = dp.m.make_user_measurement(*_SPACE, dp.max_divergence(), loud, float)
    assert audit(made, 1, _BRIEF).verdict == "not refuted"
    assert capsys.readouterr().out == ""


def test_a_release_that_waits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets are CPU seconds: one of half a second on the clock went on for hours."""
    clock = [0.0]
    told = SimpleNamespace(perf_counter=lambda: clock[0], process_time=lambda: 0.0)
    monkeypatch.setattr(asked, "time", told)
    monkeypatch.setattr(asked, "queued_seconds", lambda: 0.0)

    def wait(seconds: float) -> None:
        clock[0] += seconds

    with pytest.raises(AuditError, match="releases that compute") as error:
        check_computes(lambda _: wait(0.25), [])
    assert "CPU s" in str(error.value)
    heard: list[int] = []

    def first_waits(_data: object) -> None:
        heard.append(1)
        wait(0.25 * (len(heard) == 1))  # what is loaded once

    check_computes(first_waits, [])
    assert len(heard) == 2


def test_a_release_in_the_queue_for_a_processor_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine a release of 0.01 CPU seconds took 0.4 on the clock, and was refused."""
    assert asked.queued_seconds() >= 0
    monkeypatch.setattr(asked, "queued_seconds", time.perf_counter)
    check_computes(lambda _: time.sleep(0.25), [])


def _inner() -> dp.Measurement:
    space = (
        dp.vector_domain(dp.atom_domain(T=int, bounds=(0, 10)), size=10),
        dp.symmetric_distance(),
    )
    return dp.t.make_sum(*space) >> dp.m.then_laplace(10.0)


@pytest.mark.parametrize("chained", [False, True])
def test_an_amplified_claim_is_refused_with_its_condition(chained: bool) -> None:
    amplified = dp.c.make_population_amplification(_inner(), population_size=100)
    assert amplified.map(2) < 0.2 * _inner().map(2)
    obj = amplified >> (lambda total: total + 1) if chained else amplified
    with pytest.raises(AuditError, match="sample is secret"):
        audit(obj, 2)


def test_the_measurement_inside_is_not_refused() -> None:
    check_unconditional(_inner())
    check_unconditional(dp.c.make_composition([_inner(), _inner()]))
    with pytest.raises(AuditError, match="sample is secret"):
        check_unconditional(
            dp.c.make_composition(
                [_inner(), dp.c.make_population_amplification(_inner(), population_size=50)]
            )
        )


SPACE = space_of(dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance(), 1)


def test_given_pairs_come_first_and_are_left_as_they_are() -> None:
    rng, given = np.random.default_rng(0), (Pair([1, 2], [1], 1), Pair([7], [], 1))
    space = first_tried(given, SPACE)
    assert isinstance(space, WithPairs)
    assert tuple(itertools.islice(space.corners(rng), 2)) == given
    assert space.mutate(given[0], rng) is given[0]
    assert not list(space.simpler(given[0]))
    drawn = space.draw(rng)
    assert drawn.genome is not None
    assert list(space.simpler(drawn)) == list(SPACE.simpler(drawn))
