"""Add periods to a stream, charged once, and write its releases."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from opendp_sim.cli._progress import progress
from opendp_sim.cli._run import (
    AsJson,
    Force,
    Params,
    SpecPath,
    handled,
    plural,
    read_parameters,
    say,
    say_json,
)
from opendp_sim.cli._stop import note_charge, note_written
from opendp_sim.dsl.files.paths import one_file
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.overwrite import check_target
from opendp_sim.dsl.run.stream_folder import StreamFolder, add_file, begin_stream

Folder = Annotated[str, typer.Argument(help="The folder of a stream.", metavar="FOLDER")]
_First = Annotated[int, typer.Option(min=1, help="The first period, from 1.")]
_Last = Annotated[
    int | None, typer.Option(min=1, help="The last one; default the last that is over.")
]

stream_app = typer.Typer(
    name="stream",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="One sketch of records that come period after period, charged once.",
)


@stream_app.command("new")
def stream_new(
    spec: SpecPath,
    into: Annotated[
        str, typer.Option(help="The stream's folder: its exact sums, secret, and its releases.")
    ],
    periods: Annotated[int, typer.Option(min=1, help="The most that will ever come.")],
    base: Annotated[
        int | None, typer.Option(min=2, help="Of the tree; default the one of least error.")
    ] = None,
    person_periods: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="In how many of them a person is, at most, which nothing checks; default one, of rows.",
        ),
    ] = None,
    param: Params = None,
    json_: AsJson = False,
) -> None:
    """Begin a stream, and charge all its periods at once.

    The spec has one sketch with noise, and its dataset `source: {memory: records}`. Typed again, it goes
    on with the same stream and charges nothing.
    """
    with handled(as_json_text=json_):
        plan = plan_file(spec, read_parameters(param))
        told: list[str] = []
        with begin_stream(
            plan,
            periods,
            into,
            base=base,
            person_periods=person_periods,
            charged=partial(_charged, told),
        ):
            note_written(into)
        if told and not json_:
            say(f"charged   {told[-1]}")
        _say_status(StreamFolder.read(into), json_=json_)


@stream_app.command("add")
def stream_add(
    folder: Folder,
    file: Annotated[str, typer.Argument(help="The period's own records: .csv, .parquet, ...")],
    period: Annotated[
        int | None,
        typer.Option(
            help="Its number: a period that is over is not added twice, nor its file read."
        ),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Add the next period, and release its nodes."""
    with handled(as_json_text=json_):
        found = StreamFolder.read(folder)
        with found.open(note_charge) as stream:
            with progress("adding a period"):
                added = add_file(stream, file, period)
            last = stream.period if period is None else period
            files = [stream.file(node) for node in stream.tree.ending(last)]
            note_written(*files)
        if json_:
            say_json({"period": last, "added": added, "files": [str(path) for path in files]})
            return
        over = "" if added else ", over before: the file was not opened"
        say(f"period    {last} of {found.tree.periods}{over}")
        for path in files:
            say(f"wrote     {path}" if added else f"there     {path}")
        say(f"then      opendp-sim stream release {folder} -o FILE; opendp-sim answer FILE")


@stream_app.command("release")
def stream_release(
    folder: Folder,
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write it, a .npz file.")],
    first: _First = 1,
    last: _Last = None,
    force: Force = False,
    json_: AsJson = False,
) -> None:
    """Write the sketch of an interval of periods, for `answer`.

    It is a sum of released nodes: it costs nothing.
    """
    with handled(as_json_text=json_):
        found = StreamFolder.read(folder)
        target = Path(output)
        kept = [("the stream's spec", found.spec)]
        if one_file(target.parent, found.folder):  # a node's name would pass for a later period's
            kept.append(("the stream's own folder", target))
        check_target(target, kept, force=force)
        with found.open(note_charge) as stream:
            last = stream.period if last is None else last
            stream.release(first, last).save(target)
        note_written(output)
        if json_:
            say_json({"wrote": output, "first": first, "last": last})
        else:
            say(f"wrote     {output}, periods {first} to {last}")


@stream_app.command("status")
def stream_status(folder: Folder, json_: AsJson = False) -> None:
    """Print a stream's periods, error and releases.

    From its public files: nothing is opened or charged.
    """
    with handled(as_json_text=json_):
        _say_status(StreamFolder.read(folder), json_=json_)


def _charged(told: list[str], text: str) -> None:
    """Keep the words of a charge."""
    told.append(text)
    note_charge(text)


def _say_status(found: StreamFolder, *, json_: bool) -> None:
    told: dict[str, Any] = found.plain()
    if json_:
        say_json(told)
        return
    say(f"stream    {found.folder}, of {told['spec']}")
    say(f"period    {told['period']} of {told['periods']}")
    privacy, each = found.plan.privacy, told["person_periods"]
    if each > 1 or (privacy is not None and privacy.unit.of != "row"):
        trust = ", which nothing checks" if each < told["periods"] else ""
        say(f"persons   in {plural(each, 'period')} at most{trust}")
    say(
        f"error     noise of periods 1 to t is {told['error']:.3g} times one release's, as a root mean "
        f"square ({plural(told['levels'], 'level')}, base {told['base']})"
    )
    say(f"releases  {plural(len(told['files']), 'file')} of nodes")
    if told["period"] < told["periods"]:
        say(f"then      opendp-sim stream add {found.folder} FILE --period {told['period'] + 1}")
