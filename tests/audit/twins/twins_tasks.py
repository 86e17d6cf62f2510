"""Broken twins of what is asked of kernel releases: the real queries on a sound release, with one look
at the records.

The honest answer is a function of noisy cells and public things. Each twin lets one exact thing in:
a block that has no noise, or something computed from the records and told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Noise
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import Rows
from tests.audit.twins.entries import Control, Twin
from tests.audit.twins.faults import named
from tests.audit.twins.sketches import kernels as k, points_of
from tests.audit.twins.stand_ins import POINTS, PURE, SYMMETRIC, laplace, measurement

F, G, M = "fourier_sketch", "gauss_transform_sketch", "second_moments"
AT = Rows(np.array([[0.0, 0.0], [8.0, -8.0], [16.0, 16.0]]))
Arrays = dict[str, np.ndarray]
Answer = dict[str, np.ndarray]
Look = Callable[[Arrays, Arrays, np.ndarray], Arrays]
Tell = Callable[[Answer, np.ndarray], Any]


def asked(
    sketch: str,
    query: str,
    column: str,
    *,
    look: Look | None = None,
    tell: Tell | None = None,
    **params: Any,
) -> Any:
    """A release of ``sketch`` at epsilon 1, and one column of what ``query`` answers from it.

    For ``classify`` a record's class is the sign of its first coordinate. ``look`` (noisy blocks,
    exact blocks, points) returns the blocks that the query reads; ``tell`` (the answer, points) what
    is published: both are faults.
    """
    by_class = query == "classify"
    space = replace(k.grid, labels=("left", "right")) if by_class else k.grid
    claim = k.claim_of(sketch, space, **({"per_label": True} if by_class else {}))
    output: Any = claim.output
    assert claim.sensitivity is not None
    scale, build = float(claim.sensitivity.l1), whole_function(claim)
    of = Released(output, claim.capabilities, Noise("discrete_laplace", scale), space)
    post = lookup(query)(**params).bind(of, Symmetric())

    def many(x: Any, count: int) -> list[Any]:
        points = points_of(x)
        labels = (points[:, 0] > 0).astype(np.int64) if by_class else None
        clean = build(Rows(k.steps_of(points).values, labels)).astype(float)
        exact, answers = output.split(clean), []
        for row in clean + laplace((count, clean.size), scale):
            arrays = dict(output.split(row))
            arrays = look(arrays, exact, points) if look else arrays
            found = post.function(arrays, AT if post.asks else None)
            told = tell(found, points) if tell else found[column].ravel()[:3]
            answers.append([round(float(v), 6) for v in told])
        return answers

    made = measurement(POINTS, SYMMETRIC, PURE, many, lambda d: 1.0 * d)
    return made, {"sample": many}


# --- blocks without noise -----------------------------------------------------------------------


def exact_total(noisy: Arrays, exact: Arrays, points: np.ndarray) -> Arrays:
    return noisy | {"total": exact["total"]}


def all_exact(noisy: Arrays, exact: Arrays, points: np.ndarray) -> Arrays:
    return exact


def exact_when_few(noisy: Arrays, exact: Arrays, points: np.ndarray) -> Arrays:
    """Below two records there is 'nothing to protect'."""
    return exact if len(points) < 2 else noisy


# --- things told --------------------------------------------------------------------------------


def first(answer: Answer, column: str) -> float:
    return float(answer[column].ravel()[0]) if answer[column].size else 0.0


def with_spread(column: str) -> Tell:
    return lambda answer, points: [
        first(answer, column),
        round(float(np.clip(points, -2, 2).std()), 1) if len(points) else 0.0,
    ]


def silent_when_empty(column: str) -> Tell:
    return lambda answer, points: [first(answer, column) if len(points) else 0.0]


def ties_by_data(answer: Answer, points: np.ndarray) -> list[float]:
    """A close call is settled by the exact sums."""
    close = first(answer, "margin") < 10
    return [float(np.clip(points, -2, 2).sum() > 0) if close else first(answer, "label")]


def through_the_mean(answer: Answer, points: np.ndarray) -> list[float]:
    """The intercept is moved so that the fit meets the exact mean."""
    mean = np.clip(points, -2, 2).mean(axis=0) if len(points) else np.zeros(2)
    return [first(answer, "coefficient"), round(float(mean[1]), 2)]


def as_many_as_records(answer: Answer, points: np.ndarray) -> list[float]:
    return [*answer["candidate"][: len(points)].astype(float)]


def starts_at_count(answer: Answer, points: np.ndarray) -> list[float]:
    """The seed of the draw is the exact count: what is drawn tells it."""
    return [float(np.random.default_rng(len(points)).integers(1000)), first(answer, "candidate")]


def exact_height(answer: Answer, points: np.ndarray) -> list[float]:
    """The height of the first summit, counted from the records."""
    if not len(answer["mode"]):
        return [0.0]
    gaps = np.square(np.clip(points, -2, 2) - answer["mode"][0]).sum(axis=1)
    return [round(float(np.exp(-gaps).sum()), 3)]


def loneliest(answer: Answer, points: np.ndarray) -> list[float]:
    """The threshold is the exact density of the loneliest record."""
    if not len(points):
        return [0.0]
    gaps = np.square(np.clip(points[:, None] - points[None], -4, 4)).sum(axis=2)
    return [first(answer, "outlier"), round(float(np.exp(-gaps).mean(axis=1).min()), 2)]


TASKS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "density": (F, "density", "density", {}),
    "classify": (F, "classify", "label", {}),
    "regress": (M, "regress", "coefficient", {"answer": "coefficients"}),
    "modes": (G, "modes", "height", {"seed": 1, "starts": 2, "rounds": 6}),
    "outliers": (F, "outliers", "score", {"threshold": 0.3}),
    "sample": (F, "sample", "candidate", {"size": 3, "seed": 1}),
}
"""Of each query the sketch, the column that is told, and the parameters."""


def task(query: str, label: str, column: str = "", **more: Any) -> Twin:
    sketch, _, usual, params = TASKS[query]
    made, options = asked(sketch, query, column or usual, **{**params, **more})
    return Twin(**named(f"{query}/{label}"), make=lambda: made, options=options)


TWINS = [
    task("density", "all_exact: the query reads the sketch before its noise", look=all_exact),
    task(
        "density",
        "exact_divisor: mean kernel values over the exact count",
        look=exact_total,
        normalise=True,
        column="records",
    ),
    task("density", "silent_when_empty: no records, no noise", tell=silent_when_empty("density")),
    task(
        "classify",
        "all_exact: classes from the sketch before its noise",
        look=all_exact,
        column="score",
    ),
    task("classify", "ties_by_data: close calls are settled by the records", tell=ties_by_data),
    task(
        "classify",
        "spread_without_noise: the classes' spread as a confidence",
        tell=with_spread("label"),
    ),
    task("regress", "through_the_mean: the intercept meets the exact mean", tell=through_the_mean),
    task(
        "modes",
        "exact_height: the summit's height is counted from the records",
        tell=exact_height,
        column="mode",
    ),
    task("modes", "all_exact: the climb reads the sketch before its noise", look=all_exact),
    task("outliers", "exact_when_few: one record alone is not protected", look=exact_when_few),
    task(
        "outliers",
        "threshold_of_the_data: the threshold is that of the loneliest record, and told",
        tell=loneliest,
        column="outlier",
    ),
    task("sample", "as_many_as_records: as many draws as records", tell=as_many_as_records, size=9),
    task(
        "sample", "seed_is_the_count: the seed of the draw is the exact count", tell=starts_at_count
    ),
]


def sound(query: str) -> Control:
    made, options = asked(*TASKS[query][:3], **TASKS[query][3])
    return Control(name=f"{query}/sound_task", make=lambda: made, options=options)


CONTROLS = [sound(query) for query in TASKS]
