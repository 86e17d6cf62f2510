"""Charge every run in one order.

Reserve, run, settle, here or on a cluster. A run that the data refuses costs nothing, and the refusal
is public: with bounds chosen by whoever writes the spec it answers a question about the extremes of a
column. So with a ledger, the loss of a run is reserved before a record is read; a run that the data
refuses is counted and its reserve returned; whatever else happens, the reserve stands. Proof:
``charge.md``, beside this file.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path as File
from typing import Any, Literal, Self

from opendp_sim.accounting.certificate.certificate import Quoted, read_certificate
from opendp_sim.accounting.ledger._entries import store_for, stores_of
from opendp_sim.accounting.ledger._file import was_opened
from opendp_sim.accounting.ledger._refusals import another_head, lost
from opendp_sim.accounting.ledger.ledger import Entry, Ledger, Terms, is_there
from opendp_sim.accounting.ledger.postgres_connection import is_shared
from opendp_sim.accounting.ledger.standing import LedgerStanding, standing_of_ledger
from opendp_sim.accounting.session.identity import LOCKED, UNWRITABLE, Mark
from opendp_sim.core.errors import BudgetError, DataError, ParameterError, SimError, SpecError
from opendp_sim.core.interrupts import signals_blocked
from opendp_sim.dsl.files.paths import one_file
from opendp_sim.dsl.files.staging import unfinished_runs
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.records import ledger_entry, ledger_path
from opendp_sim.dsl.run.certificate import certificate_path
from opendp_sim.dsl.text.diagnostic import Refused

# --------------------------------------------------------------------------------------------------
# A ledger that was charged and is gone is not begun again at nothing: what knows of it is looked for.
#
# A first ledger is made by the first run that needs it. A lost one would look just like that, and whoever
# lost it would have the whole budget again. So before a file is made, whatever a charged run
# leaves behind
# is looked for: the ledger's lock (``accounting/ledger/_file.py``), certificates, a session's store, the
# private folder of a run. An older copy in its place is found by the certificates. Law and limits:
# ``charge.md``, Lemma 5.

_MOST = 256
"""Certificates of one folder that are looked at: a first ledger must not wait for a large folder."""


def refuse_lost(
    plan: Plan, path: File, folder: File | None = None, store: Mark | None = None
) -> None:
    """Refuse a new ledger in a lost one's place (OS407).

    Outputs are saved in ``folder``, and ``store`` is a session's that is to be served.
    """
    if is_shared(path) or os.path.lexists(path):
        return
    known = trace_of(plan, path, folder, store)
    if known is not None and not path.exists():
        raise lost(path, known)


def trace_of(
    plan: Plan, path: File, folder: File | None = None, store: Mark | None = None
) -> str | None:
    """Return the trace of a ledger at ``path``, or None."""
    if was_opened(path):
        return "the file of its lock is there still"
    if store is not None and store.ledger == path.name:
        return "this session's store was opened under it"
    into = File(plan.program.folder) if folder is None else folder
    return next(_traces(plan, path, into), None)


def _traces(plan: Plan, path: File, into: File) -> Iterator[str]:
    for output in plan.program.outputs:
        if output.place is not None:
            from opendp_sim.accounting.session.postgres import mark_at  # noqa: PLC0415 - few programs have one

            with suppress(SimError, OSError, ValueError):
                mark = mark_at(
                    output.place
                    if is_shared(output.place)
                    else File(plan.program.folder) / output.place
                )
                if mark is not None and mark.ledger == path.name:
                    yield f"the store {output.place} was opened under it"
    for found in _certificates(plan, into):
        if _charged_to(found, plan, path) is not None:
            yield f"{found.name} says that it was charged to it"
    with suppress(OSError):
        for kept, _ in unfinished_runs(into, plan.program.hash):
            yield f"{kept.name} holds the files of a run that was charged to it"


def refuse_older(plan: Plan, ledger: Ledger, folder: File | None = None) -> None:
    """Refuse a ledger without an entry that certificates quote (OS407).

    It is an older copy that was put back, or another file in its place: what it does not know of would be
    spent again. A ledger that was begun anew, and says so, is not asked for what others were charged.
    """
    into = File(plan.program.folder) if folder is None else folder
    known: set[str] = set()
    for found in _certificates(plan, into):
        known = known or {entry.hash for entry in ledger.entries}
        charged = _charged_to(found, plan, ledger.path, known)
        if charged is None or ledger.forgets(charged[0]):
            continue
        raise BudgetError(
            "OS407",
            str(ledger.path),
            expected=f"the ledger with entry {charged[1].entry}, which {found.name} quotes",
            got="an older copy of it, or another one",
            hint="put the newest copy back. If there is none, "
            + (
                "name another ledger in the spec: it begins at nothing, and forgets what was charged."
                if is_shared(ledger.path)
                else "move this file away: `opendp-sim ledger new SPEC --forget` begins another one, "
                "which says that it forgets what was charged before."
            ),
        )


def _certificates(plan: Plan, into: File) -> Iterator[File]:
    """Yield certificates of the program's outputs, of neighbours, and beside the spec."""
    folders = dict.fromkeys([into, File(plan.program.folder)])
    saved = [home / o.save for home in folders for o in plan.program.outputs if o.save is not None]
    own = [certificate_path(path) for path in saved]
    yield from (path for path in own if path.is_file())
    for near in sorted({path.parent for path in saved}):
        with suppress(OSError):
            yield from sorted(near.glob("*.certificate.json"))[:_MOST]


