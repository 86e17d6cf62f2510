"""Run specs with ``apply``.

``check`` and ``plan`` import nothing of it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from opendp_sim.cli._progress import progress
from opendp_sim.cli._run import AsJson, Params, console, handled, read_parameters, say, say_json
from opendp_sim.cli._stop import note_charge, note_written
from opendp_sim.cli.output.comparison import show_comparison
from opendp_sim.cli.output.plan import show_plan
from opendp_sim.cli.output.summary import show_advice, show_done
from opendp_sim.core.memory import process_memory
from opendp_sim.dsl.files.write import formula_note
from opendp_sim.dsl.plan.document import is_plan, load_plan, outputs_of_plan
from opendp_sim.dsl.plan.plan import Plan, plan_file
from opendp_sim.dsl.run.answer import records_note
from opendp_sim.dsl.run.compare_exact import compare, refuse_incomparable
from opendp_sim.dsl.run.execute import SumEngine, apply
from opendp_sim.dsl.run.overwrite import Earlier, earlier_of
from opendp_sim.dsl.run.records import Applied


def apply_command(
    spec: Annotated[str, typer.Argument(help="A spec, or a plan written by `plan -o`.")],
    param: Params = None,
    into: Annotated[
        str | None,
        typer.Option(
            help="Folder that outputs are saved under; default that of the spec, or of the plan document."
        ),
    ] = None,
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="Let `save:` leave that folder.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Let an output replace another program's release, and a new store a session's.",
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Threads that build sketches; default one a core."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Sum up private files by `local` tasks, `dask`, `spark` or `sc`, or on the cluster at "
            "an address such as dask://host:8786: the same bits."
        ),
    ] = None,
    resume: Annotated[
        int | None,
        typer.Option(help="Only finish the unfinished run that the ledger charged as this entry."),
    ] = None,
    sign: Annotated[
        str | None, typer.Option(help="Sign certificates with this Ed25519 private key (PEM).")
    ] = None,
    compared: Annotated[
        bool, typer.Option("--compare", help="Also compare with exact answers; public data only.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also every type, map, loss and scale.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Run a spec, or the plan in a plan document."""
    with handled(as_json_text=json_):
        with progress("planning"):
            plan, into = _plan(spec, param, into, resuming=resume is not None)
        if compared:
            refuse_incomparable(plan)
        before, earlier = process_memory(), earlier_of(plan, into)
        with progress("starting") as told:
            done = apply(
                plan,
                into=into,
                anywhere=anywhere,
                replace=replace,
                workers=workers,
                told=told,
                engine=_engine(engine),
                charged=note_charge,
                resume=resume,
                sign=sign,
            )
        note_written(*done.files.values())
        with progress("comparing with exact answers"):
            found = compare(done) if compared and done.resumed is None else []
        if json_:
            say_json(_plain(done) | {"comparison": [asdict(one) for one in found]})
            return
        _say_done(done, earlier)
        for one in found:
            show_comparison(one)
        say("")
        runs = 2 if earlier.same and done.resumed is None else 1
        show_done(plan, _next_of(done, spec), console(), whole=verbose, runs=runs)
        show_advice(plan, console(), whole=verbose)
        if verbose:
            say("")
            show_plan(plan, console(), before=before)


def _plan(
    spec: str, param: list[str] | None, into: str | None, *, resuming: bool
) -> tuple[Plan, str | None]:
    """Return the plan, and the folder of its outputs."""
    if not is_plan(spec):
        return plan_file(spec, read_parameters(param)), into
    if param:
        raise typer.BadParameter("a plan document has its parameters already")
    plan = load_plan(spec, resuming=resuming)
    return plan, outputs_of_plan(spec, plan) if into is None else into


def _say_done(done: Applied, earlier: Earlier) -> None:
    """Print the written and the removed files."""
    if done.resumed is not None:
        say(
            f"resumed   the run of entry {done.resumed}: nothing ran, nothing new was charged; "
            "apply again for a new release"
        )
    for name, path in done.files.items():
        say(f"wrote     {path} ({name}), certificate {done.certificates[name].name}")
    for text in (*_notes(done), *_records_of(done).values()):
        say(f"note      {text}")
    for name, store in done.stores.items():
        say(f"opened    {store} ({name}), which `opendp-sim session` serves at no further cost")
    if earlier.names and done.resumed is None:
        told = (
            ""
            if done.plan.privacy is None
            else "; what an earlier run told stays told, and adds up"
        )
        say(
            f"again     {', '.join(earlier.names)}: in the place of an earlier run's{told}. To ask more, "
            "keep the files and use `opendp-sim answer`, which costs nothing"
        )
    if done.spent is not None:
        first = done.charge is not None and done.charge.body.get("of") == 1
        begun = "; this run began it" if first else ""
        say(f"ledger    spent {done.spent}; left {done.left}{begun}")


def _notes(done: Applied) -> list[str]:
    return [note for path in done.files.values() if (note := formula_note(path))]


def _records_of(done: Applied) -> dict[str, str]:
    """Return a line on each output's released number of records.

    Of the outputs that count them.
    """
    expected = {s.name: s.expect.records for s in done.plan.program.flow if s.expect is not None}
    sources = {output.name: output.source for output in done.plan.program.outputs}
    found = {}
    for name, result in done.results.items():
        source = name
        for _ in sources:  # an output may be of an output before it
            source = sources.get(source, source)
        if told := records_note(result, expected.get(source)):
            found[name] = f"{name}: {told}"
    return found


def _next_of(done: Applied, spec: str) -> str | None:
    """Return the next command after a run."""
    first = next(iter(done.certificates.values()), None)
    if first is not None:
        return f"opendp-sim report {first}"
    served = next(iter(done.stores), None)
    return None if served is None else f"opendp-sim session {spec} --output {served}"


def _engine(name: str | None) -> SumEngine | None:
    if name is None:
        return None
    from opendp_sim.engines.engine import engine_of  # noqa: PLC0415 - for its users only

    return engine_of(name)


def _plain(done: Applied) -> dict[str, object]:
    return {
        "plan": done.plan.plain(),
        "records": _records_of(done),
        "files": {name: str(path) for name, path in done.files.items()},
        "certificates": {name: str(path) for name, path in done.certificates.items()},
        **({"notes": _notes(done)} if _notes(done) else {}),
        "stores": {name: str(path) for name, path in done.stores.items()},
        "ledger": None
        if done.charge is None
        else {
            "entry": done.charge.seq,
            "head": done.charge.hash,
            "spent": done.spent,
            "left": done.left,
        },
    }
