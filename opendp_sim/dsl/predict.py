"""The expected error of a plan's kernel sums, from public points and a public size: no private data."""

from __future__ import annotations

from dataclasses import replace

from opendp_sim.core.claims import Stable
from opendp_sim.core.errors import DataError
from opendp_sim.core.pipeline import on_queries
from opendp_sim.dsl.inputs import open_queries, query_records, read_queries, source_of
from opendp_sim.dsl.ir import SourceRef
from opendp_sim.dsl.output_types import OutputType
from opendp_sim.dsl.plan import Plan
from opendp_sim.queries.parts.expected_error import ExpectedError, expected_error

__all__ = ["predict"]


def predict(plan: Plan, like: SourceRef, size: int) -> dict[str, ExpectedError]:
    """Return the expected error of every output that answers `density` to queries of its own.

    Args:
        plan: the plan; only its queries are opened.
        like: public points that look like the data, in its columns.
        size: a public guess of the number of records.

    Raises:
        DataError (OS607): no output answers `density` without labels, or too few points.
    """
    found = {
        name: _one(plan, output, like, size)
        for name, output in plan.outputs.items()
        if output.decl.query is not None and _answers_density(output)
    }
    if not found:
        raise DataError(
            "OS607", "plan.like", expected="an output of `density`, without labels, with a `query:`",
            got="none", hint="leave `--like` out, or add public queries to the output.",
        )  # fmt: skip
    return found


def _answers_density(output: OutputType) -> bool:
    claim = output.stage.stages[-1].claim
    sums = claim.capabilities.get("kernel_sums") if isinstance(claim, Stable) else None
    first = output.decl.post[0].key if output.decl.post else ""
    return first == "density" and sums is not None and sums.labels is None


def _one(plan: Plan, output: OutputType, like: SourceRef, size: int) -> ExpectedError:
    stages = output.stage.stages
    chosen = [i + 1 for i, stage in enumerate(stages) if stage.mechanism.key == "select"]
    start = chosen[0] if chosen else 0
    features = query_records(output.stage.entry.records, stages)
    points = read_queries(lambda: source_of(like, features, ".", {}), "plan.like")
    asked = output.decl.query
    assert asked is not None  # noqa: S101 - the caller picked outputs with queries
    queries = open_queries(asked, output, plan.program.folder, {})
    release = plan.releases[output.stage.name]
    noise = getattr(release.bound.claim, "noise", None) if release.bound is not None else None
    # Labels do not matter without classes; columns are chosen as for queries.
    rows, wanted = (on_queries(stages[:start], part) for part in (points, queries))
    rows = replace(rows, labels=None, ids=None)
    deviation = 0.0 if noise is None else noise.deviation
    return expected_error(stages[start:], deviation, rows, wanted, size)
