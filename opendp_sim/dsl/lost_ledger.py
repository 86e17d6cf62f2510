"""A ledger that was charged and is gone is not begun again at nothing: what knows of it is looked for.

A first ledger is made by the first run that needs it. A lost one would look just like that, and whoever
lost it would have the whole budget again. So before a file is made, whatever a charged run leaves behind
is looked for: the ledger's lock (``accounting/_ledger_file.py``), certificates, a session's store, the
private folder of a run. An older copy in its place is found by the certificates. Law and limits:
``charging.md``, Lemma 5.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path as File

from opendp_sim.accounting._ledger_file import lost, was_opened
from opendp_sim.accounting.certificate import Quoted, read_certificate
from opendp_sim.accounting.ledger import Ledger
from opendp_sim.accounting.session_mark import Mark
from opendp_sim.accounting.shared_ledger import is_shared
from opendp_sim.accounting.strict_models import plain_json
from opendp_sim.core.errors import BudgetError, SimError
from opendp_sim.dsl.certify import certificate_path
from opendp_sim.dsl.diagnostic import Refused
from opendp_sim.dsl.places import one_file
from opendp_sim.dsl.plan import Plan
from opendp_sim.dsl.reader import draft_of
from opendp_sim.dsl.run_folder import listed_program

__all__ = ["refuse_lost", "refuse_older", "trace_of"]

_MOST = 256
"""Certificates of one folder that are looked at: a first ledger must not wait for a large folder."""


def refuse_lost(
    plan: Plan, path: File, folder: File | None = None, store: Mark | None = None
) -> None:
    """Refuse to go on as if a ledger's file had never been there (OS407).

    Args:
        plan: what is to run.
        path: the ledger.
        folder: where outputs are saved; default the spec's.
        store: a session's store that is to be served.

    Raises:
        BudgetError (OS407): the file is gone, and something knows that it was there.
    """
    if is_shared(path) or os.path.lexists(path):
        return
    known = trace_of(plan, path, folder, store)
    if known is not None and not path.exists():
        raise lost(path, known)


def trace_of(
    plan: Plan, path: File, folder: File | None = None, store: Mark | None = None
) -> str | None:
    """Say what knows that a ledger was at ``path``; None where nothing does."""
    if was_opened(path):
        return "the file of its lock is there still"
    if store is not None and store.ledger == path.name:
        return "this session's store was opened under it"
    into = File(plan.program.folder) if folder is None else folder
    return next(_traces(plan, path, into), None)


def _traces(plan: Plan, path: File, into: File) -> Iterator[str]:
    for output in plan.program.outputs:
        if output.store is not None:
            from opendp_sim.accounting.shared_store import mark_at  # noqa: PLC0415 - few programs have one

            with suppress(SimError, OSError, ValueError):
                mark = mark_at(
                    output.store
                    if is_shared(output.store)
                    else File(plan.program.folder) / output.store
                )
                if mark is not None and mark.ledger == path.name:
                    yield f"the store {output.store} was opened under it"
    for found in _certificates(plan, into):
        if _charged_to(found, plan, path) is not None:
            yield f"{found.name} says that it was charged to it"
    with suppress(OSError):
        for found in into.glob(".opendp_sim-*"):
            if listed_program(found, charged=True) == plan.program.hash:
                yield f"{found.name} holds the files of a run that was charged to it"


def refuse_older(plan: Plan, ledger: Ledger, folder: File | None = None) -> None:
    """Refuse a ledger that does not hold an entry that a certificate quotes of it (OS407).

    It is an older copy that was put back, or another file in its place: what it does not know of would be
    spent again. A ledger that was begun anew, and says so, is not asked for what was charged before.

    Args:
        plan: what is to run.
        ledger: the ledger that would be charged.
        folder: where outputs are saved; default the spec's.
    """
    into = File(plan.program.folder) if folder is None else folder
    known = {entry.hash for entry in ledger.entries}
    for found in _certificates(plan, into):
        quoted = _charged_to(found, plan, ledger.path, known)
        if quoted is None or (ledger.anew is not None and _time_of(quoted) <= ledger.anew):
            continue
        raise BudgetError(
            "OS407",
            str(ledger.path),
            expected=f"the ledger with entry {quoted.entry}, which {found.name} quotes",
            got="an older copy of it, or another one",
            hint="put the newest copy back. If there is none, move this file away: `opendp-sim ledger "
            "new SPEC --forget` begins another one, which says that it forgets what was charged before.",
        )


def _time_of(quoted: Quoted) -> str:
    """Return when a quoted entry was made; what is no time is never before another."""
    with suppress(ValueError, RecursionError, AttributeError):
        return str(plain_json(quoted.body).get("time", "~"))
    return "~"


def _certificates(plan: Plan, into: File) -> Iterator[File]:
    """Yield the certificates of the program's own outputs, and some of those that lie beside them.

    They are looked for in the spec's folder too: other runs saved there.
    """
    folders = dict.fromkeys([into, File(plan.program.folder)])
    saved = [home / o.save for home in folders for o in plan.program.outputs if o.save is not None]
    own = [certificate_path(path) for path in saved]
    yield from (path for path in own if path.is_file())
    for near in sorted({path.parent for path in saved}):
        with suppress(OSError):
            yield from sorted(near.glob("*.certificate.json"))[:_MOST]


def _charged_to(
    certificate: File, plan: Plan, path: File, but: Container[str] = ()
) -> Quoted | None:
    """Return the entry of this ledger that a certificate quotes; None for another ledger, or none.

    Args:
        certificate: any.
        plan: of a program whose folder other programs' paths are taken to start from too.
        path: the ledger.
        but: hashes of entries that need no look.
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
            if entry.ledger is not None and _is_at(entry.ledger.file, program.folder, path):
                return charge
    return None


def _is_at(file: str, folder: str, path: File) -> bool:
    if is_shared(path) or is_shared(file):
        return str(path) == file
    return one_file(path, File(folder) / file)
