"""Serve editors over standard input and output."""

from __future__ import annotations

from opendp_sim.cli._run import AsJson, handled
from opendp_sim.cli._stop import unread


def lsp_command(json_: AsJson = False) -> None:
    """Help an editor with specs.

    Findings, hover, completion, the plan's cost; needs the extra `lsp`.

    An editor starts it. No data is opened and nothing is written. The documentation's page "In the
    editor" shows how VS Code, Neovim and JetBrains are set up. It speaks JSON-RPC with and without
    ``--json``, which is for a refusal to start.
    """
    with handled(as_json_text=json_):
        from opendp_sim.lsp.server import serve_stdio  # noqa: PLC0415 - at first use

        try:
            serve_stdio()
        except OSError as error:
            raise unread(error) from None
