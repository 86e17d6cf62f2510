"""Run a plan, from reserve and gate to outputs, charge and names."""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path as File
from typing import Any, Protocol

from opendp_sim.accounting.certificate.certificate import digest_of
from opendp_sim.accounting.certificate.signature import Signer
from opendp_sim.accounting.file_schemas import time_now
from opendp_sim.accounting.ledger.ledger import Entry, Ledger
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.claims import Noise, Private, Stable
from opendp_sim.core.device import Device, using_device
from opendp_sim.core.errors import (
    DataError,
    InternalError,
    ParameterError,
    ReleaseError,
    SimError,
    refusing,
    repr_text,
)
from opendp_sim.core.guard import guarded
from opendp_sim.core.system.regular_files import own_file
from opendp_sim.domains.records import Records
from opendp_sim.dsl.files.paths import check_inside, check_saves
from opendp_sim.dsl.files.staging import (
    RunFolder,
    RunList,
    Saved,
    changed,
    complete_run,
    kept_folders,
)
from opendp_sim.dsl.files.write import check_writable
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.run.certificate import claim_about
from opendp_sim.dsl.run.charge import Transaction
from opendp_sim.dsl.run.inputs import (
    Inputs,
    Memory,
    check_forms,
    note_objects,
    open_private,
    open_public,
)
from opendp_sim.dsl.run.outputs import rehearse, results_of
from opendp_sim.dsl.run.overwrite import check_own, check_replaced
from opendp_sim.dsl.run.publish import Run, derived_statements, publish, run_folder, stage
from opendp_sim.dsl.run.records import Applied
from opendp_sim.dsl.run.stores import Places, lock_free, make_stores, open_references
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.io.blocks import Block
from opendp_sim.io.fold import build_sketch, collect_records, collect_rows, fold_whole

# --------------------------------------------------------------------------------------------------
# The releases of a plan: what each one releases before noise, and the release itself.

Told = Callable[[str, int], None]


def released(
    plan: Plan, inputs: Inputs, sums: Mapping[str, Any], workers: int | None, told: Told
) -> dict[str, Any]:
    """Make every release that is made at once, from its sum."""
    return {
        name: _release(
            plan,
            release,
            sums[name] if name in sums else data_of(release, inputs, workers, told),
            told,
        )
        for name, release in plan.releases.items()
        if not release.interactive
    }


def data_of(release: ReleasePlan, inputs: Inputs, workers: int | None, told: Told) -> Any:
    """Return a release's sum, fold, or rows before noise."""
    typed = release.typed
    blocks = inputs.blocks[typed.entry.name]
    last = typed.stages[-1].claim if typed.stages else None
    if isinstance(last, Stable) and last.accumulate is not None:
        told("building", 0)
        return build_sketch(
            typed.stages, blocks, workers=workers, on_block=lambda rows: told("building", rows)
        )
    if isinstance(last, Stable) and last.fold is not None:
        told("building", 0)
        return fold_whole(
            typed.stages, blocks, workers=workers, on_block=lambda rows: told("building", rows)
        )
    if isinstance(typed.domain, Records):
        return collect_records(typed.stages, typed.domain, blocks)
    return collect_rows(typed.stages, blocks)


def _made(plan: Plan, release: ReleasePlan, inputs: Inputs) -> Any:
    """Make one release on one thread, without progress messages."""
    return _release(plan, release, data_of(release, inputs, 1, _untold), _untold)


def _untold(_phase: str, _rows: int) -> None:
    """Show no progress."""


def _release(plan: Plan, release: ReleasePlan, data: Any, told: Told) -> Any:
    claim = release.bound.claim if release.bound is not None else None
    told("releasing", 0)
    if isinstance(claim, Private):
        assert release.record is not None  # noqa: S101 - a claim has a record
        data = guarded(claim.function, release.record.key)(data)
    noise: Noise | None = getattr(claim, "noise", None)
    stages = release.asked_stages
    return (
        data
        if stages is None
        else Release.of_sketch(stages, data, noise, claim_about(plan, release))
    )


