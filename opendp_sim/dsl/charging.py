"""Reserve, run, settle: the one order in which every run, here or on a cluster, is charged.

A run that the data refuses costs nothing, and the refusal is public: with bounds chosen by whoever
writes the spec it answers a question about the extremes of a column. So with a ledger, the loss of a
run is reserved before a record is read; a run that the data refuses is counted and its reserve
returned; whatever else happens, the reserve stands. Proof: ``charging.md``, beside this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path as File

from opendp_sim.accounting.ledger import Entry, Ledger, Terms
from opendp_sim.accounting.session_mark import LOCKED, UNWRITABLE, Mark
from opendp_sim.accounting.shared_ledger import is_shared
from opendp_sim.core.errors import BudgetError, DataError, SimError, SpecError
from opendp_sim.core.interrupts import held
from opendp_sim.dsl.ir import DataEntry
from opendp_sim.dsl.lost_ledger import refuse_lost, refuse_older, trace_of
from opendp_sim.dsl.plan import Plan

__all__ = [
    "begin_ledger",
    "counting",
    "gate",
    "is_paid",
    "ledger_path",
    "may_be_refused",
    "open_ledger",
    "reserve",
    "settle_store",
    "terms_of",
    "unit_text",
    "unserved",
]


def _entry(plan: Plan) -> DataEntry | None:
    return next((e for e in plan.program.data if e.ledger is not None), None)


def unit_text(plan: Plan) -> str:
    """Return the privacy unit as a ledger states it."""
    if plan.privacy is None:
        return "none"
    unit = plan.privacy.unit
    return f"{unit.kind} {unit.count} of {unit.of}"


def terms_of(plan: Plan) -> Terms | None:
    """Return the terms of the ledger that the plan's dataset names, or None."""
    entry = _entry(plan)
    if entry is None or entry.ledger is None or plan.privacy is None:
        return None
    measure = entry.ledger.measure or plan.privacy.measure
    return Terms(measure, unit_text(plan), entry.ledger.limit)


def ledger_path(plan: Plan) -> File | None:
    """Return the ledger's file; relative paths start from the spec's folder, whoever runs it."""
    entry = _entry(plan)
    if entry is None or entry.ledger is None:
        return None
    place = File(entry.ledger.file)
    return place if is_shared(place) else File(plan.program.folder) / place


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


def unserved(plan: Plan, ledger: Ledger | None) -> str | None:
    """Return the name of a store that this program was charged for and that never answered.

    A process that died between the charge and the opening of its store leaves one: the next session of
    the program takes it over instead of paying again (``charging.md``, Lemma 4).
    """
    if ledger is None:
        return None
    entries = ledger.entries
    names = [
        e.body["store"]
        for e in entries
        if e.kind == "reserve"
        and e.body.get("program") == plan.program.hash
        and e.body.get("store")
        and e.body["loss"] == _loss(plan)
    ]
    return next((name for name in names if ledger.turn_of(name) == ""), None)


def settle_store(ledger: Ledger | None, store: str) -> None:
    """Settle the open reserve of a session's store as a charge, if there is one: the gate let it pass."""
    if ledger is None:
        return
    for entry in ledger.entries:
        own = entry.kind == "reserve" and entry.body.get("store") == store
        if own and ledger.settlement_of(entry) is None:
            ledger.settle(entry, "charge", {})


def _loss(plan: Plan) -> object:
    return None if plan.charge is None else plan.charge.plain()


def open_ledger(
    plan: Plan, stack: ExitStack, *, store: Mark | None = None, folder: File | None = None
) -> Ledger | None:
    """Open the plan's ledger until ``stack`` closes, if the plan may be put to the data at all.

    Args:
        plan: what is to run.
        stack: closes the ledger.
        store: a session's store that is there already; an older copy of one is refused.
        folder: where outputs are saved; default the spec's.

    Raises:
        BudgetError (OS407): the store is an older copy; or the ledger was charged, and is gone, or is an
            older copy.
        BudgetError (OS402): too many runs were refused by the data. (OS403): no ledger of these terms.
    """
    terms, path = terms_of(plan), ledger_path(plan)
    if terms is None or path is None or plan.charge is None:
        return None
    terms.limit.check(terms.measure, "ledger.limit")
    refuse_lost(plan, path, folder, store)
    ledger = stack.enter_context(Ledger.open(path, terms))
    refuse_older(plan, ledger, folder)
    is_paid(ledger, store)
    return ledger


