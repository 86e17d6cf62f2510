"""``apply``: reserve, one data gate, the releases, complete outputs, the charge, and then the names."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path as File
from typing import Any, Protocol

from opendp_sim.accounting.ledger import Entry
from opendp_sim.accounting.release import Release
from opendp_sim.accounting.signature import Signer
from opendp_sim.core.claims import Interactive
from opendp_sim.core.errors import DataError, InternalError, SimError, SpecError
from opendp_sim.dsl.applied import Applied
from opendp_sim.dsl.charging import gate, open_ledger, reserve
from opendp_sim.dsl.diagnostic import Notes
from opendp_sim.dsl.inputs import Inputs, Memory, check_forms, open_private, open_public
from opendp_sim.dsl.places import check_inside, check_saves
from opendp_sim.dsl.plan import Plan
from opendp_sim.dsl.publish import Run, publish, run_folder, settle, stage
from opendp_sim.dsl.released import data_of, released
from opendp_sim.dsl.resume import finish
from opendp_sim.dsl.targets import check_own, check_replaced
from opendp_sim.dsl.write import check_writable
from opendp_sim.spaces.rows import with_points

__all__ = ["answer", "apply"]


class Engine(Protocol):
    """What sums up private records elsewhere (``opendp_sim.engines``)."""

    def check(self, plan: Plan) -> None:
        """Refuse a plan that cannot be run so, before anything is reserved or read (OS611)."""

    def sums(self, plan: Plan) -> dict[str, Any]:
        """Return what every private release releases, before noise, behind the data gate."""


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
    engine: Engine | None = None,
    told: Callable[[str, int], None] = lambda _phase, _rows: None,
    charged: Callable[[str], None] = lambda _text: None,
    resume: int | None = None,
    sign: str | File | None = None,
) -> Applied:
    """Run exactly this plan; or finish a run of it that was charged and could not be finished.

    Args:
        plan: what ``plan_of`` made.
        memory: arrays for sources of kind ``memory``.
        into: folder that ``save:`` paths start from; default the spec's.
        anywhere: let ``save:`` leave that folder.
        replace: let an output take the place of one that another program released. A run of this very
            program replaces its own outputs anyway.
        workers: threads that build sketches, default one a core; any number gives the same bits.
        engine: what sums up private records, such as ``opendp_sim.engines.engine_of("dask")``; default
            this process. Gate and sums are then one pass; the bits are the same (``engines.md``).
        told: told a phase and a number of records, which is a secret: for nobody but the data's owner.
        charged: told in words what is charged, at the moment from which it stands.
        resume: the ledger's entry of an unfinished run: finish it, and do nothing else. Without it an
            unfinished run of the same plan in the same folder is finished too, if there is one; a warning
            says so where tables are handed over, since nothing tells whether they are the same.
        sign: a PEM file with the curator's Ed25519 key, to sign certificates with.

    Raises:
        SpecError (OS306): a session, which ``opendp-sim session`` serves. Refused (OS304): ``into``
            puts an output on an input. DataError (OS609): an output cannot be written; nothing was
            charged and no data was opened, or the text says which charge stands and how to go on.
            (Other OS6xx): the data or a query is refused; nothing was
            charged, and the ledger counts what the data refused. BudgetError (OS402, OS403): the ledger
            refuses; nothing ran. (OS407): the ledger was charged before, and is gone.
            InternalError (OS902): a private function failed; the charge stands.
            ReleaseError (OS702): nothing to resume.
    """
    _no_sessions(plan)
    signer = None if sign is None else Signer(sign)
    folder = File(into if into is not None else plan.program.folder)
    notes = Notes()
    check_saves(plan.program, notes, folder, plan.path)
    if not anywhere:
        check_inside(plan.program, notes, folder)
    notes.raise_if_any()
    for where, path in _saved(plan, folder):
        check_writable(path, where)
        if not replace:
            check_own(path, where, plan.program.hash)
    with ExitStack() as stack:
        ledger = open_ledger(plan, stack, folder=folder)
        run = Run(folder, ledger, signer, workers, told, charged, engine)
        finished = finish(plan, run, resume)
        if finished is None:
            return _fresh(plan, run, memory or {}, stack)
    if memory and resume is None:
        warnings.warn(_OLD, RuntimeWarning, stacklevel=2)
    return finished


def _saved(plan: Plan, folder: File) -> list[tuple[str, File]]:
    """Return (its place in the spec, its file) of every output that is saved."""
    saved = ((name, output.decl.save) for name, output in plan.outputs.items())
    return [(f"outputs.{name}.save", folder / save) for name, save in saved if save is not None]


def _fresh(plan: Plan, run: Run, memory: Memory, stack: ExitStack) -> Applied:
    """Reserve, run, settle (``charging.md``)."""
    for where, path in _saved(plan, run.folder):
        check_replaced(path, where)
    done, ledger, time = Applied(plan), run.ledger, datetime.now(UTC).isoformat(timespec="seconds")
    public = open_public(plan, memory, run.told)
    check_forms(plan, memory)
    if run.engine is not None:
        run.engine.check(plan)
    waiting = stack.enter_context(run_folder(plan, run.folder, public.queries))
    token = waiting.token if waiting else secrets.token_hex(8)
    seal = waiting.seal.public if waiting else None
    reserved = reserve(plan, ledger, token=token, seal=seal, charged=run.charged)
    inputs, sums, failed = _gated(plan, run, memory, public, reserved)
    if ledger is not None:
        total = ledger.total()
        done.spent, done.left = total.text, total.left_text
    try:
        if failed is not None:
            raise failed
        made = released(plan, inputs, sums, run.workers, run.told)
        _answer(plan, made, inputs, done)
    except SimError:
        raise
    except Exception:  # noqa: BLE001 - whatever it says may be about the data
        failed = InternalError(
            "OS902", "apply", expected="a release", got="a failure inside a private function",
            hint="the charge stands; run the spec on public data to reproduce the failure.",
        )  # fmt: skip
    if failed is not None:
        raise failed  # outside the handler: it keeps no context whose frames hold data
    if waiting is None:
        done.charge = settle(ledger, reserved, {})
        return done
    try:
        written = stage(plan, waiting, done, ledger, reserved, time=time, signer=run.signer)
        publish(waiting, written, run, reserved, done)
    except DataError as error:
        error.results = dict(done.results)  # paid for: the reserve stands
        raise
    return done


def _gated(
    plan: Plan, run: Run, memory: Memory, public: Inputs, reserved: Entry | None
) -> tuple[Inputs, dict[str, Any], Exception | None]:
    """Put the private data through the gate, in the one pass that makes the first sum or all of them.

    Returns:
        What further releases read; sums before noise; and what a mechanism failed with, which is
        judged after the gate: the charge stands (``charging.md``, Lemma 7).
    """
    with gate(plan, run.ledger, reserved, run.charged):
        if run.engine is not None:
            return public, run.engine.sums(plan), None
        inputs = open_private(plan, memory, run.told, public, whole=False)
        sums, failed, refused = _first(plan, inputs, run)
        if refused is not None:
            raise refused  # before what failed, and from a frame that holds no sum
    return inputs, sums, failed


def _first(
    plan: Plan, inputs: Inputs, run: Run
) -> tuple[dict[str, Any], Exception | None, DataError | None]:
    """Make the sum of the first private release while the gate looks at its records.

    Returns:
        The sum; or what it failed with; or, whatever became of it, what the gate refuses.
    """
    sums: dict[str, Any] = {}
    failed: Exception | None = None
    for name, release in plan.releases.items():
        if not release.typed.entry.public:
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


def _no_sessions(plan: Plan) -> None:
    for name, release in plan.releases.items():
        if release.bound is not None and isinstance(release.bound.claim, Interactive):
            raise SpecError(
                "OS306", f"flow.{name}", expected="releases that can be written to a file",
                got="a session", hint="run `opendp-sim session SPEC` to serve it.",
            )  # fmt: skip


# --- the outputs ----------------------------------------------------------------------------------


def _answer(plan: Plan, released: dict[str, Any], inputs: Inputs, done: Applied) -> None:
    for name, output in plan.outputs.items():
        value = released[output.stage.name]
        queries, points = inputs.queries.get(name), inputs.points.get(name)
        if isinstance(value, Release):
            silent = all(post.takes == "answer" or not post.asks for post in output.posts)
            if output.posts and (queries is not None or silent):
                done.results[name] = answer(value, output.posts, queries, points)
            else:
                done.results[name] = value
            continue
        for post in output.posts:
            value = (
                post.function(value) if post.takes == "answer" else post.function(value, queries)
            )
        done.results[name] = value


def answer(release: Release, posts: Any, queries: Any, points: Any = None) -> Any:
    """Answer public queries from a release alone, through the post-processing steps in order.

    ``points`` are public points, for questions with ``public: points``.
    """
    mapped = None if queries is None else release.queries(queries)
    if points is not None:
        mapped = with_points(mapped, release.queries(points))
    value: Any = None
    for place, post in enumerate(posts):
        first = place == 0 or post.takes == "release"
        value = post.function(release.arrays, mapped) if first else post.function(value)
    return value
