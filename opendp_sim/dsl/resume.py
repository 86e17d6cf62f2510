"""Going on with a run whose process died, or whose disk failed, after its outputs were complete.

It is the second half of ``publish.py`` again: it draws no noise, looks at no record and charges nothing
new. Proof: ``charging.md``.
"""

from __future__ import annotations

import os
from pathlib import Path as File

from opendp_sim.accounting.certificate import digest_of
from opendp_sim.accounting.ledger import Entry, Ledger
from opendp_sim.accounting.release import Release
from opendp_sim.core.errors import ReleaseError, SimError
from opendp_sim.core.regular import own_file
from opendp_sim.dsl.applied import Applied
from opendp_sim.dsl.plan import Plan
from opendp_sim.dsl.publish import Run, publish, stated_of
from opendp_sim.dsl.run_folder import RunFolder, changed, kept_folders, listed_program

__all__ = ["finish"]


def finish(plan: Plan, run: Run, resume: int | None) -> Applied | None:
    """Finish a run of this plan whose outputs are complete and charged or reserved; None for none.

    Raises:
        ReleaseError (OS702): ``resume`` names no run that can be finished. (OS701): a kept file was
            changed.
    """
    folder, ledger = run.folder, run.ledger
    for waiting in kept_folders(folder):
        if ledger is None:
            if listed_program(waiting.path) == plan.program.hash:
                waiting.done()  # such a run is simply repeated
            continue
        reserved = _reserved(waiting, plan, ledger)
        if reserved is None:
            continue  # another program's or ledger's: it goes on there
        charge = ledger.settlement_of(reserved)
        if charge is not None and ledger.outcome_of(charge) is not None:
            waiting.done()  # it died while it removed the folder
            continue
        number = reserved.seq if charge is None else charge.seq
        if resume is not None and resume not in (reserved.seq, number):
            continue
        if plan.charge is not None:  # from before, and whatever stops this process
            run.charged(f"entry {number} of {ledger.path} charges {plan.charge.text}, and stands")
        return _finished(plan, waiting, run, reserved)
    if resume is None:
        return None
    raise ReleaseError(
        "OS702",
        "--resume",
        expected=f"the entry of an unfinished run of this plan, whose files are kept in {folder}",
        got=str(resume),
        hint="`opendp-sim ledger show` lists charges without an outcome; name the folder with --into as "
        "the run did. A run that ended before its files were complete cannot be resumed.",
    )


def _reserved(waiting: RunFolder, plan: Plan, ledger: Ledger) -> Entry | None:
    """Return what was reserved for the run of a folder: its name tells, not what is in it."""
    return next(
        (
            e
            for e in ledger.entries
            if e.kind == "reserve"
            and e.body.get("token") == waiting.token
            and e.body.get("program") == plan.program.hash
        ),
        None,
    )


def _finished(plan: Plan, waiting: RunFolder, run: Run, reserved: Entry) -> Applied:
    ledger = run.ledger
    assert ledger is not None  # noqa: S101 - the caller asked
    waiting.open_list(reserved.body.get("seal"))
    listed = waiting.listed
    assert listed is not None  # noqa: S101 - it was read
    unsealed = "seal" not in reserved.body and ledger.settlement_of(reserved) is None
    if unsealed or (listed.reserve, listed.ledger) != (reserved.seq, reserved.hash):
        raise changed(waiting)
    _check_signer(listed.signer, run, signed=listed.signed)
    _check_kept(plan, waiting, run.folder)
    done = Applied(plan)
    publish(waiting, listed.files, run, reserved, done)
    done.resumed = None if done.charge is None else done.charge.seq
    total = ledger.total()
    done.spent, done.left = total.text, total.left_text
    for name, path in done.files.items():
        if path.suffix == ".npz" and not plan.outputs[name].posts:
            try:
                done.results[name] = Release.load(path)
            except SimError:
                continue  # plain arrays
    return done


def _check_signer(key: str | None, run: Run, *, signed: bool) -> None:
    """Refuse another key than the run's (OS702): it would vouch for data that another person handed over.

    Args:
        key: the public key that the run was started with; None also where an earlier version kept none.
        run: how the plan is run now.
        signed: whether it was started with one.
    """
    now = None if run.signer is None else run.signer.public
    if now == key if key is not None or not signed else now is not None:
        return
    wanted = f"the key that the run was started with{'' if key is None else f', {key[:16]}...'}"
    raise ReleaseError(
        "OS702",
        "--sign",
        expected=wanted if signed else "no key, as the run was started",
        got="none" if now is None else f"{now[:16]}...",
        hint="name that key with --sign; nothing was published yet."
        if signed
        else "leave --sign out to finish that run; the next one can be signed.",
    )


def _check_kept(plan: Plan, waiting: RunFolder, folder: File) -> None:
    """Refuse kept files that are not what the list says, or that would go anywhere else (OS701)."""
    listed = waiting.listed
    assert listed is not None  # noqa: S101 - the caller asked
    saves = {n: o.decl.save for n, o in plan.outputs.items() if o.decl.save is not None}
    good = {f.output: f.save for f in listed.files} == saves and len(listed.files) == len(saves)
    for file in listed.files if good else ():
        made = waiting.path / file.staged
        where = (
            made if os.path.lexists(made) else folder / file.save
        )  # renamed before the process died
        stated_of(waiting, file)
        try:
            good = good and digest_of(own_file(where)) == file.sha256
        except OSError:
            good = False
    if not good:
        raise changed(waiting)
