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

from opendp_sim.audit import Control, Twin
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Noise
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import Rows
from tests.audit import kernels as k
from tests.audit.stand_ins import POINTS, PURE, SYMMETRIC, laplace, measurement

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
    space = replace(k.GRID, labels=("left", "right")) if by_class else k.GRID
    claim = k.claim_of(sketch, space, **({"per_label": True} if by_class else {}))
    output: Any = claim.output
    assert claim.sensitivity is not None
    scale, build = float(claim.sensitivity.l1), whole_function(claim)
    of = Released(output, claim.capabilities, Noise("discrete_laplace", scale), space)
    post = lookup(query)(**params).bind(of, Symmetric())

    def many(x: Any, count: int) -> list[Any]:
        points = k.points_of(x)
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


def twin(name: str, why: str, make: Callable[[], Any]) -> Twin:
    made, options = make()
    return Twin(name=name, make=lambda: made, options=options, why=why)


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


def with_count(column: str) -> Tell:
    return lambda answer, points: [first(answer, column), len(points)]


def with_clamping(column: str) -> Tell:
    return lambda answer, points: [first(answer, column), float((np.abs(points) > 2).any())]


def with_spread(column: str) -> Tell:
    return lambda answer, points: [
        first(answer, column),
        round(float(np.clip(points, -2, 2).std()), 1) if len(points) else 0.0,
    ]


def silent_when_empty(column: str) -> Tell:
    return lambda answer, points: [first(answer, column) if len(points) else 0.0]


def near(answer: Answer, points: np.ndarray) -> list[float]:
    """How many records are within a bandwidth of the first query, exactly, beside its density."""
    return [first(answer, "density"), float((np.square(points).sum(axis=1) < 1).sum())]


def widened(answer: Answer, points: np.ndarray) -> list[float]:
    """The interval is widened until it holds the exact sum."""
    true = float(np.exp(-np.square(np.clip(points, -2, 2)).sum(axis=1)).sum())
    return [min(first(answer, "lower"), true), max(first(answer, "upper"), true), round(true, 2)]


def ties_by_data(answer: Answer, points: np.ndarray) -> list[float]:
    """A close call is settled by the exact sums."""
    close = first(answer, "margin") < 10
    return [float(np.clip(points, -2, 2).sum() > 0) if close else first(answer, "label")]


def only_occupied(answer: Answer, points: np.ndarray) -> list[float]:
    occupied = [bool((points[:, 0] <= 0).any()), bool((points[:, 0] > 0).any())]
    scores = np.where(occupied, answer["score"], -np.inf)
    return [*scores.argmax(axis=1).astype(float)]


def accuracy(answer: Answer, points: np.ndarray) -> list[float]:
    """The share of the records that the rule gets right, on the records themselves."""
    right = (points[:, 0] > 0) == bool(answer["label"].ravel()[0])
    return [first(answer, "label"), round(float(right.mean()), 2) if len(points) else 0.0]


def residual(answer: Answer, points: np.ndarray) -> list[float]:
    """The fit's error on the records, as a figure of merit."""
    error = np.clip(points[:, 1], -2, 2) - answer["coefficient"][0]
    return [first(answer, "coefficient"), round(float(np.square(error).sum()), 1)]


def through_the_mean(answer: Answer, points: np.ndarray) -> list[float]:
    """The intercept is moved so that the fit meets the exact mean."""
    mean = np.clip(points, -2, 2).mean(axis=0) if len(points) else np.zeros(2)
    return [first(answer, "coefficient"), round(float(mean[1]), 2)]


def within_the_hull(column: str) -> Tell:
    def tell(answer: Answer, points: np.ndarray) -> list[float]:
        if not len(points):
            return [0.0, 0.0]
        mode = answer[column][0]
        return np.clip(mode, points.min(axis=0), points.max(axis=0)).clip(-2, 2).tolist()  # type: ignore[no-any-return]

    return tell


def as_many_as_records(answer: Answer, points: np.ndarray) -> list[float]:
    return [*answer["candidate"][: len(points)].astype(float)]


def starts_at_count(answer: Answer, points: np.ndarray) -> list[float]:
    """The seed of the draw is the exact count: what is drawn tells it."""
    return [float(np.random.default_rng(len(points)).integers(1000)), first(answer, "candidate")]


def none_when_empty(answer: Answer, points: np.ndarray) -> list[float]:
    return [*(answer["candidate"] + 1.0) * float(len(points) > 0)]


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


