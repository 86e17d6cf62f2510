"""Serve a durable session from a plan with ``serve: session``."""

from __future__ import annotations

import math
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as File
from typing import Any, Self

import numpy as np

from opendp_sim.accounting.ledger._entries import stores_of
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.ledger.postgres_connection import is_shared
from opendp_sim.accounting.release.query import query_columns, query_records
from opendp_sim.accounting.session.identity import StorePlace, claimed_name
from opendp_sim.accounting.session.session import Session
from opendp_sim.core.device import Device, using_device
from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.domains.ids import id_array, persons
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.files.paths import private_of
from opendp_sim.dsl.grammar.program import SourceRef
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.charge import Transaction, is_paid
from opendp_sim.dsl.run.execute import check_targets, finish, look_again, make_run, saved
from opendp_sim.dsl.run.inputs import Inputs, Memory, open_queries
from opendp_sim.dsl.run.overwrite import check_replaced
from opendp_sim.dsl.run.publish import Run
from opendp_sim.dsl.run.records import Applied
from opendp_sim.dsl.run.stores import (
    lock_free,
    lock_place,
    make_store,
    open_references,
    session_part,
    sessions_of,
    store_path,
    take_turn,
    tell_end,
)
from opendp_sim.dsl.types.outputs import OutputType
from opendp_sim.io.blocks import Block
from opendp_sim.io.origin import NOTHING_PRIVATE, Origin, origin_of, refuse_private
from opendp_sim.io.protocol import from_arrays

# --------------------------------------------------------------------------------------------------
# Plain values, as they come in lines of JSON, as checked columns: or one refusal that quotes none.


def checked_columns(records: Records, rows: Any) -> dict[str, Any]:
    """Convert plain values to checked columns without quoting a value."""
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
    """Describe columns by their public declarations."""
    return ", ".join(
        f"`{c.name}` ({'one of its declared keys' if c.keys else c.dtype})" for c in columns
    )


def _raw(column: Column, values: list[Any]) -> Any:
    """Return a column's plain values as an array."""
    if column.dtype == "str":
        return id_array(persons([*values, "-"])[:-1])
    if column.keys and not any(isinstance(value, bool) for value in values):
        return id_array(values)
    found = np.asarray(persons(values) if column.role else values)
    if found.dtype.kind == "b" or (column.is_vector and any(map(has_truths, values))):
        raise ValueError
    return found


def has_truths(values: Any) -> bool:
    """Return whether a list contains booleans, which numpy reads as numbers."""
    return isinstance(values, list) and any(isinstance(value, bool) for value in values)


@contextmanager
def plain_values(expected: str) -> Iterator[None]:
    """Turn numpy's errors on unfit values into one refusal."""
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


