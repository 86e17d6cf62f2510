"""Serving a session: from a plan with ``serve: session`` to an open, durable session."""

from __future__ import annotations

import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, Path as File
from types import TracebackType
from typing import Any, Self

import numpy as np

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.ledger.postgres import is_shared
from opendp_sim.accounting.session.end import End, note_end, noted_end, remove_note
from opendp_sim.accounting.session.identity import claimed_name
from opendp_sim.accounting.session.postgres import mark_at
from opendp_sim.accounting.session.session import Session
from opendp_sim.core.claims import Stage
from opendp_sim.core.errors import BudgetError, DataError, SpecError
from opendp_sim.core.system.escape_text import shown
from opendp_sim.domains.ids import boxed, persons
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.files.write import check_writable
from opendp_sim.dsl.grammar.program import SourceRef
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.records import ledger_path
from opendp_sim.dsl.run.charge import (
    counting,
    gate,
    is_paid,
    may_be_refused,
    open_ledger,
    reserve,
    settle_store,
    unserved,
)
from opendp_sim.dsl.run.inputs import (
    Memory,
    check_forms,
    open_private,
    open_public,
    open_queries,
    private_of,
    query_records,
)
from opendp_sim.dsl.types.outputs import OutputType
from opendp_sim.io.origin import NOTHING_PRIVATE, Origin, origin_of, refuse_private
from opendp_sim.io.protocol import from_arrays

# --------------------------------------------------------------------------------------------------
# Plain values, as they come in lines of JSON, as checked columns: or one refusal that quotes none.


def columns_of(records: Records, rows: Any) -> dict[str, Any]:
    """Turn rows of plain values into checked columns; text of values never leaves here."""
    whole = f"a list of records, each with {described(records.columns)}"
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise unfit(whole, "a row that is no record" if rows else "no record")
    block: dict[str, Any] = {}
    for column in records.columns:
        if not all(column.name in row for row in rows):
            raise unfit(whole, f"a record without `{column.name}`")
        one = Records((column,))
        with plain_values(described((column,))):
            raw = {column.name: _raw(column, [row[column.name] for row in rows])}
            blocks = list(from_arrays(one, raw).blocks())
            block[column.name] = np.concatenate([part[column.name] for part in blocks])
            one.check({column.name: block[column.name]})
    return block


def described(columns: Sequence[Column]) -> str:
    """Name columns with what belongs in them: public declarations."""
    return ", ".join(
        f"`{c.name}` ({'one of its declared keys' if c.keys else c.dtype})" for c in columns
    )


def _raw(column: Column, values: list[Any]) -> Any:
    """Return a column's plain values as an array; texts and identifiers as they are."""
    if column.dtype == "str":
        return boxed(persons([*values, "-"])[:-1])
    if column.keys and not any(isinstance(value, bool) for value in values):
        return boxed(values)
    found = np.asarray(persons(values) if column.role else values)
    if found.dtype.kind == "b" or (column.is_vector and any(map(has_truths, values))):
        raise ValueError
    return found


def has_truths(values: Any) -> bool:
    """Whether a list holds true or false, which numpy reads as 1 or 0."""
    return isinstance(values, list) and any(isinstance(value, bool) for value in values)


