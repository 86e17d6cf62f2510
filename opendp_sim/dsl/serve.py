"""Serving a session: from a plan with ``serve: session`` to an open, durable session."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as File
from types import TracebackType
from typing import Any, Self

import numpy as np

from opendp_sim.accounting.ledger import Ledger
from opendp_sim.accounting.session import Session
from opendp_sim.accounting.session_mark import claimed_name
from opendp_sim.accounting.shared_ledger import is_shared
from opendp_sim.accounting.shared_store import mark_at
from opendp_sim.core.claims import Stage
from opendp_sim.core.errors import SpecError
from opendp_sim.dsl.charging import (
    counting,
    gate,
    is_paid,
    may_be_refused,
    open_ledger,
    reserve,
    settle_store,
    unserved,
)
from opendp_sim.dsl.inputs import (
    Memory,
    check_forms,
    open_private,
    open_public,
    open_queries,
    query_records,
)
from opendp_sim.dsl.ir import SourceRef
from opendp_sim.dsl.output_types import OutputType
from opendp_sim.dsl.places import is_private
from opendp_sim.dsl.plain_rows import columns_of, described, has_truths, plain_values, unfit
from opendp_sim.dsl.plan import Plan
from opendp_sim.dsl.session_turns import take_turn, tell_end
from opendp_sim.dsl.write import check_writable
from opendp_sim.spaces.records import Records

__all__ = ["Served", "serve"]


@dataclass(frozen=True)
class Served:
    """An open session of a spec: a context manager that takes queries and records as plain values."""

    session: Session
    records: Records
    """The type of a record, for the curator's updates."""
    features: Records
    """The type of a query."""
    closing: Callable[[], None] = lambda: None
    """Tells the ledger where the store's chain ended."""
    owner: int = field(default_factory=os.getpid)
    """The process that opened it."""

    def __enter__(self) -> Self:
        """Return the open session."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Close the store; the session can be opened again. In a fork, do nothing."""
        if os.getpid() != self.owner:
            return
        try:
            self.closing()
        finally:
            self.session.close()

    def ask(self, queries: Sequence[Any]) -> Any:
        """Answer queries, each a list of numbers or a mapping of columns to values.

        Returns:
            ``Predictions`` in order: ``labels``, and the noisy ``counts`` and ``votes`` behind them (a
            plain array from services that release labels alone).

        Raises:
            DataError (OS607): queries of another form, or fewer than 50 at first where the service has
                to see how near records are (`threshold` unset). BudgetError (OS406): no question is left.
        """
        return self.session.ask(self.queries(queries))

    def reference(self, queries: Sequence[Any]) -> bool:
        """Say what public queries look like, before the first question; it costs nothing.

        A service that has to see how near records are (``ind_knn`` without ``threshold``) takes them
        here, or 50 or more first questions. They are public: no row of the private table.

        Returns:
            whether they are in force: only the first reference is, of two queries or more.

        Raises:
            DataError (OS607): queries of another form.
        """
        return self.session.refer(self.queries(queries))

    def queries(self, queries: Sequence[Any]) -> dict[str, Any]:
        """Return queries as columns, or refuse them."""
        if not all(isinstance(query, Mapping) for query in queries):
            queries = [self._named(query) for query in queries]
        return columns_of(self.features, queries)

    def update(self, what: str, records: Any) -> None:
        """Insert or relabel records (mappings of columns to values), or delete person ids.

        Ids are of the declared type of their column: ``"5"`` is not 5, and is refused.
        """
        who = self.records.privacy_id
        if what != "delete":
            getattr(self.session, what)(columns_of(self.records, records))
        elif who is None:
            self.session.delete(records)
        else:
            ids = columns_of(Records((who,)), [{who.name: person} for person in records])
            self.session.delete(ids[who.name])

    def _named(self, query: Any) -> dict[str, Any]:
        """Cut one list of numbers into the feature columns, in their order."""
        columns = self.features.columns
        wanted = sum(c.width for c in columns)
        if not isinstance(query, list | tuple | np.ndarray) or has_truths(query):
            raise unfit(described(columns), "no list of numbers")
        with plain_values(described(columns)):
            numbers = np.asarray(query)
        if numbers.ndim != 1 or len(numbers) != wanted:
            came = f"{len(query)} entries" if numbers.ndim == 1 else "a list of something else"
            raise unfit(f"{wanted} numbers: {described(columns)}", came)
        out, start = {}, 0
        for column in self.features.columns:
            part = numbers[start : start + column.width]
            out[column.name] = part if column.is_vector else part[0]
            start += column.width
        return out