@dataclass(frozen=True)
class Served:
    """Serve a spec's open session, of queries and records as plain values."""

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
    planned: int | None = None
    """The questions that noise was chosen for (`queries` of the mechanism)."""

    def __enter__(self) -> Self:
        """Return the open session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store, which can be opened again; nothing in a fork."""
        if os.getpid() != self.owner:
            return
        with self.session.lock:  # no thread is answered after the ledger heard of the end
            try:
                self.closing()
            finally:
                self.session.close()

    def ask(self, queries: Sequence[Any], *, key: str | None = None, caller: str = "") -> Any:
        """Answer queries.

        Each is a list of numbers or a mapping of columns to values. One alone, an array of shape (q, d)
        and a data frame will do too. The same ``key`` of a ``caller`` gets the same answer at no cost.

        Returns:
            ``Predictions`` in order: ``labels``, and the noisy ``counts`` and ``votes`` behind them (a
            plain array from services that release labels alone).

        Raises:
            DataError (OS607): queries of another form, or fewer than 50 at first where the service has
                to see how near records are (`threshold` unset). BudgetError (OS406): no question is left.
                (OS408): the key was used for another question.
        """
        return self.answers(self.queries(queries), key=key, caller=caller)

    def answers(
        self, queries: Mapping[str, Any], *, key: str | None = None, caller: str = ""
    ) -> Any:
        """Answer queries as columns, and warn beyond the planned number."""
        with self.session.lock:
            before = self.session.answered
            found = self.session.ask(queries, key=key, caller=caller)
            after = self.session.answered
        if self.planned is not None and before <= self.planned < after:
            with suppress(Exception):  # of a filter that raises: the answers are paid for
                warnings.warn(
                    f"this session was planned for {self.planned:,} questions (`queries`), and now has "
                    "answered more: later answers are noisier, as records whose budget is used up no "
                    "longer vote. The claim stands",
                    RuntimeWarning,
                    stacklevel=3,
                )
        return found

    def reference(self, queries: Sequence[Any]) -> bool:
        """Set the public reference queries, before the first question.

        It costs nothing. A service that has to see how near records are (``ind_knn`` without
        ``threshold``) takes them here, or 50 or more first questions. They are public: no row of the
        private table.

        Returns:
            whether they are in force: only the first reference is, of two queries or more.

        Raises:
            DataError (OS607): queries of another form.
        """
        return self.session.refer(self.queries(queries))

    def queries(self, queries: Sequence[Any]) -> dict[str, Any]:
        """Return queries as columns, or refuse them."""
        refuse_private(origin_of(queries), self.private, "queries")
        queries = self._rows(queries)
        if not all(isinstance(query, Mapping) for query in queries):
            queries = [self._named(query) for query in queries]
        return checked_columns(self.features, queries)

    def update(self, what: str, records: Any) -> None:
        """Insert, relabel or delete records.

        Records are mappings of columns to values; deletion takes person ids. Ids are of the declared
        type of their column: ``"5"`` is not 5, and is refused.
        """
        who = self.records.privacy_id
        if what != "delete":
            getattr(self.session, what)(checked_columns(self.records, records))
        elif who is None:
            self.session.delete(records)
        else:
            ids = checked_columns(Records((who,)), [{who.name: person} for person in records])
            self.session.delete(ids[who.name])

    def _rows(self, queries: Any) -> Sequence[Any]:
        """Return queries as rows, one alone and a table too."""
        if isinstance(queries, Mapping):
            return [queries]
        if hasattr(queries, "__arrow_c_stream__"):
            held = query_columns(queries, self.features)
            cells = (np.asarray(part).tolist() for part in held.values())
            return [dict(zip(held, row, strict=True)) for row in zip(*cells, strict=True)]
        if not isinstance(queries, list | tuple | np.ndarray) or getattr(queries, "ndim", 1) == 0:
            raise unfit(f"queries, each with {described(self.features.columns)}", "no list of them")
        if not len(queries) or not all(isinstance(v, int | float | np.number) for v in queries):
            return list(queries)
        one = sum(c.width for c in self.features.columns) == 1
        return [[value] for value in queries] if one else [queries]

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


def answer_lines(answers: Any) -> Iterator[dict[str, Any]]:
    """Yield each of a session's answers as plain values, for JSON."""
    for label, count, votes, deviation in zip(
        answers.labels, answers.counts, answers.votes, answers.deviations, strict=True
    ):
        yield {
            "label": label,
            "count": None if math.isnan(count) else int(count),  # nobody was counted
            "votes": [_number(v) for v in votes],
            "deviation": _number(deviation),
        }


