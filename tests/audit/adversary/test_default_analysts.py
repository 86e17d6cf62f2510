"""Interactive releases that nobody says how to ask: what the default drivers ask, and what they find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.adversary.analyst import Driver
from opendp_sim.audit.adversary.default_analysts import default_driver
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.audit.generators.user_level import PersonSpace
from opendp_sim.cli._audit_spec import spec_subjects
from opendp_sim.core.bridge import build
from opendp_sim.core.errors import AuditError
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.domains.rows import GridRows
from opendp_sim.measurements.knn.ind_knn import IndKnn
from tests._tiers import some, tiered
from tests.audit.growing import refuted
from tests.audit.twins.stand_ins import LINE, SYMMETRIC
from tests.audit.twins.twins_default_drivers import CONTROLS, IND, TWINS, adaptive, service

SPECS = Path(__file__).parents[3] / "specs"
SHORT = replace(
    Effort.of("quick"),
    stability_seconds=0.3,
    stability_trials=800,
    seconds=0.3,
    witness_seconds=0.0,
)
BRIEF = replace(SHORT, stability_trials=100, seconds=0.1)
"""For what is sound: L1 prices the whole transcript exactly, from the first pair of the driver on."""


def shift(obj: Any, d_in: int = 1) -> float:
    """What the first pair of a driver hides, over its noise."""
    driver = default_driver(obj, d_in)
    hidden = driver.trace(driver.pairs[0].left) - driver.trace(driver.pairs[0].right)
    return float(np.square(hidden).sum()) / 2


def test_a_service_is_asked_near_the_record_that_differs_until_it_has_spent_its_purse():
    """A record's purse is rho 0.5; clipping to whole steps leaves less than a hundredth of it."""
    assert 0.495 < shift(service(IND)) <= 0.5


def test_pairs_of_a_service_differ_in_as_many_records_as_the_distance_says():
    made = service(IND)
    assert 4 * 0.495 < shift(made, 2) <= 4 * 0.5
    for d_in in (1, 2):
        for pair in default_driver(made, d_in).pairs:
            assert abs(len(pair.left) - len(pair.right)) == d_in


@pytest.mark.long
def test_a_service_by_person_is_asked_about_a_person():
    grid = GridRows(width=2, labels=(0, 1), lower=(-9,), upper=(9,), ids=True)
    metric = IdDistance("person")
    made = build(IND.bind(grid, metric), "ind_knn", grid, metric)
    driver = default_driver(made, 1)
    assert isinstance(space_of(made.input_domain, made.input_metric, 1), PersonSpace)
    for pair in driver.pairs:
        persons = [set(side.ids.tolist()) for side in (pair.left, pair.right)]
        assert len(persons[0] ^ persons[1]) == 1
    assert 0.495 < shift(made) <= 0.5
    assert audit(made, 1, BRIEF, beta=1e-6).verdict == "not refuted"


@pytest.mark.long
def test_the_report_says_what_was_asked():
    report = audit(service(IND), 1, BRIEF, beta=1e-6)
    assert "asked by default: 45 rows of the domain as the reference" in str(report)
    assert report.to_dict()["asked"].startswith("45 rows of the domain")


def test_a_driver_is_the_same_whatever_the_data():
    """Its questions are fixed before a dataset is seen: two traces of one dataset are equal."""
    driver = default_driver(service(IND), 1)
    data = driver.pairs[0].left
    assert np.array_equal(driver.trace(data), driver.trace(data))


def test_a_users_own_driver_is_used_instead():
    asked: list[Any] = []

    def drive(queryable: Any) -> Any:
        asked.append(queryable)
        return 1.0

    report = audit(adaptive(1.0), 1, SHORT, drive=drive)
    assert asked
    assert report.to_dict()["asked"] is None


def _only_complex(data: Any) -> Any:
    return dp.new_queryable(lambda q: len(data) if q == 7j else 1 / 0)


@pytest.mark.long
def test_a_queryable_that_takes_no_measurement_is_refused_with_advice():
    made = dp.m.make_user_measurement(LINE, SYMMETRIC, dp.max_divergence(), _only_complex, float)
    with pytest.raises(AuditError, match="pass drive="):
        audit(made, 1, SHORT)


def test_a_queryable_that_is_asked_by_the_user_is_refuted():
    made = dp.m.make_user_measurement(LINE, SYMMETRIC, dp.max_divergence(), _only_complex, float)
    longer = replace(SHORT, seconds=3.0)  # its runs take a millisecond
    report = refuted(made, 1, longer, drive=lambda queryable: queryable(7j))
    assert report.verdict == "refuted"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "measure",
    [
        dp.max_divergence,
        dp.zero_concentrated_divergence,
        lambda: dp.approximate(dp.max_divergence()),
    ],
)
@pytest.mark.parametrize(
    "space",
    tiered(
        [
            (LINE, SYMMETRIC),
            (dp.vector_domain(dp.atom_domain(T=int), 4), dp.change_one_distance()),
            (dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)),
            (dp.atom_domain(T=int), dp.absolute_distance(T=int)),
        ],
        lambda space: space[0] is LINE,
    ),
    ids=["records", "changed records", "cells", "number"],
)
def test_odometers_of_every_space_are_asked_exactly_what_they_account_for(space, measure):
    """The largest ratio is 1, within what OpenDP rounds outward."""
    made = dp.c.make_fully_adaptive_composition(*space, output_measure=measure())
    report = audit(made, 1, BRIEF, beta=1e-6)
    assert report.verdict == "not refuted"
    assert "at losses 0.5 and 0.25 and 0.25" in str(report)


