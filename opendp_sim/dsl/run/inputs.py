"""Open data and public queries, before the charge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.release.query import query_records, read_queries
from opendp_sim.core.claims import Stable
from opendp_sim.core.errors import DataError, refusing
from opendp_sim.core.system.event_log import log_event
from opendp_sim.domains.records import Records
from opendp_sim.dsl.files.paths import origin_of_ref, private_of
from opendp_sim.dsl.grammar.program import DataEntry, SourceRef
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.types.outputs import OutputType
from opendp_sim.io.blocks import Block, length_of
from opendp_sim.io.checked import GatedSource
from opendp_sim.io.file_spec import COUNTED, NO_FILE
from opendp_sim.io.frames import from_table, waits, warn_of_objects
from opendp_sim.io.gate import check_form
from opendp_sim.io.open import open_source
from opendp_sim.io.origin import Origin, public_rows, refuse_private
from opendp_sim.io.protocol import Source
from opendp_sim.postprocessing._impl.control_variate import check_enough

Memory = Mapping[str, Any]
"""Tables handed over in Python: name to a data frame, a dict of columns, an array, or a source."""
Told = Callable[[str, int], None]
"""Told a phase and a number of records, for a progress bar."""


@dataclass(frozen=True)
class Inputs:
    """Hold gated blocks of every dataset, and queries of every output.

    ``finish`` ends the check of private data that is not looked at as a whole yet.
    """

    blocks: Mapping[str, Callable[[], Iterator[Block]]]
    queries: Mapping[str, Block]
    points: Mapping[str, Block] = field(default_factory=dict)
    """The public points of every output that has some."""
    finish: Callable[[], None] = lambda: None


def source_named(ref: SourceRef, records: Records, folder: str, memory: Memory) -> Source:
    """Return a spec's source, or the arrays of its name."""
    if ref.kind != "memory":
        return open_source(ref.kind, ref.argument, records, File(folder))
    if ref.argument not in memory:
        raise DataError(
            "OS601", f"memory.{ref.argument}", expected="a table handed over under this name",
            got="none", hint="pass {name: frame} to `apply`; files need no code.",
        )  # fmt: skip
    given = memory[ref.argument]
    if not isinstance(given, Source):
        return from_table(records, given)
    if given.records != records:
        raise DataError(
            "OS602", f"memory.{ref.argument}", expected="a source of the declared columns",
            got="another declaration", hint="make it with the spec's columns, or hand over arrays.",
        )  # fmt: skip
    return given


def open_public(plan: Plan, memory: Memory, told: Told) -> Inputs:
    """Open and check everything public, where a failure reveals nothing."""
    for release in plan.releases.values():
        for claim in (stage.claim for stage in release.typed.stages):
            if isinstance(claim, Stable):
                len(claim.matrices)  # large ones are drawn now, and refused if they must be
    folder, private = plan.program.folder, private_of(plan.program, memory)
    queries = {
        name: open_queries(output.decl.query, output, folder, memory, private=private)
        for name, output in plan.outputs.items()
        if output.decl.query is not None
    }
    points = {
        name: open_points(output, folder, memory, private=private)
        for name, output in plan.outputs.items()
        if output.decl.public is not None
    }
    return Inputs(_opened(plan, memory, told, public=True), queries, points)


def check_forms(plan: Plan, memory: Memory) -> None:
    """Check private file, header, columns and stored types, reading no record.

    Why this is stated before anything is reserved or counted: ``io/ingest.md``, "Form".
    """
    for entry in _used(plan).values():
        given = memory.get(entry.source.argument) if entry.source.kind == "memory" else None
        if entry.public or waits(given):
            continue
        refused: DataError | None = None
        try:
            check_form(source_named(entry.source, entry.records, plan.program.folder, memory))
        except DataError as error:
            refused = _naming(error, entry.name, entry.source)
        if refused is not None and refused.got not in COUNTED:
            raise refused


def note_objects(plan: Plan, memory: Memory) -> None:
    """Warn of numbers stored as objects, whose unread cells are dropped."""
    for entry in _used(plan).values():
        given = memory.get(entry.source.argument) if entry.source.kind == "memory" else None
        if given is None or entry.ingest != "enforce" or entry.public or waits(given):
            continue
        warn_of_objects(given, entry.records)


