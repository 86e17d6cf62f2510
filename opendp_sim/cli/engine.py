"""Check an engine's bits on public data against one machine's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from opendp_sim.cli._run import AsJson, handled, say, say_json
from opendp_sim.engines.check import check
from opendp_sim.engines.engine import ENGINES, engine_of

engine_app = typer.Typer(
    name="engine",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Look at an engine before private data is given to it.",
)


@engine_app.callback()
def _of_engines() -> None:
    """Look at an engine before private data is given to it."""  # and `check` stays a word of its own


@engine_app.command("check")
def engine_check_command(
    name: Annotated[
        str, typer.Argument(help=f"One of {', '.join(ENGINES)}, or an address: dask://host:8786.")
    ] = "local",
    folder: Annotated[
        str | None, typer.Option(help="Where made files go: a folder that every worker sees.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="A card that each worker has, such as cuda (extra `gpu`).")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Compare an engine's sums with one thread's, bit for bit."""
    with handled(as_json_text=json_):
        engine = engine_of(name)
        engine.ready()
        good, told = True, []
        for found in check(engine, folder, device=device):
            good &= found.equal
            told.append(asdict(found))
            if json_:
                continue
            say(
                f"{found.name:<8} {'equal bits' if found.equal else 'NOT EQUAL'}, {found.seconds:.1f} s"
            )
            if found.told is not None:
                say(found.told)
        if json_:
            say_json({"engine": name, "equal": good, "sums": told})
    if not good:
        raise typer.Exit(1)