def serve(
    plan: Plan,
    name: str | None = None,
    *,
    memory: Memory | None = None,
    store: File | None = None,
    charged: Callable[[str], None] = lambda _text: None,
) -> Served:
    """Open the session that an output with ``serve: session`` names; charge the ledger if it is new.

    Args:
        plan: what ``plan_of`` made.
        name: the output; needed when several are sessions.
        memory: arrays for sources of kind ``memory``.
        store: the store's file, or ``postgresql:SERVICE/STORE``; default the output's ``store``, else
            its name with ``.session``, beside the spec.
        charged: told in words what is charged, at the moment from which it stands.

    Raises:
        SpecError (OS305): no such output. (OS304): the spec's store leaves its folder.
            DataError (OS6xx): data or public queries are refused, or (OS609) the store cannot be
            written. BudgetError (OS402, OS403): the ledger refuses. (OS407): the store refuses.
    """
    output = _chosen(plan, name)
    typed, decl, steps = output.stage, output.decl, _steps(plan, output)
    folder, held = plan.program.folder, memory or {}
    path = store or _inside(File(folder), decl.store or f"{decl.name}.session", decl.name)
    mark, public = mark_at(path), None
    if decl.public_queries is not None:
        public = open_queries(decl.public_queries, output, folder, held)
    if mark is None and not is_shared(path):
        check_writable(path, f"outputs.{decl.name}.store")
    with ExitStack() as stack, ExitStack() as undo:
        ledger = open_ledger(plan, stack, store=mark)
        paid = is_paid(ledger, mark)
        waiting = unserved(plan, ledger) if mark is None else None
        name = mark.name if mark is not None else waiting or secrets.token_hex(16)
        release = _claimed(ledger, name)
        undo.callback(release)
        inputs = open_public(plan, held, _untold)
        check_forms(plan, held)
        stands = paid or waiting is not None
        # A store of other data or another spec is a refusal by the data as well.
        with _charging(plan, ledger, name, charged, stands=stands):
            inputs = open_private(plan, held, _untold, inputs)
        settle_store(ledger, name)
        with counting(plan, ledger if paid else None):
            session = Session(steps, inputs.blocks[typed.entry.name], path, name)
        undo.callback(session.close)
        session.keep(release)
        turn = "" if ledger is None else take_turn(session, ledger, name)
        if public is not None:
            session.refer(public)
        undo.pop_all()
    charged(f"what was answered is charged in {path}, and stands")
    features = query_records(typed.entry.records, typed.stages)
    closing = _untold_end if ledger is None else partial(tell_end, plan, session, name, turn)
    return Served(session, typed.entry.records, features, closing)


def _steps(plan: Plan, output: OutputType) -> tuple[Stage, ...]:
    """Return the steps of a session, the service last."""
    bound = plan.releases[output.stage.name].bound
    if bound is None:
        raise _no_session(plan)
    last = Stage(bound.record, bound.domain, bound.metric, bound.claim)
    return *output.stage.stages, last


def _claimed(ledger: Ledger | None, name: str) -> Callable[[], None]:
    """Claim the session's name beside a ledger's file; return what gives it back."""
    if ledger is None or is_shared(ledger.path):
        return _untold_end
    return claimed_name(ledger.path, name)


def _charging(
    plan: Plan, ledger: Ledger | None, name: str, charged: Callable[[str], None], *, stands: bool
) -> AbstractContextManager[Any]:
    """Reserve the session's charge, unless one stands; return what counts a refusal by the data."""
    reserved = None
    if not stands:
        reserved = reserve(plan, ledger, store=name, charged=charged)
    else:
        may_be_refused(plan, ledger)
        if ledger is not None:
            charged(f"what {ledger.path} charged for this session before stands")
    return gate(plan, ledger, reserved, charged) if reserved else counting(plan, ledger)


def _untold_end() -> None:
    """Tell nobody: there is no ledger."""


def _untold(_phase: str, _rows: int) -> None:
    """Show no progress: how far a gate came would be about the data."""


def read_batch(plan: Plan, name: str | None, ref: SourceRef, memory: Memory | None = None) -> Any:
    """Return the queries of a file as columns."""
    if is_private(plan.program, ref, "."):
        raise SpecError(
            "OS704", "query", expected="public queries", got="the private dataset",
            hint="name a source that is not private.",
        )  # fmt: skip
    return open_queries(ref, _chosen(plan, name), ".", memory or {})


def _inside(folder: File, store: str, name: str) -> File:
    """Return the store that a spec names, links followed; it stays in the spec's folder.

    Raises:
        SpecError (OS304): it does not.
    """
    path = File(store) if is_shared(store) else folder / store
    if is_shared(store) or path.resolve().is_relative_to(folder.resolve()):
        return path
    raise SpecError(
        "OS304", f"outputs.{name}.store", expected="a file in the spec's folder", got="one outside it",
        hint="name a file below the folder, or name this one yourself with `session --store FILE`.",
    )  # fmt: skip


def _chosen(plan: Plan, name: str | None) -> OutputType:
    sessions = {n: o for n, o in plan.outputs.items() if o.decl.serve == "session"}
    if name is None and len(sessions) == 1:
        return next(iter(sessions.values()))
    if name not in sessions:
        raise _no_session(plan, name)
    return sessions[name]


def _no_session(plan: Plan, name: str | None = None) -> SpecError:
    names = [n for n, o in plan.outputs.items() if o.decl.serve == "session"]
    return SpecError(
        "OS305", "outputs", expected="one output with `serve: session`, or its name",
        got=(f"`{name}`, and " if name else "") + (", ".join(names) or "none") + " in the spec",
        hint="write `outputs: {name: {from: stage, serve: session}}`, and name it if there are several.",
    )  # fmt: skip
