"""Run specs with ``apply``, which ``check`` and ``plan`` never import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path as File
from typing import Annotated

import typer

from opendp_sim.cli._progress import progress
from opendp_sim.cli._run import (
    AsJson,
    Params,
    console,
    handled,
    plural,
    read_parameters,
    say,
    say_json,
)
from opendp_sim.cli._stop import note_charge, note_written
from opendp_sim.cli.output.comparison import show_comparison
from opendp_sim.cli.output.plan import show_plan
from opendp_sim.cli.output.summary import show_advice, show_first, show_text
from opendp_sim.core.memory import process_memory
from opendp_sim.dsl.files.write import formula_note
from opendp_sim.dsl.plan.document import is_plan, load_plan, outputs_of_plan
from opendp_sim.dsl.plan.plan import Plan, plan_file
from opendp_sim.dsl.plan.statements import tell
from opendp_sim.dsl.run.answer import records_note
from opendp_sim.dsl.run.charge import refuse_unbegun, standing
from opendp_sim.dsl.run.compare_exact import compare, refuse_incomparable
from opendp_sim.dsl.run.execute import SumEngine, apply
from opendp_sim.dsl.run.overwrite import Earlier, earlier_of
from opendp_sim.dsl.run.records import Applied

_FITS = 49
"""Letters of the written files in the first line, behind a name of 20."""


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
    device: Annotated[
        str | None,
        typer.Option(
            help="Sum up on `cuda`, or `cuda:1`, ..., an NVIDIA card (extra `gpu`): the same bits."
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
            plan, into = read_plan(spec, param, into, resuming=resume is not None)
            refuse_unbegun(plan, spec, None if into is None else File(into))
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
                device=device,
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
        runs = 2 if earlier.same and done.resumed is None else 1
        said = tell(plan, ledger=standing(plan), runs=runs, wrote=_wrote(done))
        show_first(said, _next_of(done, spec), console(), whole=verbose)
        _say_circumstances(done, earlier)
        for one in found:
            show_comparison(one)
        if verbose:
            _say_files(done)
        show_advice(said.advice, console(), whole=verbose)
        if verbose:
            say("")
            show_plan(plan, console(), before=before)


def read_plan(
    spec: str, param: list[str] | None, into: str | None, *, resuming: bool = False
) -> tuple[Plan, str | None]:
    """Return the plan of a file, and its outputs' folder."""
    if not is_plan(spec):
        return plan_file(spec, read_parameters(param)), into
    if param:
        raise typer.BadParameter("a plan document has its parameters already")
    plan = load_plan(spec, resuming=resuming)
    return plan, outputs_of_plan(spec, plan) if into is None else into


def _wrote(done: Applied) -> str:
    """Return the written files in one line, or their number and folder."""
    if done.resumed is not None:
        return f"finished the run of entry {done.resumed}; nothing new was charged"
    if not done.files:
        return f"opened {', '.join(str(store) for store in done.stores.values())}"
    paths = [_near(path) for path in done.files.values()]
    told = f"wrote {', '.join(paths)}"
    if len(told) <= _FITS:
        return told
    folders = sorted({_near(path.parent) for path in done.files.values()})
    return f"wrote {plural(len(paths), 'file')} in {folders[0]}{' and others' * (len(folders) > 1)} (-v)"


def _near(path: File) -> str:
    """Return a path as seen from the working folder."""
    here = File.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _say_circumstances(done: Applied, earlier: Earlier) -> None:
    """Print the records released, and what differs between runs."""
    for text, names in _by_text(_records_of(done)).items():
        show_text(console(), "records", f"{text} ({names})" if len(done.results) > 1 else text)
    for text in _notes(done):
        say(f"note     {text}")
    for name, store in done.stores.items():
        say(f"opened   {store} ({name}), which `opendp-sim session` serves at no further cost")
    if earlier.names and done.resumed is None:
        told = "" if done.plan.privacy is None else "; both runs' losses add up"
        say(
            f"again    {', '.join(earlier.names)}: in the place of an earlier run's{told}. To ask more, "
            "keep the files and use `opendp-sim answer`, which costs nothing"
        )


def _say_files(done: Applied) -> None:
    """Print every file with its certificate, and the ledger's standing."""
    for name, path in done.files.items():
        say(f"wrote    {path} ({name}), certificate {done.certificates[name].name}")
    if done.spent is not None:
        say(f"ledger   spent {done.spent}; left {done.left}")


def _notes(done: Applied) -> list[str]:
    return [note for path in done.files.values() if (note := formula_note(path))]


def _records_of(done: Applied) -> dict[str, str]:
    """Return a line on each output's released number of records, if counted."""
    expected = {name: one.typed.expected_records for name, one in done.plan.releases.items()}
    sources = {output.name: output.source for output in done.plan.program.outputs}
    found = {}
    for name, result in done.results.items():
        source = name
        for _ in sources:  # an output may be of an output before it
            source = sources.get(source, source)
        size = expected.get(source)
        if told := records_note(result, size) or records_note(done.released.get(name), size):
            found[name] = told
    return found


def _by_text(told: Mapping[str, str]) -> dict[str, str]:
    """Return the outputs' names by their common text, without its first word."""
    found: dict[str, list[str]] = {}
    for name, text in told.items():
        found.setdefault(text.removeprefix("records "), []).append(name)
    return {text: ", ".join(names) for text, names in found.items()}


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
        **done.plain(),
        **({"notes": _notes(done)} if _notes(done) else {}),
    }
