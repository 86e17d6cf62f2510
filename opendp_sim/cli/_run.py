"""What every command shares: errors to text or JSON, stable exit codes, parameters, progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from opendp_sim.core.errors import SimError, SpecError
from opendp_sim.dsl.diagnostic import Refused
from opendp_sim.dsl.document import Document
from opendp_sim.dsl.render import as_json, as_text

__all__ = ["EXITS", "AsJson", "Params", "SpecPath", "console", "counted", "handled", "parameters",
           "progress", "say", "say_json"]  # fmt: skip

EXITS = {"OS1": 1, "OS2": 1, "OS3": 1, "OS4": 3, "OS5": 1, "OS6": 4, "OS7": 5, "OS9": 70}
"""Exit code by family of error: 1 refused, 3 budget or ledger, 4 data, 5 release or certificate, 70
internal. Whatever is found while a spec is checked is 1; wrong usage of a command is 2."""

SpecPath = Annotated[str, typer.Argument(help="A spec file.", metavar="SPEC")]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", help="A public parameter, name=value; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def console(*, error: bool = False) -> Console:
    """Return a console; 100 columns wide when it is not a terminal, so that output is stable."""
    made = Console(stderr=error, highlight=False)
    return made if made.is_terminal else Console(
        stderr=error, highlight=False, width=100, no_color=True
    )  # fmt: skip


def say(text: str) -> None:
    """Print a line as it is."""
    typer.echo(text)


def say_json(value: Any) -> None:
    """Print JSON."""
    typer.echo(json.dumps(value, indent=1, sort_keys=True))


def counted(number: int, word: str, many: str = "") -> str:
    """Return ``1 output``, ``2 outputs``."""
    return f"{number} {word if number == 1 else many or word + 's'}"


def parameters(given: list[str] | None) -> dict[str, str]:
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
    """Turn every error into its text or JSON, and into its exit code; no traceback ever leaves."""
    try:
        yield
    except Refused as error:
        document = error.document if isinstance(error.document, Document) else None
        if as_json_text:
            say_json({"errors": as_json(error.findings, document)})
        else:
            _complain(as_text(error.findings, document))
            _complain(f"\n{counted(len(error.findings), 'error')}.")
        raise typer.Exit(1) from None
    except SimError as error:
        if as_json_text:
            say_json({"errors": [_plain(error)]})
        else:
            _complain(_simple(error))
        raise typer.Exit(exits[error.code[:3]]) from None
    except (typer.Exit, typer.BadParameter, typer.Abort):
        raise
    except BrokenPipeError:
        raise typer.Exit(0) from None
    except Exception as error:  # noqa: BLE001 - its text could quote a record
        _complain(f"error[OS903]: an internal error of kind {type(error).__name__}\n"
                  "   = help: its text is withheld; report the command as a bug.")  # fmt: skip
        raise typer.Exit(70) from None


def _complain(text: str) -> None:
    typer.echo(text, err=True)


def _simple(error: SimError) -> str:
    got = error.got if isinstance(error.got, str) else repr(error.got)
    return (
        f"error[{error.code}]: `{error.where}` expects {error.expected}\n"
        f"  --> {error.where}\n   = got {got}\n   = help: {error.hint}"
    )


def _plain(error: SimError) -> dict[str, str]:
    got = error.got if isinstance(error.got, str) else repr(error.got)
    return {"code": error.code, "where": error.where, "expected": error.expected, "got": got,
            "help": error.hint}  # fmt: skip


@contextmanager
def progress() -> Iterator[Callable[[str, int], None]]:
    """Yield what is told (phase, records); a bar on a terminal, silence elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _phase, _rows: None
        return
    bar = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(),
        TextColumn("{task.completed:,.0f} records"), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    tasks: dict[str, Any] = {}

    def told(phase: str, rows: int) -> None:
        if phase not in tasks:
            tasks[phase] = bar.add_task(phase, total=None)
        bar.advance(tasks[phase], rows)

    with bar:
        yield told


def refuse_usage(expected: str, got: str, hint: str) -> SpecError:
    """Return the refusal of an argument that is no such thing."""
    return SpecError("OS304", "arguments", expected=expected, got=got, hint=hint)