# --------------------------------------------------------------------------------------------------
# Going on with a run whose process died, or whose disk failed, after its outputs were complete.
#
# It is the second half of ``publish.py`` again: it draws no noise, looks at no record and charges nothing
# new. Proof: ``charge.md``.


def finish(plan: Plan, run: Run, resume: int | None) -> Applied | None:
    """Finish a charged or reserved run with complete outputs, or return None.

    Raises:
        ReleaseError (OS702): ``resume`` names no run that can be finished. (OS701): a kept file was
            changed.
    """
    folder, ledger = run.folder, run.transaction.ledger
    for waiting in kept_folders(folder):
        if ledger is None:
            if (found := complete_run(waiting.path)) and found.program == plan.program.hash:
                waiting.done()  # such a run is simply repeated
            continue
        own = {"token": waiting.token, "program": plan.program.hash}
        reserves = (
            e for e in ledger.entries if e.kind == "reserve" and own.items() <= e.body.items()
        )
        if (reserved := next(reserves, None)) is None:
            continue  # another program's or ledger's: it goes on there
        charge = ledger.settlement_of(reserved)
        if charge is not None and ledger.outcome_of(charge) is not None:
            waiting.done()  # it died while it removed the folder
            continue
        number = reserved.seq if charge is None else charge.seq
        if resume is not None and resume not in (reserved.seq, number):
            continue
        run.transaction.stands(reserved, number)  # from before, and whatever stops this process
        return _finished(plan, waiting, run, ledger, reserved)
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


def _finished(plan: Plan, waiting: RunFolder, run: Run, ledger: Ledger, reserved: Entry) -> Applied:
    listed = waiting.open_list(reserved.body.get("seal", ""))
    if (listed.reserve, listed.ledger) != (reserved.seq, reserved.hash):
        raise changed(waiting)
    _check_signer(listed.signer, run)
    done = Applied(plan)
    publish(waiting, _kept(plan, waiting, listed, run.folder), run, done)
    done.resumed = None if done.charge is None else done.charge.seq
    _standing(ledger, done, {}, done.charge)
    for name, path in done.files.items():
        if path.suffix == ".npz" and not plan.outputs[name].posts:
            try:
                done.results[name] = Release.load(path)
            except SimError:
                continue  # plain arrays
    return done


def _check_signer(key: str | None, run: Run) -> None:
    """Refuse a signer that is not the run's (OS702).

    The key would vouch for data that another person delivered.
    """
    now = None if run.signer is None else run.signer.public
    if now == key:
        return
    raise ReleaseError(
        "OS702", "--sign", got="none" if now is None else f"{now[:16]}...",
        expected="no key, as the run was started" if key is None
        else f"the key that the run was started with, {key[:16]}...",
        hint="leave --sign out to finish that run; the next one can be signed." if key is None
        else "name that key with --sign; nothing was published yet.",
    )  # fmt: skip


def _kept(plan: Plan, waiting: RunFolder, listed: RunList, folder: File) -> list[Saved]:
    """Return kept files, refused where they are not as listed (OS701)."""
    saves = {n: o.decl.save for n, o in plan.outputs.items() if o.decl.save is not None}
    kept = {f.output: f.save for f in listed.files}  # an output that failed has none
    good = kept.items() <= saves.items() and len(listed.files) == len(kept)
    for file in listed.files if good else ():
        made = waiting.path / file.staged
        where = (
            made if os.path.lexists(made) else folder / file.save
        )  # renamed before the process died
        with refusing(lambda _: changed(waiting), OSError):
            good = good and digest_of(own_file(where)) == file.sha256
    if not good:
        raise changed(waiting)
    return listed.files


# --------------------------------------------------------------------------------------------------


class SumEngine(Protocol):
    """What sums up private records elsewhere (``opendp_sim.engines``)."""

    def check(self, plan: Plan, device: str | None = None) -> None:
        """Refuse an unfit plan (OS611) before anything is reserved or read."""

    def sums(self, plan: Plan, device: str | None = None) -> dict[str, Any]:
        """Return every private release's sums before noise, behind the data gate."""


_OLD = (
    "a run of this plan that was charged and did not end is finished: this is the release of the table "
    "that was handed over then, and the table of this call was not looked at. Call again for a new run."
)


