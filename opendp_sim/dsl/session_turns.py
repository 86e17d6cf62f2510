"""What a ledger hears of a session: that its store is open, and where its chain ended.

Law: ``accounting/session_store.md``, Lemmas 4 and 5.
"""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from pathlib import Path

from opendp_sim.accounting.ledger import Ledger
from opendp_sim.accounting.session import Session
from opendp_sim.accounting.session_end import End, note_end, noted_end, remove_note
from opendp_sim.accounting.shared_ledger import is_shared
from opendp_sim.core.errors import BudgetError
from opendp_sim.core.shown import shown
from opendp_sim.dsl.charging import ledger_path
from opendp_sim.dsl.plan import Plan

__all__ = ["take_turn", "tell_end"]

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
