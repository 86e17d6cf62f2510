"""What is asked of distance structures: noise as stated, coverage, refusals, classification.

Statistical tests use fresh noise, which has no seed; each states its chance of a false alarm.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.errors import DataError, ParameterError, ReleaseError, SpaceError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, on_queries, resolve
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.io.builtin import builtin_source
from opendp_sim.postprocessing._impl.noise_quantiles import quantile
from tests.transformations.sketches.distances._distance_tools import (
    UNEVEN,
    UNIT,
    Made,
    exact_sums,
    some_queries,
    some_rows,
)

LINE = GridRows(width=1, unit=1 / 64, lower=(0,), upper=(64,))
GAUSS, LAPLACE = "discrete_gaussian", "discrete_laplace"


def errors(made: Made, queries: Any, true: Any, times: int, *noise: Any, **params: Any) -> Any:
    found = [made.ask(queries, *noise, **params) for _ in range(times)]
    return np.array([answer["distance"] - true for answer in found]), found


@pytest.mark.audit
@pytest.mark.parametrize(
    ("key", "params", "noise"),
    [
        ("threshold_sketch", {"thresholds": 16}, GAUSS),
        pytest.param("moment_tree", {"levels": 4}, LAPLACE, marks=pytest.mark.long),
        pytest.param("distance_tree", {"levels": 4}, GAUSS, marks=pytest.mark.long),
        pytest.param(
            "distance_tree", {"levels": 4, "consistent": True}, GAUSS, marks=pytest.mark.long
        ),
        pytest.param("moments_sketch", {}, GAUSS, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_intervals_cover_and_errors_are_as_stated(key: str, params: Any, noise: str) -> None:
    """95 % intervals of means hold the exact answer 90 % of the time or more; errors are as stated.

    500 releases: were the 8 queries one, 90 % would be 5.1 sigma below 95 %; a deviation's standard
    error is 3.2 %, and 16 % is 5 sigma. Below 1e-6 both.
    """
    domain = GridRows(width=2, unit=UNIT, lower=(-8,), upper=(7,), l2=12)
    rows = some_rows(GridRows(width=2, lower=(-8,), upper=(7,)), 400, labels=False)
    queries = some_queries(GridRows(width=2, lower=(-8,), upper=(7,)), 8)[:8]
    made = Made(domain, rows, key, **params)
    clean = made.ask(queries, mean=True)["distance"]
    p = 2.0 if key == "moments_sketch" else 1.0
    true = exact_sums(rows, queries, p, 1) / len(rows)
    scale = made.scale(rho=0.05) if noise == GAUSS else made.scale(epsilon=0.5)
    found, answers = errors(made, queries, clean, 500, noise, scale, mean=True)
    stated = np.mean([answer["noise_error"] for answer in answers], axis=0)
    ratio = np.square(found).mean() / np.square(stated).mean()
    assert abs(math.sqrt(ratio) - 1) < 0.16
    inside = [(a["lower"] <= true) & (true <= a["upper"]) for a in answers]
    assert np.mean(inside) > 0.9


@pytest.mark.long
@pytest.mark.parametrize(
    "key",
    ["threshold_sketch", "moment_tree", pytest.param("distance_tree", marks=pytest.mark.long)],
)
def test_interval_counts_cover_the_true_count(key: str) -> None:
    """95 % intervals of coarse cells hold every question's true count in 90 % of 500 releases or more.

    5.1 sigma below 95 %: below 1e-6 a question, and its cells' rounding only adds to it.
    """
    values = np.repeat(np.arange(65.0), 40)[:, None]
    params: dict[str, Any] = {"thresholds": 9} if key == "threshold_sketch" else {"levels": 3}
    made = Made(LINE, Rows(values, None), key, **params)
    asked = np.array([-5.0, 3.0, 17.0, 30.0, 41.0, 62.0, 80.0])[:, None]
    true = (np.abs(values - asked.T) <= 5 + 1e-9).sum(axis=0)[:, None]
    scale = made.scale(rho=0.05)
    found = [made.ask(asked, GAUSS, scale, key="interval_count", radius=5 / 64) for _ in range(500)]
    inside = np.mean([(a["lower"] <= true) & (true <= a["upper"]) for a in found], axis=0)
    assert inside.min() > 0.9


@pytest.mark.few(1)
@pytest.mark.parametrize("key", ["threshold_sketch", "moment_tree", "distance_tree"])
def test_ends_of_a_count_hold_raw_records_about_a_raw_question(key: str) -> None:
    """The grid moved both by up to half a step; next to no noise, so that nothing else is in the ends."""
    draws = np.random.default_rng(5)
    params: dict[str, Any] = {"thresholds": 9} if key == "threshold_sketch" else {"levels": 3}
    rounded = replace(LINE, rounding=0.5)
    missed = 0
    for _ in range(20):
        raw, centres = draws.uniform(0, 64, 60), draws.uniform(-4, 68, 40)
        made = Made(rounded, Rows(np.rint(raw)[:, None], None), key, **params)
        without = Made(LINE, Rows(np.rint(raw)[:, None], None), key, **params)
        radius = float(draws.uniform(0, 12))
        asked = np.rint(centres)[:, None]
        true = (np.abs(raw[:, None] - centres) <= radius).sum(axis=0)[:, None]
        found = made.ask(asked, GAUSS, 1e-3, key="interval_count", radius=radius / 64)
        assert (found["lower"] <= true).all()
        assert (true <= found["upper"]).all()
        found = without.ask(asked, GAUSS, 1e-3, key="interval_count", radius=radius / 64)
        missed += ((true < found["lower"]) | (true > found["upper"])).sum()
    assert missed > 0


def test_laplace_intervals_are_wider() -> None:
    about, _ = Made(LINE, some_rows(LINE, 3), "distance_tree", levels=3).release(LAPLACE, 4.0)
    assert math.isclose(quantile(about, 0.95), math.log(20) / math.sqrt(2))
    assert quantile(about, 0.5) > 0.67  # a normal's is the larger one in the middle


def test_the_plan_states_the_noise_of_an_answer() -> None:
    """The expected error is the largest noise_error of queries inside the box, or a bound on it."""
    for key, params, slack in (
        ("threshold_sketch", {"thresholds": 63}, 1.001),
        ("moment_tree", {"levels": 5}, 1.9),
        ("distance_tree", {"levels": 5}, 1.4),
        ("distance_tree", {"levels": 5, "consistent": True}, 1.4),
    ):
        made = Made(UNEVEN, some_rows(UNEVEN, 5), key, **params)
        about, arrays = made.release(GAUSS, 7.0)
        claim = lookup("distance")().bind(about, Symmetric())
        x = some_rows(UNEVEN, 200, seed=9).values
        most = claim.function(arrays, x)["noise_error"].max()  # type: ignore[union-attr]
        planned = claim.expected["noise_error"]  # type: ignore[union-attr]
        assert most <= planned * 1.15
        assert planned <= most * slack


# --- refusals -------------------------------------------------------------------------------------


def test_other_exponents_are_refused_when_planned() -> None:
    for key, params, p in (
        ("threshold_sketch", {"thresholds": 4}, 2.0),
        ("moment_tree", {"levels": 2}, 2.0),
        ("moment_tree", {"levels": 2, "p": 2}, 1.0),
        ("moments_sketch", {}, 1.0),
    ):
        about, _ = Made(UNEVEN, some_rows(UNEVEN, 3), key, **params).release()
        with pytest.raises(ReleaseError, match=r"OS702 distance.p"):
            lookup("distance")(p=p).bind(about, Symmetric())


def test_missing_properties_of_the_type_are_refused() -> None:
    plain = GridRows(width=2, lower=(0,), upper=(7,))
    space = plain, Symmetric()
    for unbounded in (lookup("l1_embedding")(directions=4, seed=0), lookup("moments_sketch")()):
        unbounded.bind(*space)  # a box is a norm bound
    for key, params in (
        ("threshold_sketch", {"thresholds": 3}),
        ("moment_tree", {"levels": 2}),
        ("distance_tree", {"levels": 2}),
        ("moments_sketch", {"radius": 3.0}),
    ):
        with pytest.raises(SpaceError, match=f"OS204 {key}.*label"):
            lookup(key)(per_label=True, **params).bind(*space)
    with pytest.raises(SpaceError, match=r"OS204 quantize.*bounds"):
        lookup("quantize")(bits=4).bind(RealRows(width=2), Symmetric())


def test_grids_too_fine_are_refused() -> None:
    fine = GridRows(width=2, lower=(-(2**23),), upper=(2**23,))
    with pytest.raises(SpaceError, match=r"OS203 moment_tree.*fewer bits"):
        lookup("moment_tree")(levels=4, p=3).bind(fine, Symmetric())
    finest = GridRows(width=600, lower=(-(2**24),), upper=(2**24,), l2=2**29)
    with pytest.raises(SpaceError, match=r"OS203 moments_sketch.*fewer bits"):
        lookup("moments_sketch")().bind(finest, Symmetric())


def test_questions_that_a_release_cannot_answer_are_refused() -> None:
    made = Made(UNEVEN, some_rows(UNEVEN, 3), "moments_sketch", squares=False)
    about, arrays = made.release()
    with pytest.raises(ReleaseError, match="OS702 distance"):
        lookup("distance")().bind(about, Symmetric())
    with pytest.raises(ReleaseError, match="OS702 interval_count"):
        lookup("interval_count")(radius=1.0).bind(about, Symmetric())
    with pytest.raises(SpaceError, match=r"OS204 nearest_class.*per_label"):
        lookup("nearest_class")().bind(about, Symmetric())
    tree, arrays = Made(UNEVEN, some_rows(UNEVEN, 3), "distance_tree", levels=3).release()
    with pytest.raises(ParameterError, match=r"OS102 interval_count.column"):
        lookup("interval_count")(radius=1.0, column=3).bind(tree, Symmetric())
    ask = lookup("distance")().bind(tree, Symmetric()).function
    for queries in (np.zeros((2, 2)), np.zeros(3), np.full((1, 3), np.nan)):
        with pytest.raises(DataError, match="OS607"):
            ask(arrays, queries)


# --- classification on real data ------------------------------------------------------------------


def digits() -> tuple[RealRows, Rows, Rows]:
    parts = []
    for name in ("digits", "digits_test"):
        (block,) = builtin_source(name).blocks()
        parts.append(Rows(np.asarray(block["pixels"], dtype=np.float64), block["label"]))
    space = RealRows(width=64, lower=(0.0,), upper=(16.0,), labels=tuple(range(10)))
    return space, parts[0], parts[1]


@pytest.mark.audit
@pytest.mark.parametrize(
    ("steps", "rule", "least"),
    [
        (
            [
                ("clip_rows", {"norm": "l2", "bound": 60.0}),
                ("quantize", {"bits": 8}),
                ("moments_sketch", {"squares": False, "per_label": True}),
            ],
            "nearest_mean",
            0.80,
        ),
        (
            [
                ("quantize", {"bits": 8}),
                ("threshold_sketch", {"thresholds": 16, "per_label": True}),
            ],
            "mean_distance",
            0.75,
        ),
    ],
    ids=["nearest_mean", "mean_distance"],
)
def test_digits_are_classified_privately(steps: Any, rule: str, least: float) -> None:
    """rho = 0.5 costs at most 12 points of accuracy: 7 and more of a release's deviations, below 1e-9."""
    space, train, test = digits()
    stages = bind_steps(space, Symmetric(), [lookup(key)(**params) for key, params in steps])
    claim = stages[-1].claim
    cells = whole_function(claim)(resolve(stages, lambda: [train])(train))
    output = claim.output
    scale = output.sensitivity.bound("l2", 1) / math.sqrt(2 * 0.5)
    noisy = lookup("gaussian")(scale=scale, sampler="bulk").bind(output, output.metric("l2"))
    accuracies = []
    for flat, noise in ((cells, None), (noisy.function(cells), noisy.noise)):
        release = Release.of_sketch(stages, flat, noise, {})
        ask = lookup("nearest_class")(rule=rule).bind(release.released, Symmetric()).function
        found = ask(release.arrays, on_queries(stages, test))
        accuracies.append(float((found["label"] == test.labels).mean()))
        assert found["score"].shape == (len(test), 10)
        assert (found["margin"] >= 0).all()
    assert accuracies[0] > least
    assert accuracies[1] > accuracies[0] - 0.12
