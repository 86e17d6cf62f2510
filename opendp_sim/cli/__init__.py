"""The command line: commands format and never compute.

Exit codes: 0 fine; 1 refused, with diagnostics; 2 wrong usage; 3 budget or ledger; 4 data; 5 release
or certificate; 70 internal error.
"""

from __future__ import annotations

from typing import Annotated

import typer

from opendp_sim import __version__
from opendp_sim.cli.about import explain_command, init_command, ops_command, schema_command
from opendp_sim.cli.after import answer_command, ledger_app, verify_command
from opendp_sim.cli.audit import audit_command
from opendp_sim.cli.session import session_command, session_lines
from opendp_sim.cli.spec import apply_command, check_command, plan_command, types_command

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False,
    help="Private answers to one question: how similar is this query to a private dataset?",
)  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"opendp-sim {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    del version


app.command("check")(check_command)
app.command("types")(types_command)
app.command("plan")(plan_command)
app.command("apply")(apply_command)
app.command("answer")(answer_command)
app.command("verify")(verify_command)
app.add_typer(ledger_app, name="ledger")
app.command("explain")(explain_command)
app.command("ops")(ops_command)
app.command("schema")(schema_command)
app.command("init")(init_command)
app.command("audit")(audit_command)
app.command("session", epilog=session_lines())(session_command)


def main() -> None:
    """Run the command line."""
    app()
