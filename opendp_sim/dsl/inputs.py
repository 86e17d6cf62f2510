"""Opening data and public queries: everything that can fail does so before the charge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any

import numpy as np

from opendp_sim.accounting.ledger import Ledger
from opendp_sim.core.claims import Stage
from opendp_sim.core.errors import DataError
from opendp_sim.dsl.charging import counting
from opendp_sim.dsl.ir import SourceRef
from opendp_sim.dsl.output_types import OutputType
from opendp_sim.dsl.plan import Plan
from opendp_sim.sources.blocks import Block
from opendp_sim.sources.gate import check_entries, check_source, gated_blocks
from opendp_sim.sources.opening import open_source
from opendp_sim.sources.source import Source, from_arrays
from opendp_sim.spaces.records import Column, Records

__all__ = ["Inputs", "open_inputs", "open_queries", "query_records", "read_queries", "source_of"]

Memory = Mapping[str, Any]
"""Arrays handed over in Python: name to a dict of columns, or to a source."""
Told = Callable[[str, int], None]
"""Told a phase and a number of records, for a progress bar."""


@dataclass(frozen=True)
class Inputs:
    """What a run reads: gated blocks of every dataset, and the queries of every output."""

    blocks: Mapping[str, Callable[[], Iterator[Block]]]
    queries: Mapping[str, Block]


def source_of(ref: SourceRef, records: Records, folder: str, memory: Memory) -> Source:
    """Return the source that a spec names, or the arrays of that name."""
    if ref.kind != "memory":
        return open_source(ref.kind, ref.argument, records, File(folder))
    if ref.argument not in memory:
        raise DataError(
            "OS601", f"memory.{ref.argument}", expected="arrays handed over under this name",
            got="none", hint="pass memory={name: {column: array}} to `apply`; files need no code.",
        )  # fmt: skip
    given = memory[ref.argument]
    if not isinstance(given, Source):
        return from_arrays(records, given)
    if given.records != records:
        raise DataError(
            "OS602", f"memory.{ref.argument}", expected="a source of the declared columns",
            got="another declaration", hint="make it with the spec's columns, or hand over arrays.",
        )  # fmt: skip
    return given


def open_inputs(plan: Plan, memory: Memory, told: Told, ledger: Ledger | None = None) -> Inputs:
    """Open and check every dataset and every query that the plan needs (the one data gate).

    ``ledger`` counts the runs that private data refused.
    """
    program = plan.program
    used = {release.typed.entry.name: release.typed.entry for release in plan.releases.values()}
    queries = {
        name: open_queries(output.decl.query, output, program.folder, memory)
        for name, output in plan.outputs.items()
        if output.decl.query is not None
    }
    blocks: dict[str, Callable[[], Iterator[Block]]] = {}
    refused: DataError | None = None
    for name, entry in used.items():
        try:
            with counting(plan, None if entry.public else ledger):
                source = source_of(entry.source, entry.records, program.folder, memory)
                check_source(source, entry.ingest, lambda rows: told("checking", rows))
        except DataError as error:
            refused = _naming(error, name, entry.source)
            break
        blocks[name] = gated_blocks(source, entry.ingest)
    if refused is not None:
        raise refused  # outside the handler: it keeps no context whose frames hold data
    return Inputs(blocks, queries)


def _naming(error: DataError, name: str, ref: SourceRef) -> DataError:
    """Return the refusal with the dataset's name and file, which are public."""
    argument = ref.argument.get("file") if isinstance(ref.argument, Mapping) else ref.argument
    where = f"data.{name} ({ref.kind} {argument})"
    if str(argument) not in error.where:
        where += f": {error.where}"
    return DataError(error.code, where, expected=error.expected, got=error.got, hint=error.hint)


def open_queries(ref: SourceRef, output: OutputType, folder: str, memory: Memory) -> Block:
    """Read public queries into memory, checked; values may lie outside the data's bounds."""
    features = query_records(output.stage.entry.records, output.stage.stages)
    where = f"outputs.{output.decl.name}.query"
    return read_queries(lambda: source_of(ref, features, folder, memory), where)


def read_queries(opened: Callable[[], Source], where: str) -> Block:
    """Read all queries of a source; refuse none, and any that is no possible record (OS607)."""
    try:
        source = opened()
        parts = list(source.blocks())
        if not parts:
            raise DataError(
                "OS607", where, expected="at least one query", got="none",
                hint="put one row a query into the file.",
            )  # fmt: skip
        block = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        check_entries(block, source.records)
        source.records.check(block)
    except DataError as error:
        if error.code in ("OS601", "OS606", "OS607"):
            raise
        raise DataError(
            "OS607", where, expected=f"{error.expected} ({error.where})", got=str(error.got),
            hint="a query has the features of a record: the same columns, widths and dtypes (for "
            "`regress` also the target's, which it ignores: write 0).",
        ) from None  # fmt: skip
    return block


def query_records(records: Records, stages: Sequence[Stage]) -> Records:
    """Return the columns of a query: the features, without bounds, labels or persons."""
    chosen: set[str] = set()
    for stage in stages:
        features = getattr(stage.mechanism, "features", None)
        if features is not None:
            chosen = {features} if isinstance(features, str) else set(features)
            break
    columns = [c for c in records.columns if (c.name in chosen if chosen else _feature(c))]
    return Records(tuple(replace(column, bounds=()) for column in columns))


def _feature(column: Column) -> bool:
    return column.role is None and not column.keys