def apply(
    plan: Plan,
    *,
    memory: Memory | None = None,
    into: str | File | None = None,
    anywhere: bool = False,
    replace: bool = False,
    workers: int | None = None,
    engine: SumEngine | None = None,
    device: str | Device | None = None,
    told: Callable[[str, int], None] = lambda _phase, _rows: None,
    charged: Callable[[str], None] = lambda _text: None,
    resume: int | None = None,
    sign: str | File | None = None,
    expected_head: str | None = None,
) -> Applied:
    """Run exactly this plan, or finish a charged run.

    A run that was charged and could not be finished.

    Args:
        plan: what ``plan_of`` made.
        memory: arrays for sources of kind ``memory``.
        into: folder that ``save:`` paths start from; default the spec's.
        anywhere: let ``save:`` leave that folder.
        replace: let an output take the place of one that another program released, and a new session's
            store the place of one in a file. A run of this very program replaces its own outputs anyway,
            and no store.
        workers: threads that build sketches, default one a core; any number gives the same bits.
        engine: what sums up private records, such as ``opendp_sim.engines.engine_of("dask")``; default
            this process. Gate and sums are then one pass; the bits are the same (``engines.md``).
        device: ``cuda``, ``cuda:1``, ... for sums on a card, proved before anything is charged; default
            the CPU. The bits are the same (``core/device/device.md``). Beside ``engine`` it is the name
            of the card in each of its workers; one that has no such card sums up on its CPU.
        told: told a phase and a number of records, which is a secret: for nobody but the data's owner.
        charged: told in words what is charged, at the moment from which it stands.
        resume: the ledger's entry of an unfinished run: finish it, and do nothing else. Without it an
            unfinished run of the same plan in the same folder is finished too, if there is one; a warning
            says so where tables are handed over, since nothing tells whether they are the same.
        sign: a PEM file with the curator's Ed25519 key, to sign certificates with.
        expected_head: the ledger's head (``standing(plan).head``) as it was when
            the run was confirmed: with another head nothing is charged (``charge.md``, Lemma 10).

    Raises:
        Refused (OS304): ``into`` puts an output on an input. DataError (OS609): an output cannot be
            written, or a session's store is there already; nothing was charged and no data was
            opened, or the text says which charge stands and how to go on.
            (Other OS6xx): the data or a query is refused; nothing was
            charged, and the ledger counts what the data refused. BudgetError (OS402, OS403): the ledger
            refuses; nothing ran. (OS407): the ledger was charged before, and is gone. (OS409): it has
            another head than ``expected_head``; nothing was charged.
            InternalError (OS902): a private function failed; the charge stands.
            ReleaseError (OS702): nothing to resume.
    """
    threads: Any = workers
    if threads is not None and not (isinstance(threads, int) and threads >= 1):
        raise ParameterError(
            "OS101", "workers", expected="a number of threads from 1 on, or None for one a core",
            got=repr_text(workers, 40), hint="any number gives the same bits.",
        )  # fmt: skip
    card = None
    if engine is not None and device is not None:
        if not isinstance(device, str):
            raise ParameterError(
                "OS102", "device", expected="the name of a card, such as cuda, beside an engine",
                got=type(device).__name__, hint="each worker opens the card of its own machine.",
            )  # fmt: skip
        card, device = device, None
    signer = None if sign is None else Signer(sign)
    folder = File(into if into is not None else plan.program.folder)
    unknown = check_targets(plan, folder, anywhere=anywhere, replaced=replace)
    with ExitStack() as stack:
        stack.enter_context(using_device(device))
        transaction = Transaction.open(
            plan, stack, folder=folder, charged=charged, head=expected_head
        )
        run = Run(folder, transaction, signer, workers, told, engine, card)
        finished = finish(plan, run, resume)
        if finished is None:
            for where, path in unknown:
                check_replaced(path, where)  # again: its certificate may be there by now
            places = lock_free(plan, stack, replaced=replace, ledger=transaction.ledger)
            return _run_or_go_on(plan, run, memory or {}, places)
    if memory and resume is None:
        warnings.warn(_OLD, RuntimeWarning, stacklevel=2)
    return finished


