"""Draw one picture of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from opendp_sim.cli._progress import progress
from opendp_sim.cli._run import AsJson, Force, handled, say, say_json
from opendp_sim.cli._stop import note_written
from opendp_sim.dsl.run.overwrite import check_target, kept_of


def plot_command(
    about: Annotated[
        str,
        typer.Argument(help="A spec, plan, release (.npz), selection (.json), .ledger, or audit."),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="The picture: .svg, .png or .pdf.")],
    kind: Annotated[
        str | None,
        typer.Option(
            help="error, privacy, density, classes, top, budget or audit; default by the file."
        ),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="A release's column; give it twice for a map.")
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE: where another column is held; default its middle."),
    ] = None,
    force: Force = False,
    json_: AsJson = False,
) -> None:
    """Draw a plan, release, selection, ledger or audit; needs the extra `plot`.

    No private data is opened and nothing is spent.
    """
    with handled(as_json_text=json_):
        from opendp_sim.plots.choose import display_of  # noqa: PLC0415 - at first use

        target = Path(output)
        check_target(target, kept_of(about), force=force)
        there = target.exists()
        with progress("drawing"):
            display_of(Path(about), kind, column or (), _places(at or ())).save(target)
        note_written(target)
        if json_:
            say_json({"wrote": str(target)})
        else:
            say(f"picture in {target}{', in place of the one that was there' if there else ''}")


def _places(at: Sequence[str]) -> dict[str, float]:
    """Return where columns are held, from NAME=VALUE."""
    found = {}
    for text in at:
        name, sign, value = text.partition("=")
        try:
            found[name.strip()] = float(value if sign else "")
        except ValueError:
            raise typer.BadParameter("--at takes NAME=VALUE, a column and a number") from None
    return found
