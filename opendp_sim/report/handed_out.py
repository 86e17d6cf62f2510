"""What goes in and what is handed out: columns and bounds, rows of a person, the kind of a release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opendp_sim.dsl.output_types import OutputType
from opendp_sim.dsl.plan import Plan
from opendp_sim.report.plain_steps import in_words
from opendp_sim.spaces.records import Column
from opendp_sim.spaces.released import Released, asking

__all__ = ["handed_out"]

_MOST = 12
"""Columns that are named; a reviewer of more reads the program."""
_LIMITED = frozenset({"private_knn"})
"""Mechanisms whose ``queries`` are a limit; for others they are a plan, and more are answered."""


def handed_out(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield (dataset or output, what it is) in the words of a page."""
    for entry in plan.program.data:
        columns = [_column(column) for column in entry.records.columns[:_MOST]]
        more = len(entry.records.columns) - len(columns)
        columns += [f"{more} more"] if more else []
        where = _source(entry.source)
        kept = "; ".join(_rows_used(plan, entry.name))
        yield f"in: {entry.name}", f"{where}: {', '.join(columns)}{f'; {kept}' if kept else ''}"
    for name, output in plan.outputs.items():
        if output.decl.query is not None:
            yield (
                f"asked: {name}",
                f"questions from {_source(output.decl.query)}, taken to be public",
            )
        yield f"out: {name}", _output(output)


def _source(ref: Any) -> str:
    """Say where records or questions come from."""
    named = _file(ref.argument)
    if ref.kind == "builtin":
        return f"`{named}`, which comes with this package"
    if ref.kind == "memory":
        return f"the table `{named}`, handed over by the program that calls"
    return f"{ref.kind} {named}".strip()


def _file(argument: Any) -> str:
    if isinstance(argument, dict):
        argument = argument.get("file", "")
    return str(argument)


def _column(column: Column) -> str:
    if column.role == "privacy_id":
        return f"{column.name} (names the person)"
    if column.keys:
        return f"{column.name} (one of {len(column.keys)} labels)"
    bounds = " in [{:g}, {:g}]".format(*column.bounds) if column.bounds else ""
    return (
        f"{column.name} ({column.width} numbers{bounds})"
        if column.is_vector
        else f"{column.name}{bounds}"
    )


def _rows_used(plan: Plan, data: str) -> list[str]:
    """Say how many rows of one person are used, where that is limited."""
    found: dict[str, None] = {}
    for release in plan.releases.values():
        if release.typed.entry.name == data:
            for stage in release.typed.stages:
                most = getattr(stage.mechanism, "max_rows", None)
                if most is not None:
                    found[f"of one person at most {most} rows are used"] = None
    return list(found)


def _output(output: OutputType) -> str:
    saved = "" if output.decl.save is None else f", in {output.decl.save}"
    if output.decl.serve is not None:
        release = output.stage.release
        most = None
        if release is not None and release.key in _LIMITED:
            most = dict(release.params)["queries"]
        limit = "" if most is None else f", {most:,} at most"
        return f"answers to one question after another, while a session is open{limit}"
    if output.posts:
        each = "for each question: " if output.decl.query is not None else ""
        steps = " and ".join(post.key for post in output.decl.post)
        return f"{each}{_lower(in_words(output.decl.post[-1]))} ({steps}){saved}"
    if isinstance(output.domain, Released):
        cells = getattr(output.domain.sketch, "size", 0)
        asked = ", ".join(asking(output.domain.capabilities))
        size = f"{cells:,} noisy numbers" if cells else "a noisy release"
        return f"{size}, which answer {asked} as often as anybody likes{saved}"
    return f"what the selection found{saved}"


def _lower(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}".removesuffix(".")