def test_a_filter_is_asked_for_all_that_it_gives():
    odometer = dp.c.make_fully_adaptive_composition(
        LINE, SYMMETRIC, output_measure=dp.max_divergence()
    )
    made = dp.c.make_privacy_filter(odometer, 1, 0.7)
    driver = default_driver(made, 1)
    assert isinstance(driver, Driver)
    report = audit(made, 1, BRIEF, beta=1e-6)
    assert report.verdict == "not refuted"
    stability = next(layer for layer in report.layers if layer.layer == "L1 stability")
    assert 0.99 < stability.facts["largest_ratio"] <= 1.0 + 1e-9


@pytest.mark.parametrize("name", some(["digits-hybrid", "digits-session", "digits-private-knn"], 3))
def test_a_served_spec_is_asked_by_default(name):
    found = spec_subjects(SPECS / f"{name}.yaml")
    assert [path.split("#")[1] for path, _, _ in found] == [
        "neighbours (before the noise)",
        "neighbours",
    ]
    _, made, options = found[-1]
    assert isinstance(options["drive"], Driver)
    assert (options["drive"].trace is None) == (name == "digits-private-knn")
    assert audit(made, 1, BRIEF, beta=1e-6, **options).verdict == "not refuted"


@pytest.mark.parametrize(
    "twin",
    tiered(
        (t for t in TWINS if t.family == "ind_knn" and "one_noise" not in t.name),
        lambda twin: twin.name == "ind_knn/asked_exact_count",
    ),
    ids=lambda t: t.name,
)
def test_overspending_of_a_service_shows_along_one_transcript(twin):
    """Exact: whatever the seed. That noise is shared shows in conversations only (the deep corpus)."""
    report = audit(twin.make(), 1, SHORT)
    assert report.layer == "L1 stability", str(report)
    assert report.evidence.confidence == "exact"


@pytest.mark.long
def test_a_setting_whose_record_is_never_near_is_still_asked():
    made = service(IndKnn(rho=0.5, queries=20, size=20, threshold=1.0, centre=False))
    assert audit(made, 1, BRIEF, beta=1e-6).verdict == "not refuted"


def test_the_corpus_has_every_interactive_mechanism():
    assert {t.family for t in TWINS} == {"ind_knn", "hybrid_knn", "private_knn", "composition"}
    assert {c.family for c in CONTROLS} == {t.family for t in TWINS}
    assert all("drive" not in t.options for t in TWINS)


def test_a_filter_is_asked_for_little_and_then_for_much_and_no_answer_is_one() -> None:
    """One that looks whether something is left, before it charges, was asked whole numbers: too much at once."""
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    spent = []

    def release(rows: list[int]) -> Any:
        left = 1.0

        def answer(epsilon: Any) -> Any:
            nonlocal left
            if left <= 0 or not 0 < epsilon <= 5:
                raise ValueError
            left -= epsilon
            spent.append(epsilon)
            return None if epsilon < 1 else len(rows) / epsilon

        return dp.new_queryable(answer)

    driver = default_driver(
        obj := dp.m.make_user_measurement(*space, dp.max_divergence(), release, float), 1
    )
    assert driver is not None
    spent.clear()
    heard = driver(obj([1] * 6))
    assert spent == [0.5, 3]
    assert heard[1:3] == (-2e9, 2.0)
    assert set(heard) == {-1e9, -2e9, 2.0}


def test_a_queryable_of_floats_is_asked_numbers() -> None:
    """The refusal said that numbers are asked without a driver, of a queryable of floats."""
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    asked: list[float] = []

    def release(rows: list[int]) -> Any:
        def answer(epsilon: float) -> float:
            if not epsilon or sum(asked) + epsilon >= 4:
                raise ValueError
            asked.append(epsilon)
            return len(rows) / epsilon

        return dp.new_queryable(answer, float, float)

    obj = dp.m.make_user_measurement(*space, dp.max_divergence(), release, float)
    driver = default_driver(obj, 1)
    assert driver is not None
    asked.clear()
    assert driver(obj([1] * 6))[:4] == (-1e9, 12.0, 2.0, -1e9)
    assert asked == [0.5, 3.0]


@pytest.mark.long
def test_an_answer_that_is_remembered_without_its_noise_is_found() -> None:
    """Keys were asked once each."""
    noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 2.0)

    def release(rows: list[int]) -> Any:
        seen: set[int] = set()

        def answer(key: int) -> int:
            exact = sum(row == key for row in rows)
            return exact if key in seen else seen.add(key) or int(noise(exact))

        return dp.new_queryable(answer, Q=int, A=int)

    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    obj = dp.m.make_user_measurement(*space, dp.max_divergence(), release, lambda d: d / 2)
    driver = default_driver(obj, 2)
    assert driver is not None
    assert driver.words.endswith("each once, and then 0, 1 again, 6 times")
    assert [(pair.left, pair.right) for pair in driver.pairs] == [([], [0, 0]), ([], [1, 1])]
    budget = replace(SHORT, seconds=3.0)
    assert refuted(obj, 1, budget).verdict == "refuted"