@contextmanager
def plain_values(expected: str) -> Iterator[None]:
    """Turn whatever numpy says of values that fit no column into one refusal."""
    try:
        with np.errstate(all="ignore"):
            yield
    except (DataError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        unfit(expected, "a value of another shape, dtype or range").alone()


def unfit(expected: str, got: str) -> DataError:
    """Return the refusal of values of another form (OS607)."""
    return DataError(
        "OS607",
        "session",
        expected=expected,
        got=got,
        hint="a query has the features of a record, as one list of numbers or by column; an update is "
        "a list of whole records: see `opendp-sim session --help`.",
    )


# --------------------------------------------------------------------------------------------------
# What a ledger hears of a session: that its store is open, and where its chain ended.
#
# Law: ``accounting/session/store.md``, Lemmas 4 and 5.

_PATIENCE = 10.0
"""Seconds that the end of a session waits for a ledger that another run has open."""


def take_turn(session: Session, ledger: Ledger, name: str) -> str:
    """Record that a store is open from now on, and return its turn; what is no such store is refused.

    Raises:
        BudgetError (OS407): its chain does not hold what the ledger heard last, or goes on after an end.
    """
    if (told := ledger.head_told(name)) is not None:
        session.check_head(*told)
    if (end := _noted(ledger, name)) is not None:
        session.check_head(end.place, end.head, ended=True)
    turn = session.take_turn(name, ledger.turn_of(name) or "", ledger.path.name)
    ledger.opened(name, turn, session.tell())
    if end is not None:
        remove_note(ledger.path, name)
    return turn


def _noted(ledger: Ledger, name: str) -> End | None:
    """Return where a store's last session ended, if that was noted beside its ledger's file."""
    end = None if is_shared(ledger.path) else noted_end(ledger.path, name)
    return None if end is None or end.turn != ledger.turn_of(name) else end


def tell_end(plan: Plan, session: Session, name: str, turn: str) -> None:
    """Tell the ledger where the chain of a store ended: a copy from before is refused from then on.

    A note beside the ledger says so first, since the ledger may be in use for long, and whoever waits may
    be stopped; it stays until the next opening if the ledger does not hear. Where neither does, a
    warning says what follows. A ledger that is gone, or does not know this turn of the store, is told
    nothing, and none is made in its place.
    """
    path = ledger_path(plan)
    if path is None:
        return
    noted, heard, stopped = False, None, True
    try:
        noted = _note(path, session, name, turn)
        heard = _heard(path, session, name, turn)
        noted = noted and heard is not None  # or nobody would ask for the note
        stopped = False
    finally:
        noted = noted or (stopped and _is_noted(path, name, turn))
        if not (noted or heard):
            _warn(path)
    if noted and heard:
        with suppress(OSError):
            remove_note(path, name)


def _note(path: Path, session: Session, name: str, turn: str) -> bool:
    """Write where the chain ends beside the ledger's file; False where that cannot be."""
    with suppress(OSError, BudgetError):
        if not is_shared(path) and path.exists():
            place, head = session.tell()
            note_end(path, name, End(turn=turn, place=place, head=head))
            return True
    return False


def _is_noted(path: Path, name: str, turn: str) -> bool:
    """Say whether the note is there, whoever was stopped after writing it."""
    with suppress(OSError, BudgetError):
        found = None if is_shared(path) else noted_end(path, name)
        return found is not None and found.turn == turn
    return False


def _heard(path: Path, session: Session, name: str, turn: str) -> bool | None:
    """Tell the ledger itself, if it can be had in time; None for one that does not know this turn."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            with Ledger.open(path) as ledger:
                if ledger.turn_of(name) != turn:
                    return None
                ledger.opened(name, turn, session.tell(), ended=True)
        except BudgetError as error:
            if "locked" not in str(error.got) or time.monotonic() > until:
                return False
        else:
            return True
        time.sleep(0.05)


def _warn(path: Path) -> None:
    warnings.warn(
        f"the ledger {shown(str(path))} did not hear where this session ended: until its store is opened "
        "again, a copy that was made during the session would be taken for it. Open and close it once "
        "more.",
        RuntimeWarning,
        stacklevel=5,
    )


# --------------------------------------------------------------------------------------------------


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
    private: Origin = NOTHING_PRIVATE
    """Where the records come from: queries from there are refused."""
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
        with self.session.lock:  # no thread is answered after the ledger heard of the end
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
        refuse_private(origin_of(queries), self.private, "queries")
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
    mark, public, private = mark_at(path), None, private_of(plan.program, held)
    if decl.public_queries is not None:
        public = open_queries(decl.public_queries, output, folder, held, private=private)
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
    return Served(session, typed.entry.records, features, closing, private)


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
    """Return the queries of a file as columns.

    Raises:
        ReleaseError (OS704): they are the private dataset. DataError (OS607): they are no queries.
    """
    private = private_of(plan.program, memory)
    return open_queries(ref, _chosen(plan, name), ".", memory or {}, private=private)


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