def _run_or_go_on(plan: Plan, run: Run, memory: Memory, places: Places) -> Applied:
    """Run a plan, or resume charged stores without answers."""
    names = {name: run.transaction.unserved(name) for name in places}
    if not names or None in names.values() or saved(plan, run.folder):
        drawn = {name: secrets.token_hex(16) for name in places}
        return make_run(plan, run, memory, places, drawn)
    open_references(plan, memory)
    done, kept = Applied(plan), {name: str(found) for name, found in names.items()}
    inputs = look_again(plan, run, memory, kept.values())
    make_stores(plan, inputs, places, kept)
    return _standing(run.transaction.ledger, done, places)


def _standing(
    ledger: Ledger | None, done: Applied, places: Places, reserved: Entry | None = None
) -> Applied:
    """Add the total spent loss and the stores' places to a result."""
    done.stores = {name: place.path for name, place in places.items()}
    if ledger is not None:
        total = ledger.total(upto=None if reserved is None else reserved.seq)
        done.spent, done.left = total.text, total.left_text
    return done


def look_again(plan: Plan, run: Run, memory: Memory, stores: Iterable[str]) -> Inputs:
    """Open the private data again behind the gate, for charged stores.

    A refusal is counted, and a charge that was only reserved is settled now.
    """
    public = open_public(plan, memory, run.told)
    check_forms(plan, memory)
    transaction = run.transaction
    transaction.may_be_refused()
    if transaction.ledger is not None:
        transaction.charged(
            f"what {transaction.ledger.path} charged for this session before stands"
        )
    with transaction.counting():
        inputs = open_private(plan, memory, run.told, public)
    for name in stores:
        transaction.settle_store(name)
    return inputs


def check_targets(
    plan: Plan, folder: File, *, anywhere: bool, replaced: bool
) -> list[tuple[str, File]]:
    """Refuse unwritable or colliding outputs before any charge.

    ``anywhere`` lets outputs leave the folder, ``replaced`` take the place of another program's. Returns
    outputs in whose place is a file of no known run, which a new run refuses (``check_replaced``).
    """
    notes = Notes()
    check_saves(plan.program, notes, folder, plan.path)
    if not anywhere:
        check_inside(plan.program, notes, folder)
    notes.raise_if_any()
    found = saved(plan, folder)
    for where, path in found:
        check_writable(path, where)
    own = plan.program.hash
    return [each for each in found if check_own(each[1], each[0], own, replaced=replaced)]


def saved(plan: Plan, folder: File) -> list[tuple[str, File]]:
    """Return the place in the spec and the file of saved outputs."""
    saves = ((name, output.decl.save) for name, output in plan.outputs.items())
    return [(f"outputs.{name}.save", folder / save) for name, save in saves if save is not None]


def make_run(
    plan: Plan,
    run: Run,
    memory: Memory,
    places: Places,
    names: Mapping[str, str],
    opening: Callable[[Inputs], None] = lambda _inputs: None,
    references: Mapping[str, Block] | None = None,
) -> Applied:
    """Reserve, run, settle, publish, and make the stores of sessions (``charge.md``).

    ``places`` are locked, where new stores are made; ``names`` those of stores in the ledger, one of
    which ``opening`` opens from what was read; ``references`` were opened before.
    """
    done, transaction, time = Applied(plan), run.transaction, time_now()
    public = _rehearsed(plan, run, memory, references)
    derived = derived_statements(plan)

    def open_stores() -> None:
        opening(inputs)
        make_stores(plan, inputs, places, names)

    with run_folder(plan, run.folder, public.queries, derived) as waiting:
        token = waiting.token if waiting else secrets.token_hex(8)
        seal = waiting.seal.public if waiting and transaction.ledger is not None else None
        transaction.reserve(token=token, stores=names, seal=seal)
        inputs, sums, failed = _gated(plan, run, memory, public)
        _standing(transaction.ledger, done, places, transaction.reserved)
        made = _made_releases(plan, run, inputs, sums, failed)
        done.results, refused = results_of(plan, made, inputs)
        done.released = {
            name: made[output.stage.name]
            for name, output in plan.outputs.items()
            if output.stage.name in made
        }
        if refused is not None and not done.results:
            raise refused
        try:
            if waiting is None:
                transaction.settle({})
                done.charge = transaction.charge
                open_stores()
            else:
                written = stage(plan, waiting, run, done, time, derived)
                publish(waiting, written, run, done, open_stores)
        except DataError as error:
            error.results = dict(done.results)  # paid for: the reserve stands
            raise
    if refused is not None:
        raise _beside(refused, done)
    return done


