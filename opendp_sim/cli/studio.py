"""Open the page about one private file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opendp_sim.cli._run import AsJson, handled, say
from opendp_sim.cli._stop import note_charge
from opendp_sim.core.errors import DataError
from opendp_sim.web import require_web


def studio_command(
    data: Annotated[Path, typer.Argument(help="The private file: .csv, .parquet, .arrow, ...")],
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 0,
    spec: Annotated[
        Path | None, typer.Option(help="A spec of this file, such as that of an earlier run.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Choose a question by clicking; spend once.

    Needs the extra `studio`.

    The page is for a browser on this machine. The file stays closed, its first lines aside,
    until a run is confirmed. Whoever has the printed address can spend: it works until Ctrl-C.
    """
    with handled(as_json_text=json_):
        for file in filter(None, (data, spec)):
            if not file.is_file():
                raise DataError(
                    "OS601", str(file), expected="a file", got="none",
                    hint="opendp-sim studio trips.csv --spec trips.yaml.",
                )  # fmt: skip
        text = "" if spec is None else spec.read_text(encoding="utf-8", errors="replace")
        require_web()
        from opendp_sim.studio.app import Server  # noqa: PLC0415 - an extra

        server = Server(data, port, note_charge, text)
        say(f"studio: {server.address}", fold=False)
        server.run()
