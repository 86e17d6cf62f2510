"""``apply``: one data gate, one durable charge, then the releases, the outputs and certificates."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.ledger import Entry, Ledger
from opendp_sim.accounting.release import Release
from opendp_sim.core.bridge import guarded
from opendp_sim.core.claims import Interactive, Noise, Private, Stable
from opendp_sim.core.errors import InternalError, SimError, SpecError
from opendp_sim.core.pipeline import resolve
from opendp_sim.dsl.certify import certificate, claim_about
from opendp_sim.dsl.charging import charge as charge_to_ledger, open_ledger
from opendp_sim.dsl.diagnostic import Notes
from opendp_sim.dsl.inputs import Inputs, Memory, open_inputs
from opendp_sim.dsl.places import check_saves
from opendp_sim.dsl.plan import Plan, ReleasePlan
from opendp_sim.dsl.write import check_writable, digests, write_output
from opendp_sim.sources.fold import build_sketch, collect_rows
from opendp_sim.spaces.records import Records

__all__ = ["Applied", "answer", "apply"]


@dataclass
class Applied:
    """What a run left: results by output name, the files written, the ledger's entry."""

    plan: Plan
    results: dict[str, Any] = field(default_factory=dict)
    files: dict[str, File] = field(default_factory=dict)
    certificates: dict[str, File] = field(default_factory=dict)
    charge: Entry | None = None
    spent: str | None = None
    left: str | None = None


def apply(
    plan: Plan,
    *,
    memory: Memory | None = None,
    into: str | File | None = None,
    workers: int = 1,
    told: Callable[[str, int], None] = lambda _phase, _rows: None,
) -> Applied:
    """Run exactly this plan.

    Args:
        plan: what ``plan_of`` made.
        memory: arrays for sources of kind ``memory``.
        into: folder that ``save:`` paths start from; default the spec's.
        workers: threads that build sketches; any number gives the same bits.
        told: told a phase and a number of records.

    Raises:
        SpecError (OS306): a session, which ``opendp-sim session`` serves. Refused (OS304): ``into``
            puts an output on an input. DataError (OS609): an output cannot be written; nothing was
            charged and no data was opened. (Other OS6xx): the data or a query is refused; nothing was
            charged, and the ledger counts what the data refused. BudgetError (OS402, OS403): the ledger
            refuses; nothing ran. InternalError (OS902): a private function failed after the
            charge, which stands.
    """
    _no_sessions(plan)
    folder = File(into if into is not None else plan.program.folder)
    notes = Notes()
    check_saves(plan.program, notes, folder, plan.path)
    notes.raise_if_any()
    for name, output in plan.outputs.items():
        if output.decl.save is not None:
            check_writable(folder / output.decl.save, f"outputs.{name}.save")
    done = Applied(plan)
    with ExitStack() as stack:
        ledger = open_ledger(plan, stack)
        inputs = open_inputs(plan, memory or {}, told, ledger)
        done.charge = charge_to_ledger(plan, ledger)
        if ledger is not None:
            total = ledger.total()
            done.spent, done.left = total.text, total.left_text
        failed = None
        try:
            released = _run(plan, inputs, workers, told)
            _answer(plan, released, inputs, done)
        except SimError:
            raise
        except Exception:  # noqa: BLE001 - whatever it says may be about the data
            failed = InternalError(
                "OS902", "apply", expected="a release", got="a failure inside a private function",
                hint="the charge stands; run the spec on public data to reproduce the failure.",
            )  # fmt: skip
        if failed is not None:
            raise failed  # outside the handler: it keeps no context whose frames hold data
        _write(plan, folder, released, ledger, done)
        if ledger is not None and done.charge is not None:
            ledger.outcome(done.charge, {"files": digests(done.files)})
    return done


def _no_sessions(plan: Plan) -> None:
    for name, release in plan.releases.items():
        if release.bound is not None and isinstance(release.bound.claim, Interactive):
            raise SpecError(
                "OS306", f"flow.{name}", expected="releases that can be written to a file",
                got="a session", hint="run `opendp-sim session SPEC` to serve it.",
            )  # fmt: skip


# --- the releases ---------------------------------------------------------------------------------


def _run(
    plan: Plan, inputs: Inputs, workers: int, told: Callable[[str, int], None]
) -> dict[str, Any]:
    return {
        name: _release(plan, release, inputs, workers, told)
        for name, release in plan.releases.items()
    }


def _release(
    plan: Plan, release: ReleasePlan, inputs: Inputs, workers: int,
    told: Callable[[str, int], None],
) -> Any:  # fmt: skip
    typed = release.typed
    blocks = inputs.blocks[typed.entry.name]
    claim = release.bound.claim if release.bound is not None else None
    last = typed.stages[-1].claim if typed.stages else None
    data: Any
    if isinstance(last, Stable) and last.accumulate is not None:
        data = build_sketch(
            typed.stages, blocks, workers=workers, on_block=lambda rows: told("building", rows)
        )
    elif isinstance(last, Stable) and last.fold is not None:
        maps, fold = typed.stages[:-1], last.fold
        key = typed.stages[-1].mechanism.key
        data = guarded(lambda _: fold(lambda: map(resolve(maps, blocks), blocks())), key)(None)
    elif isinstance(typed.domain, Records):
        raise InternalError(
            "OS903", typed.name, expected="a stage that ends in rows or a sketch", got="records",
            hint="put `select` or a sketch before the release.",
        )  # fmt: skip
    else:
        data = collect_rows(typed.stages, blocks)
    told("releasing", 0)
    if isinstance(claim, Private):
        assert release.record is not None  # noqa: S101 - a claim has a record
        data = guarded(claim.function, release.record.key)(data)
    noise: Noise | None = getattr(claim, "noise", None)
    if typed.is_sketch and typed.release_kind in ("noise", "none"):
        return Release.of_sketch(typed.stages, data, noise, claim_about(plan, release))
    return data


# --- the outputs ----------------------------------------------------------------------------------


def _answer(plan: Plan, released: dict[str, Any], inputs: Inputs, done: Applied) -> None:
    for name, output in plan.outputs.items():
        value = released[output.stage.name]
        queries = inputs.queries.get(name)
        if isinstance(value, Release):
            silent = all(post.takes == "answer" or not post.asks for post in output.posts)
            if output.posts and (queries is not None or silent):
                done.results[name] = answer(value, output.posts, queries)
            else:
                done.results[name] = value
            continue
        for post in output.posts:
            value = (
                post.function(value) if post.takes == "answer" else post.function(value, queries)
            )
        done.results[name] = value


def answer(release: Release, posts: Any, queries: Any) -> Any:
    """Answer public queries from a release alone, through the post-processing steps in order."""
    mapped = None if queries is None else release.queries(queries)
    value: Any = None
    for place, post in enumerate(posts):
        first = place == 0 or post.takes == "release"
        value = post.function(release.arrays, mapped) if first else post.function(value)
    return value


def _write(
    plan: Plan, folder: File, released: dict[str, Any], ledger: Ledger | None, done: Applied
) -> None:
    del released
    for name, output in plan.outputs.items():
        if output.decl.save is None:
            continue
        path = folder / output.decl.save
        write_output(path, done.results[name], output.domain)
        done.files[name] = path
        done.certificates[name] = certificate(plan, name, path, ledger, done.charge)