def open_private(
    plan: Plan, memory: Memory, told: Told, public: Inputs, *, whole: bool = True
) -> Inputs:
    """Open the private dataset behind the one data gate.

    ``whole``: every record is looked at now, and what the gate refuses is raised (DataError). Else the
    first reading looks at it, and ``finish`` has to be called before anything computed is used.
    """
    ends: list[Callable[[], None]] = []
    opened = _opened(plan, memory, told, public=False, ends=None if whole else ends)

    def finish() -> None:
        for end in ends:
            end()

    return Inputs({**public.blocks, **opened}, public.queries, public.points, finish)


def _opened(
    plan: Plan,
    memory: Memory,
    told: Told,
    *,
    public: bool,
    ends: list[Callable[[], None]] | None = None,
) -> dict[str, Callable[[], Iterator[Block]]]:
    blocks: dict[str, Callable[[], Iterator[Block]]] = {}
    refused: DataError | None = None
    private = private_of(plan.program, memory) if public else Origin()
    for name, entry in _used(plan).items():
        if entry.public != public:
            continue
        if public:
            own = origin_of_ref(entry.source, plan.program.folder, memory)
            refuse_private(own, private, f"data.{name}.source")
        else:
            log_event("opening private data `%s` for the program `%s`", name, plan.program.name)
        try:
            source = source_named(entry.source, entry.records, plan.program.folder, memory)
            source = public_rows(source, private, f"data.{name}.source")
        except DataError as error:
            refused = _naming(error, name, entry.source)
            refused.unread = _unread(error, entry.source, memory)
            break
        told("checking", 0)  # before the first block: a bar shows the phase, come what may
        checked = GatedSource(source, entry.ingest, lambda rows: told("checking", rows))
        if ends is None:
            _finish(checked, entry)
        else:
            ends.append(partial(_finish, checked, entry))
        blocks[name] = checked
    if refused is not None:
        raise refused  # outside the handler: it keeps no context whose frames hold data
    return blocks


def _finish(checked: GatedSource, entry: DataEntry) -> None:
    """End the check, and raise what it refuses under the dataset's name."""
    with refusing(partial(_naming, name=entry.name, ref=entry.source), DataError):
        checked.finish()


def _unread(error: DataError, ref: SourceRef, memory: Memory) -> bool:
    """Return whether a failed source had no record read.

    A table in memory that was handed over may run a query, or read a stream, as it is opened: only one
    that is not there was not looked at.
    """
    if ref.kind == "memory":
        return ref.argument not in memory
    return error.code == "OS606" or (error.code == "OS601" and error.got == NO_FILE)


def _used(plan: Plan) -> dict[str, DataEntry]:
    """Return the datasets that some release reads."""
    return {release.typed.entry.name: release.typed.entry for release in plan.releases.values()}


def _naming(error: DataError, name: str, ref: SourceRef) -> DataError:
    """Return the refusal with the dataset's name and file, which are public."""
    argument = ref.argument.get("file") if isinstance(ref.argument, Mapping) else ref.argument
    where = f"data.{name} ({ref.kind} {argument})"
    missing = error.got == NO_FILE and str(argument) != error.where  # relative to which folder?
    if missing or str(argument) not in error.where:
        where += f": {error.where}"
    return error.restated(where=where)


def open_points(output: OutputType, folder: str, memory: Memory, *, private: Origin) -> Block:
    """Read an output's public points into memory, checked as queries."""
    assert output.decl.public is not None  # noqa: S101 - the caller asked
    features = query_records(output.stage.entry.records, output.stage.stages)
    where, ref = f"outputs.{output.decl.name}.public", output.decl.public
    block = read_queries(
        lambda: source_named(ref, features, folder, memory), where, private=private
    )
    check_enough(length_of(block), where)
    return block


def open_queries(
    ref: SourceRef, output: OutputType, folder: str, memory: Memory, *, private: Origin
) -> Block:
    """Read public queries into memory, checked, but for the data's bounds."""
    features = query_records(output.stage.entry.records, output.stage.stages)
    where = f"outputs.{output.decl.name}.queries"
    block = read_queries(
        lambda: source_named(ref, features, folder, memory), where, private=private
    )
    if any(getattr(mechanism, "public", None) == "queries" for mechanism in output.decl.post):
        check_enough(length_of(block), where)
    return block
