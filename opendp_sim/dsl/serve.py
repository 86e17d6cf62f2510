"""Serving a session: from a plan with ``serve: session`` to an open, durable session."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path as File
from types import TracebackType
from typing import Any, Self

import numpy as np

from opendp_sim.accounting.session import Session
from opendp_sim.accounting.session_store import mark_of
from opendp_sim.core.claims import Stage
from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.dsl.charging import charge, counting, is_paid, open_ledger
from opendp_sim.dsl.inputs import Memory, open_inputs, open_queries, query_records
from opendp_sim.dsl.ir import SourceRef
from opendp_sim.dsl.output_types import OutputType
from opendp_sim.dsl.places import is_private
from opendp_sim.dsl.plan import Plan
from opendp_sim.dsl.write import check_writable
from opendp_sim.sources.source import from_arrays
from opendp_sim.spaces.ids import persons
from opendp_sim.spaces.records import Column, Records

__all__ = ["Served", "serve"]


@dataclass(frozen=True)
class Served:
    """An open session of a spec: a context manager that takes queries and records as plain values."""

    session: Session
    records: Records
    """The type of a record, for the curator's updates."""
    features: Records
    """The type of a query."""

    def __enter__(self) -> Self:
        """Return the open session."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Close the store; the session can be opened again."""
        self.session.close()

    def ask(self, queries: Sequence[Any]) -> Any:
        """Answer queries, each a list of numbers or a mapping of columns to values."""
        return self.session.ask(self.queries(queries))

    def queries(self, queries: Sequence[Any]) -> dict[str, Any]:
        """Return queries as columns, or refuse them."""
        if not all(isinstance(query, Mapping) for query in queries):
            queries = [self._named(query) for query in queries]
        return _columns(self.features, queries)

    def update(self, what: str, records: Any) -> None:
        """Insert or relabel records (mappings of columns to values), or delete person ids.

        Ids are of the declared type of their column: ``"5"`` is not 5, and is refused.
        """
        who = self.records.privacy_id
        if what != "delete":
            getattr(self.session, what)(_columns(self.records, records))
        elif who is None:
            self.session.delete(records)
        else:
            ids = _columns(Records((who,)), [{who.name: person} for person in records])
            self.session.delete(ids[who.name])

    def _named(self, query: Any) -> dict[str, Any]:
        """Cut one list of numbers into the feature columns, in their order."""
        columns = self.features.columns
        wanted = sum(c.width for c in columns)
        if not isinstance(query, list | tuple | np.ndarray) or _has_truths(query):
            raise _unfit(_told(columns), "no list of numbers")
        with _plain_values(_told(columns)):
            numbers = np.asarray(query)
        if numbers.ndim != 1 or len(numbers) != wanted:
            came = f"{len(query)} entries" if numbers.ndim == 1 else "a list of something else"
            raise _unfit(f"{wanted} numbers: {_told(columns)}", came)
        out, start = {}, 0
        for column in self.features.columns:
            part = numbers[start : start + column.width]
            out[column.name] = part if column.is_vector else part[0]
            start += column.width
        return out


def serve(
    plan: Plan, name: str | None = None, *, memory: Memory | None = None, store: File | None = None
) -> Served:
    """Open the session that an output with ``serve: session`` names; charge the ledger if it is new.

    Args:
        plan: what ``plan_of`` made.
        name: the output; needed when several are sessions.
        memory: arrays for sources of kind ``memory``.
        store: the store's file; default the output's ``store``, else its name with ``.session``,
            beside the spec.

    Raises:
        SpecError (OS305): no such output. DataError (OS6xx): data or public queries are refused,
            or (OS609) the store cannot be written. BudgetError (OS402, OS403): the ledger
            refuses. (OS407): the store refuses.
    """
    output = _chosen(plan, name)
    typed, bound = output.stage, plan.releases[output.stage.name].bound
    if bound is None:
        raise _no_session(plan)
    folder, decl = File(plan.program.folder), output.decl
    path = store or folder / (decl.store or f"{decl.name}.session")
    mark, public = mark_of(path), None
    if decl.public_queries is not None:
        public = open_queries(decl.public_queries, output, plan.program.folder, memory or {})
    last = Stage(bound.record, bound.domain, bound.metric, bound.claim)
    if mark is None:
        check_writable(path, f"outputs.{decl.name}.store")
    name = secrets.token_hex(16) if mark is None else mark.name
    with ExitStack() as stack, ExitStack() as undo:
        ledger = open_ledger(plan, stack, store=mark)
        paid = is_paid(ledger, mark)
        inputs = open_inputs(plan, memory or {}, lambda _phase, _rows: None, ledger)
        if not paid:
            charge(plan, ledger, store=name)
        # A store of other data or another spec is a refusal by the data as well.
        with counting(plan, ledger if paid else None):
            session = Session((*typed.stages, last), inputs.blocks[typed.entry.name], path, name)
        undo.callback(session.close)
        if ledger is not None:
            ledger.opened(name, session.take_turn(name, ledger.turn_of(name) or ""))
        if public is not None:
            session.refer(public)
        undo.pop_all()
    return Served(session, typed.entry.records, query_records(typed.entry.records, typed.stages))