MODES: dict[str, Any] = {"seed": 1, "starts": 2, "rounds": 6}
TWINS = [
    twin(
        "density/all_exact",
        "the query reads the sketch before its noise",
        lambda: asked(F, "density", "density", look=all_exact),
    ),
    twin(
        "density/exact_divisor",
        "mean kernel values over the exact count",
        lambda: asked(F, "density", "records", look=exact_total, normalise=True),
    ),
    twin(
        "density/exact_when_few",
        "one record alone is not protected",
        lambda: asked(F, "density", "density", look=exact_when_few),
    ),
    twin(
        "density/silent_when_empty",
        "no records, no noise",
        lambda: asked(F, "density", "density", tell=silent_when_empty("density")),
    ),
    twin(
        "density/warns_of_clamping",
        "it tells that records lie outside",
        lambda: asked(F, "density", "density", tell=with_clamping("density")),
    ),
    twin(
        "density/counts_the_near",
        "how many records are near, exactly",
        lambda: asked(F, "density", "density", tell=near),
    ),
    twin(
        "density/interval_holds_the_truth",
        "the interval is widened until it is right",
        lambda: asked(F, "density", "density", tell=widened),
    ),
    twin(
        "classify/all_exact",
        "classes from the sketch before its noise",
        lambda: asked(F, "classify", "score", look=all_exact),
    ),
    twin(
        "classify/exact_sizes",
        "mean kernel values over the exact sizes, which are told",
        lambda: asked(F, "classify", "score", tell=with_count("score")),
    ),
    twin(
        "classify/ties_by_data",
        "close calls are settled by the records",
        lambda: asked(F, "classify", "label", tell=ties_by_data),
    ),
    twin(
        "classify/training_accuracy",
        "its accuracy on the records is told",
        lambda: asked(F, "classify", "label", tell=accuracy),
    ),
    twin(
        "classify/one_class_never_wins",
        "a class without records is left out, by the exact count",
        lambda: asked(F, "classify", "label", tell=only_occupied),
    ),
    twin(
        "classify/spread_without_noise",
        "the classes' spread as a confidence",
        lambda: asked(F, "classify", "label", tell=with_spread("label")),
    ),
    twin(
        "classify/exact_when_few",
        "one record alone is not protected",
        lambda: asked(F, "classify", "score", look=exact_when_few),
    ),
    twin(
        "regress/all_exact",
        "the fit reads the sums before their noise",
        lambda: asked(M, "regress", "coefficient", look=all_exact, answer="coefficients"),
    ),
    twin(
        "regress/exact_when_few",
        "one record alone is not protected",
        lambda: asked(M, "regress", "coefficient", look=exact_when_few, answer="coefficients"),
    ),
    twin(
        "regress/residual_told",
        "the fit's error on the records is told",
        lambda: asked(M, "regress", "coefficient", tell=residual, answer="coefficients"),
    ),
    twin(
        "regress/through_the_mean",
        "the intercept meets the exact mean",
        lambda: asked(M, "regress", "coefficient", tell=through_the_mean, answer="coefficients"),
    ),
    twin(
        "regress/count_told",
        "so many records were used",
        lambda: asked(
            M, "regress", "coefficient", tell=with_count("coefficient"), answer="coefficients"
        ),
    ),
    twin(
        "modes/exact_height",
        "the summit's height is counted from the records",
        lambda: asked(G, "modes", "mode", tell=exact_height, **MODES),
    ),
    twin(
        "modes/within_the_hull",
        "summits are kept between the records",
        lambda: asked(G, "modes", "mode", tell=within_the_hull("mode"), **MODES),
    ),
    twin(
        "modes/all_exact",
        "the climb reads the sketch before its noise",
        lambda: asked(G, "modes", "height", look=all_exact, **MODES),
    ),
    twin(
        "modes/none_when_empty",
        "no records, no summit",
        lambda: asked(G, "modes", "height", tell=silent_when_empty("height"), **MODES),
    ),
    twin(
        "modes/exact_when_few",
        "one record alone is not protected",
        lambda: asked(G, "modes", "height", look=exact_when_few, **MODES),
    ),
    twin(
        "outliers/all_exact",
        "scores from the sketch before its noise",
        lambda: asked(F, "outliers", "score", look=all_exact, threshold=0.3),
    ),
    twin(
        "outliers/warns_of_clamping",
        "it tells that records lie outside",
        lambda: asked(F, "outliers", "score", tell=with_clamping("score"), threshold=0.3),
    ),
    twin(
        "outliers/exact_when_few",
        "one record alone is not protected",
        lambda: asked(F, "outliers", "score", look=exact_when_few, threshold=0.3),
    ),
    twin(
        "outliers/threshold_of_the_data",
        "the threshold is that of the loneliest record, and told",
        lambda: asked(F, "outliers", "outlier", tell=loneliest, threshold=0.3),
    ),
    twin(
        "outliers/none_when_empty",
        "no records, no score",
        lambda: asked(F, "outliers", "score", tell=silent_when_empty("score"), threshold=0.3),
    ),
    twin(
        "outliers/count_told",
        "so many records were compared with",
        lambda: asked(F, "outliers", "score", tell=with_count("score"), threshold=0.3),
    ),
    twin(
        "sample/as_many_as_records",
        "as many draws as records",
        lambda: asked(F, "sample", "candidate", tell=as_many_as_records, size=9, seed=1),
    ),
    twin(
        "sample/seed_is_the_count",
        "the seed of the draw is the exact count",
        lambda: asked(F, "sample", "candidate", tell=starts_at_count, size=3, seed=1),
    ),
    twin(
        "sample/none_when_empty",
        "nothing is drawn from no records",
        lambda: asked(F, "sample", "candidate", tell=none_when_empty, size=3, seed=1),
    ),
    twin(
        "sample/all_exact",
        "draws follow the sketch before its noise",
        lambda: asked(F, "sample", "candidate", look=all_exact, size=6, seed=1),
    ),
    twin(
        "sample/warns_of_clamping",
        "it tells that records lie outside",
        lambda: asked(F, "sample", "candidate", tell=with_clamping("candidate"), size=3, seed=1),
    ),
]


def control(query: str, made: Any) -> Control:
    return Control(name=f"{query}/sound_task", make=lambda: made[0], options=made[1])


CONTROLS = [
    control("density", asked(F, "density", "density")),
    control("classify", asked(F, "classify", "label")),
    control("regress", asked(M, "regress", "coefficient", answer="coefficients")),
    control("modes", asked(G, "modes", "height", **MODES)),
    control("outliers", asked(F, "outliers", "score", threshold=0.3)),
    control("sample", asked(F, "sample", "candidate", size=3, seed=1)),
]