def _charged_to(
    certificate: File, plan: Plan, path: File, but: Container[str] = ()
) -> tuple[str | None, Quoted] | None:
    """Return a certificate's ledger start and entry, or None.

    Paths of other programs are taken to start from the plan's folder too; hashes in ``but`` need no look.
    """
    with suppress(SimError, Refused, OSError, ValueError):
        record, _ = read_certificate(certificate)
        charge = record.charge
        if record.ledger is None or charge is None or charge.hash in but:
            return None
        if record.ledger.file != path.name:
            return None
        program = draft_of(record.program, folder=plan.program.folder).program
        for entry in program.data:
            if entry.ledger is None:
                continue
            named = entry.ledger.file
            shared = is_shared(path) or is_shared(named)
            if str(path) == named if shared else one_file(path, File(program.folder) / named):
                return record.ledger.start, charge
    return None


# --------------------------------------------------------------------------------------------------


def unit_text(plan: Plan) -> str:
    """Return the privacy unit as a ledger states it."""
    if plan.privacy is None:
        return "none"
    unit = plan.privacy.unit
    return f"{unit.kind} {unit.count} of {unit.of}"


def ledger_terms(plan: Plan) -> Terms | None:
    """Return the ledger terms of the plan's dataset, or None."""
    entry = ledger_entry(plan)
    if entry is None or entry.ledger is None or plan.privacy is None:
        return None
    measure = entry.ledger.measure or plan.privacy.measure
    return Terms(measure, unit_text(plan), entry.ledger.limit)


def standing(plan: Plan) -> LedgerStanding | None:
    """Return where the plan's ledger stands, or None without one.

    Before and after one run, in numbers. Nothing is written and no data is opened. A ledger that cannot
    be read has ``refused``: why not.
    """
    terms, path = ledger_terms(plan), ledger_path(plan)
    if terms is None or path is None or plan.charge is None:
        return None
    try:
        refuse_lost(plan, path)
        return standing_of_ledger(path, terms, plan.charge)
    except BudgetError as error:
        why = f"expected {error.expected}; got {error.got}"
        return LedgerStanding(str(path), terms.unit, plan.charge, why, mend=error.hint)