def _number(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def serve(
    plan: Plan,
    name: str | None = None,
    *,
    memory: Memory | None = None,
    store: File | None = None,
    device: str | Device | None = None,
    charged: Callable[[str], None] = lambda _text: None,
    ran: Callable[[Applied], None] = lambda _done: None,
    expected_head: str | None = None,
) -> Served:
    """Open the session of a served output, after its run.

    The run pays for the session. The output has ``serve: session``. That run is made if it was not:
    every other output is written, every other session's store made, and the program charged once.
    Where the store is there, or was paid for and never asked, nothing is.

    Args:
        plan: what ``plan_of`` made.
        name: the output; needed when several are sessions.
        memory: arrays for sources of kind ``memory``.
        store: the store's file, or ``postgresql:SERVICE/STORE``; default the output's ``store``, else
            its name with ``.session``, beside the spec.
        device: ``cuda``, ``cuda:1``, ... for a card that compares queries with records, and sums up
            the run's sketches; default the CPU. The answers' laws are the same.
        charged: told in words what is charged, at the moment from which it stands.
        ran: told what a run left that was made or finished.
        expected_head: the ledger's head when the run was confirmed, as ``apply`` takes it.

    Raises:
        SpecError (OS305): no such output. (OS304): the spec's store leaves its folder.
            DataError (OS6xx): data or public queries are refused, or (OS609) the store or an output
            cannot be written, or another session's store is there and this one's is not.
            BudgetError (OS402, OS403): the ledger refuses. (OS407): the store refuses. (OS409): another
            head than ``expected_head``; nothing was charged.
    """
    output, held = _chosen(plan, name), memory or {}
    path = store or store_path(plan, output)
    with using_device(device), ExitStack() as stack, ExitStack() as undo:
        place = undo.enter_context(lock_place(path, output))
        transaction = Transaction.open(
            plan, stack, store=place.mark, charged=charged, head=expected_head
        )
        ledger = transaction.ledger
        public = open_references(session_part(plan, output), held)
        run = Run(File(plan.program.folder), transaction)
        opening = _Opening(plan, output, place, undo)
        if is_paid(ledger, place.mark):
            opening.go_on(run, held, place.mark.name if place.mark is not None else "")
        else:
            _pay(opening, run, held, stack, ran, public)
        session = opening.session
        assert session is not None  # noqa: S101 - it was opened, or something was raised
        turn = "" if ledger is None else take_turn(session, ledger, opening.name)
        for reference in public.values():
            session.refer(reference)
        undo.pop_all()
    charged(f"what was answered is charged in {path}, and stands")
    typed = output.stage
    features = query_records(typed.entry.records, typed.stages)
    closing = (
        _no_progress if ledger is None else partial(tell_end, plan, session, opening.name, turn)
    )
    private = private_of(plan.program, held)
    planned = getattr(plan.releases[typed.name].record, "queries", None)
    return Served(session, typed.entry.records, features, closing, private, planned=planned)


def _pay(
    opening: _Opening,
    run: Run,
    memory: Memory,
    stack: ExitStack,
    ran: Callable[[Applied], None],
    public: Mapping[str, Block],
) -> None:
    """Open an unpaid store, charging its run first if it was not."""
    plan, place, output = opening.plan, opening.place, opening.output.decl.name
    done = finish(plan, run, None) if place.mark is None and saved(plan, run.folder) else None
    if done is not None:
        ran(done)
    name = run.transaction.unserved(output) if place.mark is None else None
    if name is not None:
        _say_lost(plan, run, name)
        opening.go_on(run, memory, name)
        return
    for where, path in check_targets(plan, run.folder, anywhere=False, replaced=False):
        check_replaced(path, where)
    others = lock_free(plan, stack, output, ledger=run.transaction.ledger)
    drawn = {one: secrets.token_hex(16) for one in (*others, output)}
    names = {one: drawn[one] for one in sessions_of(plan)}
    if place.mark is not None:
        names[output] = place.mark.name  # a store from elsewhere: this ledger pays for it now
    opening.claim(run.transaction.ledger, names[output])
    opened = partial(opening.open, name=names[output])
    ran(make_run(plan, run, memory, others, names, opened, public))


def _say_lost(plan: Plan, run: Run, store: str) -> None:
    """Warn of a dead run that paid for a store."""
    ledger = run.transaction.ledger
    for entry in () if ledger is None or not saved(plan, run.folder) else ledger.entries:
        mine = entry.kind == "reserve" and store in stores_of(entry.body)
        if mine and ledger is not None and ledger.settlement_of(entry) is None:
            warnings.warn(
                f"the run of entry {entry.seq} ended before its files were complete: they are lost, "
                "unless another folder (--into) keeps them. This session was paid for by that run; "
                "`opendp-sim apply` makes another run, which is charged again.",
                RuntimeWarning,
                stacklevel=4,
            )


@dataclass
class _Opening:
    """The one session that stays open; ``undo`` closes it before."""

    plan: Plan
    output: OutputType
    place: StorePlace
    undo: ExitStack
    name: str = ""
    session: Session | None = None
    release: Callable[[], None] = lambda: None

    def claim(self, ledger: Ledger | None, name: str) -> None:
        """Claim the store's name beside a ledger's file, from before the charge."""
        self.name = name
        if ledger is not None and not is_shared(ledger.path):
            self.release = claimed_name(ledger.path, name)
            self.undo.callback(self.release)

    def open(self, inputs: Inputs, name: str) -> None:
        """Open the session over its store."""
        self.session = make_store(self.plan, self.output, inputs, self.place, name)
        self.undo.callback(self.session.close)
        self.session.keep(self.release)

    def go_on(self, run: Run, memory: Memory, name: str) -> None:
        """Open a paid store, refusing other data or another spec."""
        plan, paid = session_part(self.plan, self.output), self.place.mark is not None
        self.claim(run.transaction.ledger, name)
        inputs = look_again(plan, run, memory, [name])
        with run.transaction.counting() if paid else nullcontext():
            self.open(inputs, name)


def _no_progress() -> None:
    """Record nothing, since there is no ledger."""


def read_batch(plan: Plan, name: str | None, ref: SourceRef) -> Any:
    """Return the queries of a file as columns (OS704, OS607)."""
    return open_queries(ref, _chosen(plan, name), ".", {}, private=private_of(plan.program))


def _chosen(plan: Plan, name: str | None) -> OutputType:
    sessions = sessions_of(plan)
    if name is None and len(sessions) == 1:
        return next(iter(sessions.values()))
    if name in sessions:
        return sessions[name]
    raise SpecError(
        "OS305", "outputs", expected="one output with `serve: session`, or its name",
        got=(f"`{name}`, and " if name else "") + (", ".join(sessions) or "none") + " in the spec",
        hint="write `outputs: {name: {from: stage, serve: session}}`, and name it if there are several.",
    )  # fmt: skip
