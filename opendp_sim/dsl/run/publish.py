"""Publish complete, charged results as files, by repeatable steps (``charge.md``)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.atomic_files import moved, sync_folder, write_json
from opendp_sim.accounting.certificate.certificate import digest_of
from opendp_sim.accounting.certificate.signature import Signer
from opendp_sim.accounting.ledger._refusals import UnavailableError
from opendp_sim.core.errors import refusing
from opendp_sim.dsl.files.staging import RunFolder, RunList, Saved, changed
from opendp_sim.dsl.files.write import unwritable, write_output
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.certificate import (
    certificate_path,
    derived_statement,
    ledger_part,
    signed_certificate,
    statement,
)
from opendp_sim.dsl.run.charge import Transaction
from opendp_sim.dsl.run.records import Applied
from opendp_sim.io.blocks import Block

_SLACK = 2**18
"""Bytes held beside an estimate: for the ledger's pages, certificates, and names."""


_FILES, _MORE = 2, 3
"""Files of each output (itself, its certificate), and of a run: their list, and what the ledger keeps
beside it while it writes."""


@dataclass(frozen=True)
class Run:
    """Hold a run's output folder, transaction, signer and workers."""

    folder: File
    transaction: Transaction
    signer: Signer | None = None
    workers: int | None = None
    told: Callable[[str, int], None] = lambda _phase, _rows: None
    engine: Any = None
    card: str | None = None


Stated = dict[str, Any]
"""A statement, or the part that the program determines."""


def derived_statements(plan: Plan) -> dict[str, Stated]:
    """Return what the program determines of each saved output's statement."""
    saving = [n for n, output in plan.outputs.items() if output.decl.save is not None]
    plain = plan.plain() if saving else None
    return {name: derived_statement(plan, name, plain) for name in saving}


def run_folder(
    plan: Plan, folder: File, queries: Mapping[str, Block], derived: Mapping[str, Stated]
) -> AbstractContextManager[RunFolder | None]:
    """Create a saving run's private folder with reserved disk room.

    Raises:
        DataError (OS609): the disk is full; nothing was looked at and nothing was charged.
    """
    if not derived:
        return nullcontext(None)
    room = _SLACK
    room += sum(_estimate(plan, name, queries.get(name), part) for name, part in derived.items())
    full = unwritable(
        "outputs",
        f"{folder}, which has no room for {room:,} bytes or for the files",
        "nothing was charged; make room on the disk, or choose another with --into.",
    )
    with refusing(lambda _: full, OSError):
        return RunFolder.make(folder, room, _FILES * len(derived) + _MORE)


def _estimate(plan: Plan, name: str, queries: Block | None, derived: Stated) -> int:
    """Return an output's largest bytes, from public sizes."""
    typed = plan.outputs[name].stage
    made = getattr(plan.outputs[name].domain, "sketch", typed.domain)
    certificate = 4 * len(json.dumps(derived)) + _SLACK
    if queries is None:
        cells = int(getattr(made, "size", 0) or 0)
        return certificate + 9 * cells
    labels = len(getattr(plan.outputs[name].domain, "labels", None) or ()) or 1
    rows = max((len(column) for column in queries.values()), default=0)
    return certificate + 32 * rows * (4 * labels + 8)


def stage(
    plan: Plan,
    waiting: RunFolder,
    run: Run,
    done: Applied,
    time: str,
    derived: Mapping[str, Stated],
) -> list[Saved]:
    """Write every output and statement into the run's folder, synchronised.

    Raises:
        DataError (OS609): they cannot be written; nothing was published, and the reserve stands.
    """
    ledger, reserved = run.transaction.ledger, run.transaction.reserved
    part = None if ledger is None or reserved is None else ledger_part(ledger, reserved.seq)
    stands = "" if reserved is None else f"; entry {reserved.seq} of the ledger stands as a charge"
    got = f"a disk that refused to take them, so nothing was released{stands}"
    full = unwritable("outputs", got, "make room on the disk and run it again, as a new run.")
    written: list[Saved] = []
    with refusing(lambda _: full, OSError):
        waiting.give_room()
        for place, (name, output) in enumerate(plan.outputs.items()):
            save = output.decl.save
            if save is None or name not in done.results:
                continue  # not saved, or its last step failed
            file = waiting.path / f"{place}{File(save).suffix}"
            write_output(
                file, done.results[name], output.domain, spreadsheet=output.decl.texts is not None
            )
            digest, size = digest_of(file), file.stat().st_size
            about = {"name": File(save).name, "sha256": digest, "bytes": size}
            stated = statement(plan, derived[name], about, time=time, ledger=part)
            written.append(
                Saved(output=name, staged=file.name, save=save, sha256=digest, statement=stated)
            )
        waiting.complete(
            RunList(
                program=plan.program.hash,
                reserve=None if reserved is None else reserved.seq,
                ledger=None if reserved is None else reserved.hash,
                signer=None if run.signer is None else run.signer.public,
                files=written,
            )
        )
    return written


def publish(
    waiting: RunFolder,
    written: list[Saved],
    run: Run,
    done: Applied,
    then: Callable[[], None] = lambda: None,
) -> None:
    """Settle the charge with the files' digests, then rename the files.

    ``done`` gets what was published. ``then`` runs before the outcome is recorded: it makes the stores of
    sessions.

    Raises:
        DataError (OS609): a rename failed; the text says how to go on without another charge.
        BudgetError (OS403): the ledger could not be written; the text says how to go on.
        ReleaseError (OS701): the charge is there, and holds the digests of other files.
    """
    transaction = run.transaction
    digests = {file.output: file.digests for file in written}
    with refusing(_kept, UnavailableError):
        transaction.settle({"files": digests})
    done.charge = transaction.charge
    if done.charge is not None and done.charge.body.get("files") != digests:
        raise changed(waiting)
    paid = None if done.charge is None else done.charge.seq
    full = unwritable(
        "outputs",
        "a disk that refused to take them"
        + ("" if paid is None else f"; they are kept, and charged as entry {paid}"),
        "make room on the disk and run the command again: it goes on from the kept files "
        + (f"(`apply --resume {paid}`) and charges nothing." if paid else "of a run."),
    )
    with refusing(lambda _: full, OSError):
        for file in written:
            _place(waiting, file, run, done)
    then()
    with refusing(_kept, UnavailableError):
        transaction.finish({"files": {f.output: f.sha256 for f in written}})
    waiting.done()


def _kept(error: UnavailableError) -> UnavailableError:
    """Add to a ledger's refusal that the paid outputs are kept."""
    return error.restated(
        hint="the outputs are kept: run the command again when the ledger can be had. It goes on "
        "from them and charges nothing more."
    )


def _place(waiting: RunFolder, file: Saved, run: Run, done: Applied) -> None:
    """Rename one output, then write its certificate."""
    final, made = run.folder / file.save, waiting.path / file.staged
    beside = certificate_path(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(made):
        beside.unlink(missing_ok=True)  # the old one, before the new file has its name
        sync_folder(final.parent)
        moved(made, final)
    write_json(beside, signed_certificate(file.statement, done.charge, run.signer))
    done.files[file.output], done.certificates[file.output] = final, beside
