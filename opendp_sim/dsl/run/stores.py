"""Lock session stores' places before the charge, and make them after.

Law: ``charge.md``, Lemma 4, and ``accounting/session/store.md``, Lemmas 4 and 5.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from os.path import exists
from pathlib import Path

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.ledger.postgres_connection import is_shared
from opendp_sim.accounting.session.end import End, note_end, noted_end, remove_note
from opendp_sim.accounting.session.identity import StorePlace
from opendp_sim.accounting.session.postgres import place_at
from opendp_sim.accounting.session.session import Session
from opendp_sim.core.claims import Stage
from opendp_sim.core.errors import BudgetError, DataError, SpecError
from opendp_sim.core.system.escape_text import escape
from opendp_sim.dsl.files.paths import private_of
from opendp_sim.dsl.files.write import check_writable
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.records import ledger_path
from opendp_sim.dsl.run.inputs import Inputs, Memory, open_queries
from opendp_sim.dsl.types.outputs import OutputType
from opendp_sim.io.blocks import Block


def sessions_of(plan: Plan) -> dict[str, OutputType]:
    """Return the outputs that are sessions."""
    return {name: o for name, o in plan.outputs.items() if o.decl.serve == "session"}


def session_part(plan: Plan, output: OutputType) -> Plan:
    """Return what one session reads of a plan, with loss and ledger."""
    stage = output.stage.name
    return replace(plan, outputs={output.decl.name: output}, releases={stage: plan.releases[stage]})


def store_path(plan: Plan, output: OutputType) -> Path:
    """Return a session's store's path, links resolved, in the spec's folder (OS304)."""
    folder, name = Path(plan.program.folder), output.decl.place or ""
    if is_shared(name):
        return Path(name)
    if (folder / name).resolve().is_relative_to(folder.resolve()):
        return folder / name
    raise SpecError(
        "OS304", f"outputs.{output.decl.name}.store", expected="a file in the spec's folder",
        got="one outside it",
        hint="name a file below the folder, or name this one yourself with `session --store FILE`.",
    )  # fmt: skip


def lock_place(path: Path, output: OutputType) -> StorePlace:
    """Lock the place of a session's store, or refuse it (OS609, OS407)."""
    if not is_shared(path) and not exists(path):  # noqa: PTH110 - false of a name too long
        check_writable(path, f"outputs.{output.decl.name}.store")
    return place_at(path)


Places = Mapping[str, StorePlace]
"""The locked places of stores, by output."""


def lock_free(
    plan: Plan,
    stack: ExitStack,
    but: str = "",
    *,
    replaced: bool = False,
    ledger: Ledger | None = None,
) -> Places:
    """Lock the places of all sessions ``but`` one, for new stores.

    ``replaced`` lets stores there go, with what is left of their budget; ``ledger`` may have paid for
    them.

    Raises:
        DataError (OS609): a store lies there, or none can be made. BudgetError (OS407): one is open.
    """
    found = {}
    for name, output in sessions_of(plan).items():
        if name == but:
            continue
        found[name] = stack.enter_context(lock_place(store_path(plan, output), output))
        mark = found[name].mark
        if mark is not None and not (replaced and not is_shared(found[name].path)):
            unpaid = ledger is not None and ledger.turn_of(mark.name) is None
            raise DataError(
                "OS609", f"outputs.{name}.store", expected="no store there yet",
                got=f"{found[name].path}: the store of a session, which "
                + ("another ledger paid for, or one that was forgotten" if unpaid else "was paid for"),
                hint=("nothing was charged: move that file away. A run of the whole program makes it "
                      "anew, and is charged once for all of its outputs."
                      if unpaid else
                      "nothing was charged: `opendp-sim session` serves that store and charges nothing. "
                      "For a new run of the whole program, which is charged again, name another store or "
                      "let a file be replaced (`apply --replace`, `replace=True`)."),
            )  # fmt: skip
    return found


def open_references(
    plan: Plan, memory: Memory, opened: Mapping[str, Block] | None = None
) -> dict[str, Block]:
    """Open the public references that specs of sessions name, before any charge.

    ``opened`` were opened before, by output: a stream can be read once.
    """
    known = dict(opened or {})
    folder, private = plan.program.folder, private_of(plan.program, memory)
    asked = {name: (o.decl.public_queries, o) for name, o in sessions_of(plan).items()}
    return known | {
        name: open_queries(ref, output, folder, memory, private=private)
        for name, (ref, output) in asked.items()
        if ref is not None and name not in known
    }