def run_in_memory(plan: Plan, memory: Memory) -> dict[str, Any]:
    """Run a plan without ledger or files (OS6xx, OS902); return its results."""
    run = Run(File(), Transaction(plan))
    public = _rehearsed(plan, run, memory)
    inputs, sums, failed = _gated(plan, run, memory, public)
    results, refused = results_of(plan, _made_releases(plan, run, inputs, sums, failed), inputs)
    if refused is not None:
        raise refused
    return results


def _rehearsed(
    plan: Plan, run: Run, memory: Memory, references: Mapping[str, Block] | None = None
) -> Inputs:
    """Open everything public, and try the run on an empty dataset."""
    public = open_public(plan, memory, run.told)
    check_forms(plan, memory)
    note_objects(plan, memory)
    if run.engine is not None:
        run.engine.check(plan, run.card)
    rehearse(plan, public, partial(_made, plan), open_references(plan, memory, references))
    return public


def _made_releases(
    plan: Plan, run: Run, inputs: Inputs, sums: Mapping[str, Any], failed: Exception | None
) -> dict[str, Any]:
    """Make the releases, or raise a mechanism's failure."""
    try:
        if failed is not None:
            raise failed
        return released(plan, inputs, sums, run.workers, run.told)
    except SimError:
        raise
    except Exception:  # noqa: BLE001 - whatever it says may be about the data
        failed = InternalError(
            "OS902", "apply", expected="a release", got="a failure inside a private function",
            hint="the charge stands; run the spec on public data to reproduce the failure.",
        )  # fmt: skip
    raise failed  # outside the handler: it keeps no context whose frames hold data


def _beside(refused: SimError, done: Applied) -> SimError:
    """Return one output's refusal, with the run's other results."""
    names = ", ".join(str(done.files.get(name, name)) for name in done.results)
    told = refused.restated(
        hint=f"{refused.hint} The charge stands, and the other outputs are released: {names}."
    )
    told.results = dict(done.results)
    return told


def _gated(
    plan: Plan, run: Run, memory: Memory, public: Inputs
) -> tuple[Inputs, dict[str, Any], Exception | None]:
    """Check the private data in one pass of sums.

    Returns what further releases read, sums before noise, and what a mechanism failed with, which is
    judged after the gate: the charge stands (``charge.md``, Lemma 7).
    """
    with run.transaction.gate():
        if run.engine is not None:
            asked = any(release.interactive for release in plan.releases.values())
            inputs = open_private(plan, memory, run.told, public) if asked else public
            return inputs, run.engine.sums(plan, run.card), None
        inputs = open_private(plan, memory, run.told, public, whole=False)
        sums, failed, refused = first_sum(plan, inputs, run)
        if refused is not None:
            raise refused  # before what failed, and from a frame that holds no sum
    return inputs, sums, failed


def first_sum(
    plan: Plan, inputs: Inputs, run: Run
) -> tuple[dict[str, Any], Exception | None, DataError | None]:
    """Return the first private sum, its failure, or the gate's refusal."""
    sums: dict[str, Any] = {}
    failed: Exception | None = None
    for name, release in plan.releases.items():
        if not release.typed.entry.public and not release.interactive:
            try:
                sums[name] = data_of(release, inputs, run.workers, run.told)
            except Exception as error:  # noqa: BLE001 - judged when the gate has seen every record
                failed = error
            break
    try:
        inputs.finish()
    except DataError as error:
        return {}, None, error.with_traceback(None)
    return sums, failed, None
