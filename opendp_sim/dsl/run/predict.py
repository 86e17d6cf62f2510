"""Predict answers' errors from public points and size."""

from __future__ import annotations

from dataclasses import replace

from opendp_sim.accounting.release.query import query_records, read_queries
from opendp_sim.core.errors import DataError
from opendp_sim.core.pipeline import on_queries
from opendp_sim.dsl.files.paths import private_of
from opendp_sim.dsl.grammar.program import SourceRef
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.inputs import open_points, open_queries, source_named
from opendp_sim.dsl.types.outputs import OutputType, is_predicted
from opendp_sim.postprocessing._impl.expected_distance import expected_distance_error
from opendp_sim.postprocessing._impl.expected_error import (
    ExpectedError,
    PublicExample,
    expected_kernel_error,
)

_EXPECT = {"density": expected_kernel_error, "distance": expected_distance_error}


def predict_errors(plan: Plan, like: SourceRef, size: int) -> dict[str, ExpectedError]:
    """Return expected errors of outputs that answer `density` or `distance`.

    ``like`` are public points that look like the data, ``size`` a public guess of the number of records;
    of the plan only queries are opened.

    Raises:
        DataError (OS607): no output answers one of them without labels, or too few points.
            ReleaseError (OS704): the points are the plan's private dataset, or a part of it.
    """
    found = {
        name: _one(plan, output, like, size)
        for name, output in plan.outputs.items()
        if is_predicted(output)
    }
    if not found:
        raise DataError(
            "OS607", "plan.like", got="none",
            expected="an output of `density` or `distance`, without labels, with `queries:`",
            hint="leave `--like` out, or add public queries to the output; errors of classes and models "
            "are not worked out.",
        )  # fmt: skip
    return found


def _one(plan: Plan, output: OutputType, like: SourceRef, size: int) -> ExpectedError:
    stages = output.stage.stages
    chosen = [i + 1 for i, stage in enumerate(stages) if stage.mechanism.key == "select"]
    start = chosen[0] if chosen else 0
    features = query_records(output.stage.entry.records, stages)
    private = private_of(plan.program)
    alike = read_queries(
        lambda: source_named(like, features, ".", {}), "plan.like", private=private
    )
    asked = output.decl.query
    assert asked is not None  # noqa: S101 - the caller picked outputs with queries
    queries = open_queries(asked, output, plan.program.folder, {}, private=private)
    release = plan.releases[output.stage.name]
    noise = getattr(release.bound.claim, "noise", None) if release.bound is not None else None
    # Labels do not matter without classes; columns are chosen as for queries.
    rows, wanted = (on_queries(stages[:start], part) for part in (alike, queries))
    rows = replace(rows, labels=None, ids=None)
    deviation = 0.0 if noise is None else noise.deviation
    post, points = output.decl.post[0], None
    if output.decl.public is not None:
        told = open_points(output, plan.program.folder, {}, private=private)
        points = on_queries(stages[:start], told)
    return _EXPECT[post.key](
        PublicExample(stages[start:], deviation, rows, wanted, size, points), post
    )