def read_batch(plan: Plan, name: str | None, ref: SourceRef, memory: Memory | None = None) -> Any:
    """Return the queries of a file as columns."""
    if is_private(plan.program, ref, "."):
        raise SpecError(
            "OS704", "query", expected="public queries", got="the private dataset",
            hint="name a source that is not private.",
        )  # fmt: skip
    return open_queries(ref, _chosen(plan, name), ".", memory or {})


def _chosen(plan: Plan, name: str | None) -> OutputType:
    sessions = {n: o for n, o in plan.outputs.items() if o.decl.serve == "session"}
    if name is None and len(sessions) == 1:
        return next(iter(sessions.values()))
    if name not in sessions:
        raise _no_session(plan, name)
    return sessions[name]


def _columns(records: Records, rows: Any) -> dict[str, Any]:
    """Turn rows of plain values into checked columns; text of values never leaves here."""
    whole = f"a list of records, each with {_told(records.columns)}"
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise _unfit(whole, "a row that is no record" if rows else "no record")
    block: dict[str, Any] = {}
    for column in records.columns:
        if not all(column.name in row for row in rows):
            raise _unfit(whole, f"a record without `{column.name}`")
        one = Records((column,))
        with _plain_values(_told((column,))):
            raw = {column.name: _raw(column, [row[column.name] for row in rows])}
            blocks = list(from_arrays(one, raw).blocks())
            block[column.name] = np.concatenate([part[column.name] for part in blocks])
            one.check({column.name: block[column.name]})
    return block


def _told(columns: Sequence[Column]) -> str:
    """Name columns with what belongs in them: public declarations."""
    return ", ".join(
        f"`{c.name}` ({'one of its declared keys' if c.keys else c.dtype})" for c in columns
    )


def _raw(column: Column, values: list[Any]) -> Any:
    """Return a column's plain values as an array; texts and identifiers as they are."""
    if column.dtype == "str":
        return np.array(persons([*values, ""])[:-1], dtype=object)
    found = np.asarray(persons(values) if column.role else values)
    if found.dtype.kind == "b" or (column.is_vector and any(map(_has_truths, values))):
        raise ValueError
    return found


def _has_truths(values: Any) -> bool:
    """Whether a list holds true or false, which numpy reads as 1 or 0."""
    return isinstance(values, list) and any(isinstance(value, bool) for value in values)


@contextmanager
def _plain_values(expected: str) -> Iterator[None]:
    """Turn whatever numpy says of values that fit no column into one refusal."""
    try:
        with np.errstate(all="ignore"):
            yield
    except (DataError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        _unfit(expected, "a value of another shape, dtype or range").alone()


def _unfit(expected: str, got: str) -> DataError:
    return DataError(
        "OS607", "session", expected=expected, got=got,
        hint="a query has the features of a record, as one list of numbers or by column; an update is "
        "a list of whole records: see `opendp-sim session --help`.",
    )  # fmt: skip


def _no_session(plan: Plan, name: str | None = None) -> SpecError:
    names = [n for n, o in plan.outputs.items() if o.decl.serve == "session"]
    return SpecError(
        "OS305", "outputs", expected="one output with `serve: session`, or its name",
        got=(f"`{name}`, and " if name else "") + (", ".join(names) or "none") + " in the spec",
        hint="write `outputs: {name: {from: stage, serve: session}}`, and name it if there are several.",
    )  # fmt: skip
