"""Run the command line.

Commands format and never compute. A command's module is imported when that command is run, so that
help is quick.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from opendp_sim import __version__
from opendp_sim.cli._stop import reported, stoppable
from opendp_sim.cli.output.quiet import hush
from opendp_sim.core.errors import SimError
from opendp_sim.core.system.escape_text import escape

__all__ = ["COMMANDS", "EXIT_CODES", "GROUPS", "app", "loaded", "main"]

EXIT_CODES = {
    0: "done",
    1: "refused, with diagnostics; of an audit: refuted",
    2: "wrong usage; of an audit: nothing that could be audited",
    3: "the budget or its ledger refuses",
    4: "data is refused",
    5: "a release or certificate is refused",
    6: "an audit priced something, and refuted nothing",
    70: "an internal error",
    74: "standard output takes no more; standard error has what was done",
    129: "hung up: the terminal was closed",
    130: "interrupted by Ctrl-C",
    141: "standard output was closed",
    143: "terminated",
}
"""What each exit code means."""

GROUPS = {
    "Write a spec": {
        "init": ("about:init_command", "Write a commented template."),
        "recommend": ("about:recommend_command", "Rank mechanisms by predicted error."),
        "check": ("spec:check_command", "Parse, type and account a spec; no data is opened."),
        "types": ("spec:types_command", "Print the type of every stage."),
        "doctor": (
            "doctor:doctor_command",
            "Count dropped and clamped records (private), and find a dialect.",
        ),
    },
    "Run it": {
        "studio": ("studio:studio_command", "Choose a question by clicking; spend once."),
        "plan": ("spec:plan_command", "Print a plan's protection and errors."),
        "apply": ("apply:apply_command", "Run a spec, or the plan in a plan document."),
        "ledger": ("after:ledger_app", "Read a ledger, or begin one."),
        "engine": ("engine:engine_app", "Look at an engine before private data is given to it."),
    },
    "Ask": {
        "answer": ("after:answer_command", "Answer public queries from a saved release."),
        "session": (
            "session:session_app",
            "Answer queries from private data, each charged, durably, before its answer leaves.",
        ),
        "stream": (
            "stream:stream_app",
            "One sketch of records that come period after period, charged once.",
        ),
        "serve": ("serve:serve_app", "Serve releases and sessions of a folder over HTTP."),
    },
    "Review": {
        "report": ("report:report_command", "Write one page for the person who decides."),
        "verify": ("after:verify_command", "Verify a certificate."),
        "plot": (
            "plot:plot_command",
            "Draw a plan, release, selection, ledger or audit; needs the extra `plot`.",
        ),
        "audit": (
            "audit:audit_command",
            "Print `refuted` with a counterexample, `priced`, or `not refuted`.",
        ),
    },
    "Learn": {
        "explain": ("about:explain_command", "Print the page of a mechanism, code, word or stage."),
        "ops": ("about:ops_command", "List every mechanism that a spec can name."),
    },
    "Serve editors and other programs": {
        "lsp": ("lsp:lsp_command", "Help an editor with specs."),
        "schema": ("about:schema_command", "Print the JSON Schema of specs, for editors."),
        "stubs": ("about:stubs_command", "Compare the type stubs with the mechanisms' records."),
    },
}
"""What a person does, and the commands for it: where each is (a function, or a Typer app of its own), and
its line of help."""

COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


def loaded(name: str) -> Any:
    """Return the command called ``name``, its module imported."""
    module, _, word = COMMANDS[name][0].partition(":")
    found = getattr(import_module(f"opendp_sim.cli.{module}"), word)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(name)(found)
        found = alone
    return typer.main.get_command(found)


class _Later(TyperCommand):
    """List a command by its line of help until it runs."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        try:
            command = loaded(str(self.name))
        except SimError as error:  # a plugin that cannot be loaded
            typer.echo(str(error), err=True)
            raise typer.Exit(70) from None
        return command.make_context(info_name, args, parent=parent, **extra)


_ANYWHERE = ("--quiet", "--version", "-V")


class _Commands(TyperGroup):
    def __init__(self, **options: Any) -> None:
        later = {
            name: _Later(name=name, help=line, rich_help_panel=group)
            for group, entries in GROUPS.items()
            for name, (_, line) in entries.items()
        }
        super().__init__(**options | {"commands": later})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``--quiet`` and ``--version`` in any place, for every command."""
        end = args.index("--") if "--" in args else len(args)
        first = [word for word in args[:end] if word in _ANYWHERE]
        rest = [word for word in args[:end] if word not in _ANYWHERE]
        return super().parse_args(ctx, [*first, *rest, *args[end:]])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write help, and below it the exit codes."""
        super().format_help(ctx, formatter)
        typer.echo(" Exit codes")
        for code, meaning in EXIT_CODES.items():
            typer.echo(f" {code:>4}  {meaning}")


class _App(typer.Typer):
    """An application that can be stopped at any moment."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with stoppable(), reported():
            return super().__call__(*args, **kwargs)


app = _App(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Private answers to one question: how similar is this query to a private dataset?",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"opendp-sim {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Print the version.", callback=_version, is_eager=True
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", help="Every command: print errors only, and JSON that was asked for."
        ),
    ] = False,
) -> None:
    del version
    hush(on=quiet)


def main() -> None:
    """Run the command line.

    A warning is one line: Python would add a file and a line of source.
    """
    warnings.showwarning = _warned
    app()


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    del category, filename, lineno, file, line
    typer.echo(f"warning: {escape(str(message))}", err=True)
