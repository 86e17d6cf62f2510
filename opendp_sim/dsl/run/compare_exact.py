"""Compare a run's private answers with exact ones.

For data that is public anyway. Kernel sums and classes by them stand beside exact sums; a model's
labels beside those of the same fit without noise.

Exact answers are not private, so this refuses any dataset that is neither built in nor declared
``public: true``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.release.query import query_records
from opendp_sim.core.capabilities import ClassScores
from opendp_sim.core.claims import Stage
from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.core.pipeline import on_queries
from opendp_sim.core.system.lazy_import import spatial
from opendp_sim.domains.released import AnswerColumns, Released
from opendp_sim.domains.rows import RealRows, Rows, as_rows
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.inputs import source_named
from opendp_sim.dsl.run.records import Applied
from opendp_sim.dsl.types.error_terms import WIDE
from opendp_sim.dsl.types.outputs import OutputType
from opendp_sim.io.fold import collect_rows

_STATED = ("noise_error", "sketch_error")
_METRICS = {"l1": "cityblock", "l2": "euclidean"}


@dataclass(frozen=True)
class Comparison:
    """Compare one output with exact answers.

    To the same queries; 95% of absolute errors are within each number, as in a plan.

    Attributes:
        exact: mean over the queries of the exact kernel sum, on the rows that the kernel is a function
            of: the data behind the steps that choose its geometry, before grid and projection.
        geometry: these steps (``clip_rows``, ``rescale``).
        normalised: the answers, and so every number here, are mean kernel values rather than sums.
        error: of the answers against those.
        mapped: of the answers against the exact kernel sums of the data as the sketch sees it, behind
            grid and projection.
        predicted: what the answers themselves report for ``mapped`` (noise and sketch).
        noise: the part of ``predicted`` that privacy costs.
        maps: of the row maps alone: exact sums behind them against exact sums before them.
        accuracy: share of right labels, private and exact; None without labels.
        beside: what the exact labels are by.
    """

    output: str
    queries: int
    exact: float
    error: float | None = None
    mapped: float | None = None
    predicted: float | None = None
    noise: float | None = None
    maps: float | None = None
    accuracy: tuple[float, float] | None = None
    beside: str = "with exact kernel sums"
    normalised: bool = False
    geometry: tuple[str, ...] = ()


def refuse_incomparable(plan: Plan) -> None:
    """Refuse a plan without comparable public answers, before anything runs.

    Raises:
        SpecError (OS306): a dataset is neither built in nor declared public. DataError (OS607): there is
            nothing to compare.
    """
    for name, typed in plan.types.items():
        if typed.entry.source.kind != "builtin" and not typed.entry.public:
            raise SpecError(
                "OS306", f"data.{typed.entry.name}",
                expected="public data to compare with: exact answers are not private",
                got=f"stage `{name}` on data that is not declared public",
                hint="leave --compare out, or try it on a built-in data set.",
            )  # fmt: skip
    if not _to_compare(plan):
        raise DataError(
            "OS607", "compare", expected="an output that answers `density`, `classify` or `predict`",
            got="none", hint="add such a `post:` and `queries:` with held-out records to an output.",
        )  # fmt: skip


def compare(done: Applied) -> list[Comparison]:
    """Compare a run's kernel sums and classes with exact ones (OS306, OS607)."""
    refuse_incomparable(done.plan)
    return [_one(name, output, done) for name, output in _to_compare(done.plan).items()]


def _to_compare(plan: Plan) -> dict[str, OutputType]:
    """Return the outputs of kernel sums or of their classes."""
    return {
        name: output
        for name, output in plan.outputs.items()
        if output.decl.query is not None
        and _comparable(output.domain)
        and not _offered(output, plan).keys().isdisjoint(("kernel_sums", "class_scores"))
    }


def _comparable(answers: object) -> bool:
    """Return whether answers are kernel sums or classes' labels."""
    columns = set(answers.columns) if isinstance(answers, AnswerColumns) else set()
    return {"density", "noise_error"} <= columns or {"label", "margin"} <= columns


def _offered(output: OutputType, plan: Plan) -> Mapping[str, Any]:
    """Return what the output's release offers, by name."""
    stages = plan.releases[output.stage.name].asked_stages
    return {} if stages is None else getattr(stages[-1].claim, "capabilities", {})


def _model(output: OutputType, done: Applied, model: ClassScores) -> Comparison:
    """Compare labels with those of a fit without noise."""
    rows, queries, labels = _through(output, done, output.stage.stages)
    scores, right = model.scores(model.without_noise(rows), queries), None
    if labels is not None:
        pair = done.results[output.decl.name]["label"], scores.argmax(axis=1)
        right = float((pair[0] == labels).mean()), float((pair[1] == labels).mean())
    size, beside = len(queries), "by the same model without noise"
    return Comparison(output.decl.name, size, 0.0, accuracy=right, beside=beside)


