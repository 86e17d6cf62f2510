"""Before the data is looked at: is there budget, and was the data asked too often in vain?

A run that the data refuses costs nothing, and the refusal is public: with bounds chosen by whoever
writes the spec it answers a question about the extremes of a column. So with a ledger, a run is looked
at by the data only if its charge fits, a run that passes is charged, and a run that does not is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path as File

from opendp_sim.accounting.ledger import Entry, Ledger, Terms
from opendp_sim.accounting.session_store import LOCKED, UNWRITABLE, Mark
from opendp_sim.core.errors import BudgetError, DataError, SimError
from opendp_sim.dsl.ir import DataEntry
from opendp_sim.dsl.plan import Plan

__all__ = ["charge", "counting", "is_paid", "ledger_path", "open_ledger", "terms_of"]


def _entry(plan: Plan) -> DataEntry | None:
    return next((e for e in plan.program.data if e.ledger is not None), None)


def terms_of(plan: Plan) -> Terms | None:
    """Return the terms of the ledger that the plan's dataset names, or None."""
    entry = _entry(plan)
    if entry is None or entry.ledger is None or plan.privacy is None:
        return None
    unit = plan.privacy.unit
    return Terms(plan.privacy.measure, f"{unit.kind} {unit.count} of {unit.of}", entry.ledger.limit)


def ledger_path(plan: Plan) -> File | None:
    """Return the ledger's file; relative paths start from the spec's folder, whoever runs it."""
    entry = _entry(plan)
    return None if entry is None or entry.ledger is None else (
        File(plan.program.folder) / entry.ledger.file
    )  # fmt: skip


def is_paid(ledger: Ledger | None, store: Mark | None) -> bool:
    """Say whether a session's store was charged for: by this ledger, and since then opened under it.

    Raises:
        BudgetError (OS407): an older copy of the store, or a copy of it was opened meanwhile.
    """
    if store is None or ledger is None:
        return store is not None
    last = ledger.turn_of(store.name)
    if last is not None and last not in (store.turn, store.before):
        raise BudgetError(
            "OS407", "session.store", expected="the store as its last session left it",
            got="an older copy, or one of which a copy was opened since",
            hint="open the file that was served last; if it is lost, another `--store` starts afresh "
            "and is charged as a new session.",
        )  # fmt: skip
    return last is not None


def open_ledger(plan: Plan, stack: ExitStack, *, store: Mark | None = None) -> Ledger | None:
    """Open the plan's ledger until ``stack`` closes, if the plan may be put to the data at all.

    Args:
        plan: what is to run.
        stack: closes the ledger.
        store: a session's store that is there already; what it was charged is not charged again.

    Raises:
        BudgetError (OS407): the store is an older copy.
        BudgetError (OS402): the charge does not fit, or too many runs were refused by the data.
            (OS403): no ledger of these terms.
    """
    terms, path = terms_of(plan), ledger_path(plan)
    if terms is None or path is None or plan.charge is None:
        return None
    terms.limit.check(terms.measure, "ledger.limit")
    ledger = stack.enter_context(Ledger.open(path, terms))
    if not is_paid(ledger, store):
        ledger.afford(plan.charge)
    entry = _entry(plan)
    if entry is not None and entry.ingest != "enforce":
        ledger.may_refuse()
    return ledger


@contextmanager
def counting(plan: Plan, ledger: Ledger | None) -> Iterator[None]:
    """Record whatever ends the look at the data, durably, before anybody hears of it."""
    try:
        yield
    except Exception as error:
        if ledger is not None and not _harmless(plan, error):
            code = error.code if isinstance(error, SimError) else "OS902"
            ledger.refusal({"program": plan.program.hash, "code": code})
        raise


def _harmless(plan: Plan, error: Exception) -> bool:
    """Say whether no record was looked at: no file, array or reader, a store that cannot be had."""
    if isinstance(error, BudgetError):
        return error.got in (LOCKED, UNWRITABLE)
    if not isinstance(error, DataError):
        return False
    entry = _entry(plan)
    named = None if entry is None else entry.source.argument
    named = named.get("file") if isinstance(named, dict) else named
    absent = not (File(plan.program.folder) / str(named)).exists()
    return error.code == "OS606" or (error.code == "OS601" and absent)


def charge(plan: Plan, ledger: Ledger | None, *, store: str | None = None) -> Entry | None:
    """Charge the plan's total, durably; for a session, under the name of its store."""
    if ledger is None or plan.charge is None:
        return None
    about = {"program": plan.program.hash, "name": plan.program.name}
    return ledger.charge(plan.charge, about if store is None else about | {"store": store})