def begin_ledger(plan: Plan, into: File | None, *, forget: bool) -> tuple[File, str | None]:
    """Make the plan's ledger before its first run; return its path, and what was forgotten with it.

    Args:
        plan: what names the ledger.
        into: the folder that outputs are saved under; default the spec's.
        forget: also where a ledger was lost, which is recorded.

    Raises:
        SpecError (OS306): the plan charges no ledger's file. BudgetError (OS403): it is there. (OS407):
            it was lost, and ``forget`` is not set.
    """
    terms, path = terms_of(plan), ledger_path(plan)
    if terms is None or path is None or is_shared(path):
        raise SpecError(
            "OS306", "data", expected="a private dataset with a ledger in a file", got="none",
            hint="write `ledger: {file: NAME, limit: ...}` under the dataset.",
        )  # fmt: skip
    if path.exists():
        raise BudgetError(
            "OS403", str(path), expected="no ledger yet", got="one that is there",
            hint="`opendp-sim ledger show` reads it; charges that it holds cannot be forgotten.",
        )  # fmt: skip
    known = trace_of(plan, path, into)
    if not forget:
        refuse_lost(plan, path, into)
    Ledger.open(path, terms, forget=known is not None).close()
    return path, known


def reserve(
    plan: Plan,
    ledger: Ledger | None,
    *,
    token: str | None = None,
    store: str | None = None,
    seal: str | None = None,
    charged: Callable[[str], None] = lambda _text: None,
) -> Entry | None:
    """Reserve the plan's loss, durably, before a record is read.

    Args:
        plan: what is to run.
        ledger: where; None for a plan without a ledger.
        token: what names the run.
        store: the name of a session's store.
        seal: what the run's files will be sealed with.
        charged: told in words what stands from now on, before a signal can stop the run.

    Raises:
        BudgetError (OS402): it does not fit, or too many runs were refused by the data.
    """
    if ledger is None or plan.charge is None:
        return None
    may_be_refused(plan, ledger)
    entry = _entry(plan)
    about = {
        "program": plan.program.hash,
        "name": plan.program.name,
        "unit": unit_text(plan),
        "dataset": None if entry is None else entry.name,
        "token": token,
        "store": store,
        "seal": seal,
    }
    with held():
        try:
            made = ledger.reserve(plan.charge, {k: v for k, v in about.items() if v is not None})
        except BaseException as error:
            if getattr(error, "code", "") != "OS402":  # the entry may be made, and its end failed
                charged(
                    f"{ledger.path} may have been charged {plan.charge.text}: see `ledger show`"
                )
            raise
        charged(f"entry {made.seq} of {ledger.path} charges {plan.charge.text}, and stands")
    return made


def may_be_refused(plan: Plan, ledger: Ledger | None) -> None:
    """Refuse a run that the data could refuse once too often (OS402)."""
    entry = _entry(plan)
    if ledger is not None and entry is not None:
        ledger.may_refuse(enforced=entry.ingest == "enforce")


def _told(plan: Plan, code: str) -> dict[str, str]:
    """Return what a ledger records of a refusal: its code, and whether the declaration was enforced."""
    entry = _entry(plan)
    enforced = entry is not None and entry.ingest == "enforce"
    return {"code": code, **({"ingest": "enforce"} if enforced else {})}


@contextmanager
def gate(
    plan: Plan,
    ledger: Ledger | None,
    reserved: Entry | None,
    charged: Callable[[str], None] = lambda _text: None,
) -> Iterator[None]:
    """Return the reserve if the data gate refuses, durably, before anybody hears of it.

    Anything but a refusal by the gate leaves the reserve as it is: it stands as a charge.
    """
    try:
        yield
    except DataError as error:
        if ledger is not None and reserved is not None:
            kind = "void" if _harmless(error) else "refusal"
            with held():
                told = _told(plan, error.code)
                if ledger.settle(reserved, kind, told).kind == kind:  # type: ignore[arg-type]
                    charged("")  # else others were refused meanwhile, and the reserve stands
        raise


@contextmanager
def counting(plan: Plan, ledger: Ledger | None) -> Iterator[None]:
    """Count whatever ends a look at the data that was paid for before (a session, opened again)."""
    try:
        yield
    except Exception as error:
        if ledger is not None and not _harmless(error):
            code = error.code if isinstance(error, SimError) else "OS902"
            ledger.refusal({"program": plan.program.hash, **_told(plan, code)})
        raise


def _harmless(error: Exception) -> bool:
    """Say whether no record was looked at: the error says so, or a store cannot be had."""
    if isinstance(error, BudgetError):
        return error.got in (LOCKED, UNWRITABLE)
    return isinstance(error, DataError) and error.unread