def _one(name: str, output: OutputType, done: Applied) -> Comparison:
    offered = _offered(output, done.plan)
    if "class_scores" in offered:
        return _model(output, done, offered["class_scores"])
    sketch = output.stage.sketch
    sums = Released(sketch.output, sketch.capabilities, None).capability("kernel_sums", "compare")
    before, queries, labels = _rows(output, done, mapped=False)
    behind, seen, _ = _rows(output, done, mapped=True)
    exact = _sums(sums, before, queries, _claimed(output, sums.distance))
    answer = done.results[name]
    if "label" in answer:
        return _labels(output, answer, exact, before, labels)
    again = _sums(sums, behind, seen, sums.distance)
    normalised = isinstance(output.domain, AnswerColumns) and output.domain.normalised
    if normalised:
        exact, again = _means(exact, before), _means(again, behind)
    # Of one class an answer has no axis of classes, which exact sums have.
    given = {key: np.reshape(answer[key], exact.shape) for key in ("density", *_STATED)}
    noise, drawn = (given[key] for key in _STATED)
    return Comparison(
        name,
        len(queries),
        float(exact.mean()),
        error=_most(given["density"] - exact),
        mapped=_most(given["density"] - again),
        predicted=_stated(np.hypot(noise, drawn)),
        noise=_stated(noise),
        maps=_most(again - exact),
        normalised=normalised,
        geometry=tuple(stage.mechanism.key for stage in _chosen(output)),
    )


def _most(errors: NDArray[np.float64]) -> float:
    """Return the number that 95% of absolute errors are within."""
    return float(np.quantile(np.abs(errors), 0.95))


def _stated(deviations: NDArray[np.float64]) -> float:
    """Return the same number of errors with these deviations."""
    return WIDE * math.sqrt(float(np.square(deviations).mean()))


def _chosen(output: OutputType) -> list[Stage]:
    """Return the steps from real rows to real rows."""
    real = [stage for stage in output.stage.stages if isinstance(stage.domain, RealRows)]
    return real[:-1]


def _claimed(output: OutputType, distance: str) -> str:
    grid = getattr(output.stage.stages[-1].domain, "distortion", ())
    return "l2" if distance == "l1" and grid and grid[0] == 1.0 else distance


def _sums(
    sums: Any, rows: Rows, queries: NDArray[np.float64], distance: str
) -> NDArray[np.float64]:
    """Return exact kernel sums by class, shape (q, L)."""
    weights = sums.kernel(_distances(rows.values, queries, distance))
    if sums.labels is None:
        return np.asarray(weights.sum(axis=0)[:, None])
    each = [weights[rows.labels == label].sum(axis=0) for label in range(len(sums.labels))]
    return np.stack(each, axis=1)


def _means(sums: NDArray[np.float64], rows: Rows) -> NDArray[np.float64]:
    """Return exact mean kernel values by class, 0 without records."""
    sizes = np.array([len(rows)])
    if sums.shape[1] > 1 and rows.labels is not None:
        sizes = np.bincount(rows.labels, minlength=sums.shape[1])
    return sums / np.maximum(sizes, 1)


def _labels(
    output: OutputType, answer: Any, each: NDArray[np.float64], rows: Any, labels: Any
) -> Comparison:
    rule = getattr(output.decl.post[-1], "rule", "map")
    sizes = np.bincount(rows.labels, minlength=each.shape[1])
    scores = each / np.maximum(sizes, 1) if rule == "max_likelihood" else each
    right = None
    if labels is not None:
        pair = (answer["label"] == labels).mean(), (scores.argmax(axis=1) == labels).mean()
        right = float(pair[0]), float(pair[1])
    return Comparison(output.decl.name, len(each), float(each.mean()), accuracy=right)


def _rows(
    output: OutputType, done: Applied, *, mapped: bool
) -> tuple[Rows, NDArray[np.float64], Any]:
    """Return private rows, queries and labels in real units."""
    stages = output.stage.stages
    real = [i for i, stage in enumerate(stages) if isinstance(stage.domain, RealRows)]
    used = stages[:-1] if mapped or not real else stages[: real[-1]]
    rows, queries, labels = _through(output, done, used)
    unit = getattr(stages[-1].domain, "unit", 1.0) if mapped else 1.0
    return replace(rows, values=rows.values * unit), queries * unit, labels


def _through(
    output: OutputType, done: Applied, used: Sequence[Stage]
) -> tuple[Rows, NDArray[np.float64], Any]:
    """Return private rows and queries behind these steps."""
    stages = output.stage.stages
    entry, folder = output.stage.entry, done.plan.program.folder
    rows = collect_rows(used, source_named(entry.source, entry.records, folder, {}).blocks)
    asked = output.decl.query
    assert asked is not None  # noqa: S101 - `compare` picks outputs with queries
    features = query_records(entry.records, stages)
    blocks = list(source_named(asked, features, folder, {}).blocks())
    block = {key: np.concatenate([b[key] for b in blocks]) for key in blocks[0]}
    label = getattr(stages[0].mechanism, "label", None)
    try:
        every = list(source_named(asked, entry.records, folder, {}).blocks())
        labels = None if label is None else np.concatenate([b[label] for b in every])
    except DataError:
        labels = None
    return rows, as_rows(on_queries(used, block)).values, labels


def _distances(
    left: NDArray[np.float64], right: NDArray[np.float64], distance: str
) -> NDArray[np.float64]:
    if distance == "angle":
        cosine: NDArray[np.float64] = 1.0 - spatial.distance.cdist(left, right, "cosine")
        return np.arccos(np.clip(cosine, -1.0, 1.0))
    if distance not in _METRICS:
        raise DataError(
            "OS607", "compare", expected="a kernel of l1, l2 or angle", got=distance,
            hint="compare by hand on public data.",
        )  # fmt: skip
    return spatial.distance.cdist(left, right, _METRICS[distance])