def is_paid(ledger: Ledger | None, store: Mark | None) -> bool:
    """Return whether a session's store was charged for.

    By this ledger, and since then opened under it.

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


def refuse_unbegun(plan: Plan, file: str, into: File | None = None) -> None:
    """Refuse a command whose ledger is not there (OS403).

    ``file`` is the spec or plan document as it was typed. Whether a ledger is new or lost is for a
    person to say, and no door without a confirmation asks one (``charge.md``, Lemma 5).
    """
    path = ledger_path(plan)
    if path is None or ledger_terms(plan) is None or is_there(path):
        return
    refuse_lost(plan, path, into)
    raise BudgetError(
        "OS403", str(path), expected="the ledger that the program names", got="none there",
        hint=f"type `opendp-sim ledger new {shlex.quote(file)}` once for each ledger. If it was charged "
        "before, restore it: a new one begins with the whole limit.",
    )  # fmt: skip


def begin_ledger(plan: Plan, into: File | None, *, forget: bool) -> tuple[File, str | None]:
    """Create the plan's ledger; return its path and any forgotten history.

    ``forget`` creates it also where one was lost, which is recorded.

    Raises:
        SpecError (OS306): the plan charges no ledger. BudgetError (OS403): it is there. (OS407): it was
            lost, and ``forget`` is not set.
    """
    terms, path = ledger_terms(plan), ledger_path(plan)
    if terms is None or path is None:
        raise SpecError(
            "OS306", "data", expected="a private dataset with a ledger", got="none",
            hint="write `ledger: {file: NAME, limit: ...}` under the dataset.",
        )  # fmt: skip
    if is_there(path):
        raise BudgetError(
            "OS403", str(path), expected="no ledger yet", got="one that is there",
            hint="`opendp-sim ledger show` reads it; charges that it holds cannot be forgotten.",
        )  # fmt: skip
    known = trace_of(plan, path, into)
    if not forget:
        refuse_lost(plan, path, into)
    Ledger.open(path, terms, forget=known is not None).close()
    return path, known


# --------------------------------------------------------------------------------------------------


class Transaction:
    """Charge one run of a plan to its ledger, in one order.

    ``reserve`` comes before the first record is read, ``gate`` is around the reading, ``settle`` comes
    when the outputs are complete, and ``finish`` when they have their names. Without a ledger each of
    them does nothing.

    Attributes:
        ledger: the plan's, open; None for a plan without one.
        reserved: the entry of the run's loss, from ``reserve`` on.
        charge: the entry that settled it, from ``settle`` on.
    """

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger | None = None,
        charged: Callable[[str], None] = lambda _text: None,
        head: str | None = None,
    ) -> None:
        self.plan, self.ledger, self.charged, self.head = plan, ledger, charged, head
        self.reserved: Entry | None = None
        self.charge: Entry | None = None

    @classmethod
    def open(
        cls,
        plan: Plan,
        stack: ExitStack,
        *,
        store: Mark | None = None,
        folder: File | None = None,
        charged: Callable[[str], None] = lambda _text: None,
        head: str | None = None,
        known: Ledger | None = None,
    ) -> Self:
        """Open the plan's ledger until ``stack`` closes.

        An older copy of ``store`` is refused; ``charged`` gets the words of what stands, before a signal
        can stop the run. ``head`` is the ledger's when the run was confirmed, None for any; ``known`` the
        same ledger, as this process had it open before (``Ledger.open``).

        Raises:
            BudgetError (OS407): the store is an older copy; or the ledger was charged, and is gone, or is
                an older copy. (OS402): too many runs were refused by the data. (OS403): no ledger of
                these terms. (OS409): another head. ParameterError (OS102): a head, and no ledger.
        """
        terms, path = ledger_terms(plan), ledger_path(plan)
        if terms is None or path is None or plan.charge is None:
            if head is not None:
                raise ParameterError(
                    "OS102", "expected_head", expected="a plan that charges a ledger",
                    got="one that charges none", hint="leave it out, or name a `ledger` in the spec.",
                )  # fmt: skip
            return cls(plan, None, charged)
        terms.limit.check(terms.measure, "ledger.limit")
        refuse_lost(plan, path, folder, store)
        if head and not is_there(path):
            raise another_head(path)  # before another one is made
        ledger = stack.enter_context(Ledger.open(path, terms, known=known))
        if head is not None:
            ledger.check_head(head)
        refuse_older(plan, ledger, folder)
        is_paid(ledger, store)
        return cls(plan, ledger, charged, head)

    def may_be_refused(self) -> None:
        """Refuse a run that the data could refuse once too often (OS402)."""
        if self.ledger is not None:
            self.ledger.may_refuse(enforced=self._enforced)

    def reserve(
        self,
        *,
        token: str | None = None,
        stores: Mapping[str, str] | None = None,
        seal: str | None = None,
    ) -> None:
        """Reserve the plan's loss, durably, before a record is read.

        ``token`` names the run, ``stores`` its sessions' stores by output; ``seal`` will seal its files.

        Raises:
            BudgetError (OS402): it does not fit, or too many runs were refused by the data. (OS403): it
                has too many outputs for one entry of the ledger. (OS409): another run was charged
                since this one was confirmed (``charge.md``, Lemma 10).
        """
        plan, ledger, loss = self.plan, self.ledger, self.plan.charge
        if ledger is None or loss is None:
            return
        self.may_be_refused()
        entry, named = ledger_entry(plan), dict(stores or {})
        about = {
            "program": plan.program.hash,
            "name": plan.program.name,
            "unit": unit_text(plan),
            "dataset": None if entry is None else entry.name,
            "token": token,
            "store": next(iter(named.values())) if len(named) == 1 else None,
            "stores": named if len(named) > 1 else None,
            "seal": seal,
        }
        told = {k: v for k, v in about.items() if v is not None}
        saved = (name for name, output in plan.outputs.items() if output.decl.save is not None)
        digests = {"sha256": "0" * 64, "statement": "0" * 64}  # as long as those to come
        ledger.check_entry(loss, {**told, "files": dict.fromkeys(saved, digests)})
        with signals_blocked():
            try:
                made = ledger.reserve(loss, told, self.head)
            except BaseException as error:
                # Else the entry may be made, and its end failed.
                if getattr(error, "code", "") not in ("OS402", "OS409"):
                    self.charged(
                        f"{ledger.path} may have been charged {loss.text}: see `ledger show`"
                    )
                raise
            self.stands(made)

    def stands(self, reserved: Entry, number: int | None = None) -> None:
        """Take a reserve, or its settlement's ``number``, as this run's; report it."""
        self.reserved = reserved
        if self.ledger is not None and self.plan.charge is not None:
            entry = f"entry {number or reserved.seq} of {self.ledger.path}"
            self.charged(f"{entry} charges {self.plan.charge.text}, and stands")

    @contextmanager
    def gate(self) -> Iterator[None]:
        """Return the reserve, durably, if the data gate refuses.

        Anything but a refusal by the gate leaves the reserve as it is: it stands as a charge.
        """
        try:
            yield
        except DataError as error:
            if self.ledger is not None and self.reserved is not None:
                kind: Literal["void", "refusal"] = "void" if _harmless(error) else "refusal"
                with signals_blocked():
                    found = self.ledger.settle(self.reserved, kind, self._refusal(error.code))
                    if found.kind == kind:
                        self.charged(
                            ""
                        )  # else others were refused meanwhile, and the reserve stands
            raise

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count every end of a paid reading by a session opened again."""
        try:
            yield
        except Exception as error:
            if self.ledger is not None and not _harmless(error):
                code = error.code if isinstance(error, SimError) else "OS902"
                self.ledger.refusal({"program": self.plan.program.hash, **self._refusal(code)})
            raise

    def settle(self, about: dict[str, Any]) -> None:
        """Settle the reserve as a charge, durably and at most once."""
        if self.ledger is not None and self.reserved is not None:
            self.charge = self.ledger.settle(self.reserved, "charge", about)

    def finish(self, about: dict[str, Any]) -> None:
        """Record that the charge's outputs have their names."""
        if self.ledger is not None and self.charge is not None:
            self.ledger.outcome(self.charge, about)

    @property
    def _enforced(self) -> bool:
        entry = ledger_entry(self.plan)
        return entry is not None and entry.ingest == "enforce"

    def _refusal(self, code: str) -> dict[str, str]:
        """Return the ledger's record of a refusal."""
        return {"code": code, **({"ingest": "enforce"} if self._enforced else {})}

    # --- stores of sessions ---------------------------------------------------------------------------

    def unserved(self, output: str) -> str | None:
        """Return a charged store that never answered, by name.

        A run leaves one for each session that nobody has asked yet, and so does a process that died
        between the charge and the opening: the next session takes it over and pays nothing
        (``charge.md``, Lemma 4).
        """
        ledger, loss = self.ledger, self.plan.charge
        if ledger is None:
            return None
        names = [
            store_for(e.body, output)
            for e in ledger.entries
            if e.kind == "reserve"
            and e.body.get("program") == self.plan.program.hash
            and e.body["loss"] == (None if loss is None else loss.plain())
        ]
        return next((name for name in names if name and ledger.turn_of(name) == ""), None)

    def settle_store(self, store: str) -> None:
        """Settle a session store's open reserve as a charge.

        The gate accepted the data. That of a run with files stays open, and counts: the run may be
        finished yet.
        """
        ledger = self.ledger
        if ledger is None:
            return
        for entry in ledger.entries:
            own = entry.kind == "reserve" and store in stores_of(entry.body)
            if own and "seal" not in entry.body and ledger.settlement_of(entry) is None:
                ledger.settle(entry, "charge", {})


def _harmless(error: Exception) -> bool:
    """Return whether no record was read."""
    if isinstance(error, BudgetError):
        return error.got in (LOCKED, UNWRITABLE)
    return isinstance(error, DataError) and error.unread