def make_store(
    plan: Plan, output: OutputType, inputs: Inputs, place: StorePlace, name: str
) -> Session:
    """Open a session over its store, made if absent."""
    return open_session(plan, output, inputs, place.path, name, place)


def open_session(
    plan: Plan,
    output: OutputType,
    inputs: Inputs,
    path: Path,
    name: str | None = None,
    place: StorePlace | None = None,
) -> Session:
    """Open an output's session over the locked store at ``path``."""
    bound = plan.releases[output.stage.name].bound
    assert bound is not None  # noqa: S101 - it is a session's
    last = Stage(bound.record, bound.domain, bound.metric, bound.claim)
    blocks = inputs.blocks[output.stage.entry.name]
    return Session((*output.stage.stages, last), blocks, path, name, place)


def make_stores(plan: Plan, inputs: Inputs, places: Places, names: Mapping[str, str]) -> None:
    """Make new stores at their places, and close them."""
    for name, place in places.items():
        if place.mark is not None:
            place.clear()
        make_store(plan, plan.outputs[name], inputs, place, names[name]).close()


# --------------------------------------------------------------------------------------------------
# What a ledger hears of a session: that its store is open, and where its chain ended.

_PATIENCE = 10.0
"""Seconds that the end of a session waits for a ledger that another run has open."""


def take_turn(session: Session, ledger: Ledger, name: str) -> str:
    """Record the opening of a store, and return its turn.

    Raises:
        BudgetError (OS407): it is not this store: its chain lacks the ledger's last entry, or goes on
            after an end.
    """
    if (told := ledger.head_told(name)) is not None:
        session.check_head(*told)
    last, end = ledger.turn_of(name), noted_end(ledger.path, name)
    ended = end is not None and end.turn == last
    if end is not None and ended:
        session.check_head(end.place, end.head, ended=True)
    turn = session.take_turn(name, last or "", ledger.path.name)
    ledger.opened(name, turn, session.tell())
    if ended:
        remove_note(ledger.path, name)
    return turn


def tell_end(plan: Plan, session: Session, name: str, turn: str) -> None:
    """Record the end of a store's chain in the ledger.

    From then on an earlier copy is refused. A note beside the ledger says so first, since the ledger
    may be in use for long, and whoever waits may be stopped; it stays until the next opening if the
    ledger does not hear. Where neither does, a warning says what follows. A ledger that is gone, or
    does not know this turn of the store, is told nothing, and none is made in its place.
    """
    path = ledger_path(plan)
    if path is None:
        return
    noted, heard, stopped = False, None, True
    try:
        noted = _note(path, session, name, turn)
        heard = _record_end(path, session, name, turn)
        noted = noted and heard is not None  # or nobody would ask for the note
        stopped = False
    finally:
        if stopped and not noted:  # whoever was stopped may have written the note
            with suppress(OSError, BudgetError):
                found = noted_end(path, name)
                noted = found is not None and found.turn == turn
        if not (noted or heard):
            _warn(path)
    if noted and heard:
        with suppress(OSError):
            remove_note(path, name)


def _note(path: Path, session: Session, name: str, turn: str) -> bool:
    """Write the chain's end beside the ledger's file."""
    with suppress(OSError, BudgetError):
        if not is_shared(path) and path.exists():
            place, head = session.tell()
            note_end(path, name, End(turn=turn, place=place, head=head))
            return True
    return False


def _record_end(path: Path, session: Session, name: str, turn: str) -> bool | None:
    """Record the chain's end in the ledger, within a deadline."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            with Ledger.open(path) as ledger:
                if ledger.turn_of(name) != turn:
                    return None
                ledger.opened(name, turn, session.tell(), answered=session.answered)
        except BudgetError as error:
            if "locked" not in str(error.got) or time.monotonic() > until:
                return False
        else:
            return True
        time.sleep(0.05)


def _warn(path: Path) -> None:
    warnings.warn(
        f"the ledger {escape(str(path))} did not record the end of this session: until its store is "
        "opened again, a copy that was made during the session would be taken for it. Open and close it "
        "once more.",
        RuntimeWarning,
        stacklevel=5,
    )
