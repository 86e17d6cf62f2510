"""A ledger that was charged and is gone is not begun again at nothing: what knows of it is looked for.

A first ledger is made by the first run that needs it. A lost one would look just like that, and whoever
lost it would have the whole budget again. So before a file is made, whatever a charged run leaves behind
is looked for: the ledger's lock (``accounting/_ledger_file.py``), certificates, a session's store, the
private folder of a run. Law and limits: ``charging.md``, Lemma 5.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path as File

from opendp_sim.accounting._ledger_file import lost, was_opened
from opendp_sim.accounting.certificate import read_certificate
from opendp_sim.accounting.session_mark import Mark, mark_of
from opendp_sim.accounting.shared_ledger import is_shared
from opendp_sim.core.errors import SimError
from opendp_sim.dsl.diagnostic import Refused
from opendp_sim.dsl.places import one_file
from opendp_sim.dsl.plan import Plan
from opendp_sim.dsl.reader import draft_of
from opendp_sim.dsl.run_folder import listed_program

__all__ = ["refuse_lost", "trace_of"]

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
            with suppress(SimError, OSError, ValueError):
                mark = mark_of(File(plan.program.folder) / output.store)
                if mark is not None and mark.ledger == path.name:
                    yield f"the store {output.store} was opened under it"
    for near in {(into / o.save).parent for o in plan.program.outputs if o.save is not None}:
        for found in _certificates(near):
            if _charged_to(found, plan, path):
                yield f"{found.name} says that it was charged to it"
    with suppress(OSError):
        for found in into.glob(".opendp_sim-*"):
            if listed_program(found, charged=True) == plan.program.hash:
                yield f"{found.name} holds the files of a run that was charged to it"


def _certificates(folder: File) -> list[File]:
    with suppress(OSError):
        return sorted(folder.glob("*.certificate.json"))[:_MOST]
    return []


def _charged_to(certificate: File, plan: Plan, path: File) -> bool:
    """Say whether a certificate names this ledger: its program would charge the very same file."""
    with suppress(SimError, Refused, OSError, ValueError):
        record, _ = read_certificate(certificate)
        if record.ledger is None or record.charge is None or record.ledger.file != path.name:
            return False
        program = draft_of(record.program, folder=plan.program.folder).program
        places = (
            File(program.folder) / e.ledger.file for e in program.data if e.ledger is not None
        )
        return any(one_file(path, place) for place in places)
    return False
