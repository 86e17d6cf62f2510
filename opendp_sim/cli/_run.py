"""Share errors, exit codes and parameters among commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.segment import Segment
from rich.table import Table

from opendp_sim.cli._stop import begun, deed, unread
from opendp_sim.cli.output.folding import folded
from opendp_sim.cli.output.quiet import hushed
from opendp_sim.core.errors import SimError, SpecError, came
from opendp_sim.core.system.escape_text import cut, escape
from opendp_sim.dsl.text.diagnostic import Refused
from opendp_sim.dsl.text.render import as_json, as_text
from opendp_sim.dsl.text.yaml_document import Document

EXITS = {"OS1": 1, "OS2": 1, "OS3": 1, "OS4": 3, "OS5": 1, "OS6": 4, "OS7": 5, "OS9": 70}
"""Exit code by family of error: 1 refused, 3 budget or ledger, 4 data, 5 release or certificate, 70
internal. Whatever is found while a spec is checked is 1; wrong usage of a command is 2."""

_PIPED = 80

_TEXT = 2000
"""Characters of a text in a message."""

SpecPath = Annotated[str, typer.Argument(help="A spec file.", metavar="SPEC")]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", help="A public parameter, name=value; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there.")]


class _Plain(Console):
    """Print tables with control characters shown, without markup.

    Strings given to ``print`` are one line each, folded where it is too long (unless ``soft_wrap``);
    what is laid out by Rich is filtered as it is rendered.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; a string is data, never markup."""
        if hushed() and not self.stderr:
            return
        with printed():
            super().print(*(self._line(o, **options) for o in objects), **options)

    def _line(self, given: Any, *, soft_wrap: bool = False, **_options: Any) -> Any:
        if not isinstance(given, str):
            return given
        return escape(given) if soft_wrap else folded(escape(given), self.width)

    def on_broken_pipe(self) -> None:
        """End with a shell's code for a broken pipe."""
        raise unread(BrokenPipeError())

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        """Render, with every character that could steer a terminal made visible."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape(segment.text, "\n"))


def console(*, error: bool = False) -> Console:
    """Return a console, 80 columns wide if it is no terminal."""
    plain: dict[str, Any] = {"stderr": error, "highlight": False, "markup": False, "emoji": False}
    made = _Plain(**plain)
    return made if made.is_terminal else _Plain(**plain, width=_PIPED, no_color=True)


def plain_table(*columns: str) -> Table:
    """Return an empty table without lines, for data in one line each."""
    made = _Cells(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


class _Cells(Table):
    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(escape(c) if isinstance(c, str) else c for c in cells), **options)


def say(text: str, *, lines: bool = False, fold: bool = True) -> None:
    """Print a line, folded where long unless ``fold`` is false.

    ``lines``: a text of several lines, of which every line was made by ``shown``.
    """
    if hushed():
        return
    said = escape(text, "\n\t" if lines else "\t")
    with printed():
        typer.echo(folded(said, console().width) if fold else said)


def say_json(value: Any) -> None:
    """Print JSON."""
    with printed():
        typer.echo(json.dumps(value, indent=1, sort_keys=True))


@contextmanager
def printed() -> Iterator[None]:
    """End the command, without a refusal, when standard output cannot be written."""
    try:
        yield
    except OSError as error:
        raise unread(error) from None


def plural(number: int, word: str, many: str = "") -> str:
    """Return ``1 output``, ``2 outputs``."""
    return f"{number} {word if number == 1 else many or word + 's'}"


def read_parameters(given: list[str] | None) -> dict[str, str]:
    """Read ``name=value`` options."""
    out = {}
    for text in given or []:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"write --param name=value, not {text!r}")
        out[name.strip()] = value.strip()
    return out


@contextmanager
def handled(*, as_json_text: bool = False, exits: Mapping[str, int] = EXITS) -> Iterator[None]:
    """Convert every error to text or JSON and exit code."""
    begun()
    try:
        yield
    except Refused as error:
        document = error.document if isinstance(error.document, Document) else None
        if not (as_json_text and _print_errors(as_json(error.findings, document))):
            _complain(as_text(error.findings, document))
            _complain(f"\n{plural(len(error.findings), 'error')}.")
            _say_deed()
        raise typer.Exit(1) from None
    except SimError as error:
        if not (as_json_text and _print_errors([_plain(error)])):
            _complain(_simple(error))
            _say_deed()
        raise typer.Exit(exits[error.code[:3]]) from None
    except (typer.Exit, typer.BadParameter, typer.Abort):
        raise
    except Exception as error:  # noqa: BLE001 - its text could quote a record
        _complain(
            f"error[OS903]: an internal error of kind {type(error).__name__}\n"
            "   = help: its text is withheld; report the command as a bug."
        )
        _say_deed()
        raise typer.Exit(70) from None


def _print_errors(errors: list[Any]) -> bool:
    """Print errors and the completed work as JSON."""
    done = {"done": deed()} if deed() else {}
    try:
        typer.echo(json.dumps({"errors": errors, **done}, indent=1, sort_keys=True))
    except OSError:
        return False
    return True


def _say_deed() -> None:
    """Print the completed work before an error, charges above all."""
    if deed():
        _complain(f"   = note: {deed()}")


def _complain(text: str) -> None:
    typer.echo(folded(escape(text, "\n\t"), console(error=True).width), err=True)


def _simple(error: SimError) -> str:
    where, expected = escape(cut(error.where, _TEXT)), escape(cut(error.expected, _TEXT))
    got, hint = escape(cut(came(error.got), _TEXT)), escape(cut(error.hint, _TEXT))
    return (
        f"error[{error.code}]: `{where}` expects {expected}\n"
        f"  --> {where}\n   = got {got}\n   = help: {hint}"
    )


def _plain(error: SimError) -> dict[str, str]:
    return {
        "code": error.code,
        "where": cut(error.where, _TEXT),
        "expected": cut(error.expected, _TEXT),
        "got": cut(came(error.got), _TEXT),
        "help": cut(error.hint, _TEXT),
    }


def refuse_usage(expected: str, got: str, hint: str) -> SpecError:
    """Return the refusal of an argument that is no such thing."""
    return SpecError("OS304", "arguments", expected=expected, got=got, hint=hint)
