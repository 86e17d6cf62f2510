"""Write the page for the person who decides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opendp_sim.accounting.atomic_files import replacing
from opendp_sim.cli._progress import progress
from opendp_sim.cli._run import AsJson, Force, handled, say, say_json
from opendp_sim.cli._stop import note_written
from opendp_sim.dsl.run.overwrite import check_target, kept_of


def report_command(
    about: Annotated[
        str,
        typer.Argument(
            help="A spec, a plan, a certificate (.certificate.json), a .ledger, a session's store "
            "(.session), or an audit (.json)."
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="The page; default beside, ending in .html."),
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(help="Of a session's store: its spec, to say how many questions are left."),
    ] = None,
    force: Force = False,
    json_: AsJson = False,
) -> None:
    """Write one page for the person who decides.

    About a spec, plan, certificate, ledger, session or audit.

    No data is opened and nothing is spent. A certificate is verified first; one that does not verify
    gives no page.
    """
    with handled(as_json_text=json_):
        from opendp_sim.report.page import page_of  # noqa: PLC0415 - templates load at first use

        target = Path(output) if output is not None else Path(f"{about}.html")
        check_target(target, kept_of(about), force=force)
        with progress("writing the page"):
            page = page_of(about, spec)
        there = target.exists()
        with replacing(target) as stream:
            stream.write(page.encode("utf-8"))
        note_written(target)
        if json_:
            say_json({"wrote": str(target)})
        else:
            say(f"report in {target}{', in place of the one that was there' if there else ''}")
