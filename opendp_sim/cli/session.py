"""Serve a session by JSON lines, each charged before its answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from opendp_sim.accounting.file_schemas import loose_json, why_not
from opendp_sim.cli._progress import progress
from opendp_sim.cli._run import AsJson, console, handled, plural, printed, refuse_usage
from opendp_sim.cli._stop import note_charge
from opendp_sim.cli._typed import typed_text
from opendp_sim.cli.output.quiet import hushed
from opendp_sim.cli.output.summary import show_first
from opendp_sim.core.errors import SimError, SpecError, came
from opendp_sim.dsl.files.write import unwritable
from opendp_sim.dsl.grammar.program import SourceRef
from opendp_sim.dsl.plan.plan import Plan, plan_file
from opendp_sim.dsl.plan.statements import tell
from opendp_sim.dsl.run.charge import refuse_unbegun
from opendp_sim.dsl.run.records import Applied
from opendp_sim.dsl.run.session import Served, answer_lines, read_batch, serve
from opendp_sim.io.file_spec import ENDINGS, kind_by_name

EXAMPLES = (
    ("one question, as the numbers of its feature columns in their order", '{"query": [0.1, 0.2]}'),
    ("the same, by column; a vector column is a list", '{"query": {"x": [0.1, 0.2]}, "id": 7}'),
    ("several, charged together", '{"queries": [[0.1, 0.2], [0.3, 0.4]]}'),
    (
        "what queries look like; before the first, if the spec has no queries",
        '{"reference": [[0.1, 0.2], [0.3, 0.4]]}',
    ),
    (
        "--updates: new records, with every column",
        '{"insert": [{"x": [0.1, 0.2], "kind": "a", "who": "p7"}]}',
    ),
    (
        "--updates: all records of a person, anew",
        '{"relabel": [{"x": [0.1, 0.2], "kind": "b", "who": "p7"}]}',
    ),
    ("--updates: all records of persons, gone", '{"delete": ["p7"]}'),
)
_COLUMNS = """Lines, where the features are `x: {dtype: "array[f64, 2]"}`, the label is `kind`, and
`who` names the person (updates need one: `role: privacy_id`):"""
_ANSWER = """An answer is {"label": "a", "count": 31, "votes": [12.5, 3.1], "deviation": 4.2}: votes
for each class in the order of its keys, and the deviation of their noise. Where the best vote leads
by no more than a few deviations, the records near the query have little left, or there are none.
"count" and "deviation" are null where nobody was counted for this answer (hybrid_knn, where class
means decide; private_knn counts nobody), a vote is null for a class that was not asked about.
{"ok": false} says that a reference was in force already, that none is needed, or that it had fewer
than two queries."""
_STORE = """A line has at most 1,048,576 characters, and "queries" and "reference" hold at most 4,096
rows: a longer line is refused and charges nothing; send several, or a file with `--batch`.
The store remembers what was charged. With a `ledger` in the spec a new store is charged
there, and an older copy of a store is refused; without one nobody counts stores: each is a budget
of its own."""


def session_lines() -> str:
    """Return what `session --help` says of the lines."""
    lines = "\n\n".join(f"{said}:\n\n    {line}" for said, line in EXAMPLES)
    columns, *rest = (" ".join(part.split()) for part in (_COLUMNS, _ANSWER, _STORE))
    return "\n\n".join([columns, lines, *rest])


_CHUNK = 256
_LONGEST, _MOST = 2**20, 2**12
"""Characters that a line may have; queries that it may hold: what one line costs is bounded."""
_UPDATES = ("insert", "relabel", "delete")


def session_command(
    spec: Annotated[Path, typer.Argument(help="A spec with an output that says `serve: session`.")],
    output: Annotated[
        str | None, typer.Option(help="Which output, when several are sessions.")
    ] = None,
    batch: Annotated[
        Path | None,
        typer.Option(
            help="Answer this file (.csv, .jsonl, .parquet, ...) instead of standard input."
        ),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="The session's store; default as the spec says.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Compare queries with records on `cuda`, or `cuda:1`, ..., an NVIDIA card (extra `gpu`)."
        ),
    ] = None,
    updates: Annotated[
        bool,
        typer.Option(
            "--updates", help="Take insert, relabel and delete lines too (for the curator)."
        ),
    ] = False,
    json_: AsJson = False,
) -> None:
    """Answer queries from private data, each charged, durably, before its answer leaves.

    The spec's run is made first if it was not: it writes all other outputs and charges the ledger once
    for everything (`opendp-sim apply` makes it too, signed or on an engine if you like).
    One JSON object a line on standard input, one answer a line on standard output; a line may hold an
    "id", which comes back. A fault is one line {"error": ...} and the session goes on.
    """
    with handled(as_json_text=json_):
        _check_streams(asks=batch is None)
        plan = plan_file(spec)
        refuse_unbegun(plan, str(spec))
        queries = None
        if batch is not None:
            ref = SourceRef(_kind(batch), str(batch))
            queries = read_batch(plan, output, ref)
        with progress("opening the session"):
            opened = serve(
                plan, output, store=store, device=device, charged=note_charge, ran=_say_run
            )
        with opened as served:
            if not json_:
                _show_open(plan, served, asks=queries is None)
            if queries is not None:
                _answer_file(served, queries)
            else:
                with typed_text(sys.stdin) as stream:
                    _converse(served, _lines(stream), sys.stdout, updates=updates)


def _say_run(done: Applied) -> None:
    """Print the files of the session's run on standard error."""
    for name, path in done.files.items():
        told = f"wrote     {path} ({name}), certificate {done.certificates[name].name}\n"
        sys.stderr.write(told)


def _show_open(plan: Plan, served: Served, *, asks: bool) -> None:
    """Print the first screen of a session on standard error."""
    if hushed():
        return
    said, answered = tell(plan), served.session.answered
    line = f"{plan.program.name}: {plural(answered, 'question')} answered so far"
    line += "" if served.planned is None else f", {served.planned:,} planned"
    opened = replace(said, plan=replace(said.plan, topic="open", line=line))
    then = f"one JSON line a question, as {EXAMPLES[0][1]}; Ctrl-D ends" if asks else None
    show_first(opened, then, console(error=True))


def _check_streams(*, asks: bool) -> None:
    """Refuse a session without input or output streams."""
    if sys.stdout is None:
        raise unwritable("standard output", "none", "nothing was charged: leave it open.")
    if asks and sys.stdin is None:
        raise refuse_usage(
            "lines on standard input", "none", "send them, or answer a file with --batch."
        )


def _kind(path: Path) -> str:
    kind = kind_by_name(path)
    if kind is None:
        raise SpecError(
            "OS304", "--batch", got=path.suffix,
            expected=f"a file {', '.join(ends[0] for ends in ENDINGS.values())}",
            hint="send JSON lines on standard input instead.",
        )  # fmt: skip
    return kind


def _answer_file(served: Served, queries: dict[str, Any]) -> None:
    """Answer all queries of a file, chunk by chunk."""
    total = len(next(iter(queries.values())))
    with progress("answering") as change:
        for start in range(0, total, _CHUNK):
            part = {name: column[start : start + _CHUNK] for name, column in queries.items()}
            answers = list(answer_lines(served.answers(part)))
            for answer in answers:
                _say(answer, sys.stdout)
            change(f"answering, {start + len(answers):,} of {total:,}", 0)


def _converse(served: Served, lines: Iterable[str], out: IO[str], *, updates: bool) -> None:
    for line in lines:
        if not line.strip():
            continue
        message: Any = None
        try:
            message = _read(line)
            answer = _reply(served, message, updates=updates)
        except SimError as error:
            answer = {
                "error": {
                    "code": error.code,
                    "where": error.where,
                    "expected": error.expected,
                    "got": came(error.got),
                    "hint": error.hint,
                }
            }
        if isinstance(message, dict) and "id" in message:
            answer = {"id": message["id"], **answer}
        _say(answer, out)


def _lines(stream: IO[str]) -> Iterator[str]:
    """Yield lines, cut where they are too long."""
    while line := stream.readline(_LONGEST + 2):
        yield line
        while line and not line.endswith("\n"):
            line = stream.readline(_LONGEST)


def _returns(name: Any) -> bool:
    """Return whether an "id" can be returned unchanged.

    JSON has no NaN and no infinity.
    """
    try:
        json.dumps(name, allow_nan=False)
    except (ValueError, RecursionError):
        return False
    return True


def _read(line: str) -> dict[str, Any]:
    if len(line.rstrip("\n")) > _LONGEST:
        raise _too_much(f"a line of at most {_LONGEST:,} characters", "a longer one")
    try:
        line.encode()  # bytes that are no text came in as lone surrogates
        message = loose_json(line)
    except (ValueError, RecursionError) as error:
        raise _unreadable(why_not(error).replace("a text", "a line", 1)) from None
    if not isinstance(message, dict) or not _returns(message.get("id")):
        raise _unreadable('another value, or an "id" that JSON cannot send back')
    return message


def _reply(served: Served, message: dict[str, Any], *, updates: bool) -> dict[str, Any]:
    body = {name: value for name, value in message.items() if name != "id"}
    if len(body) != 1:
        raise _unreadable(f"{len(body)} of them")
    ((what, value),) = body.items()
    if what in _UPDATES and not updates:
        raise _unreadable("an update, without `--updates`")
    if what in (*_UPDATES, "queries", "reference") and not (isinstance(value, list) and value):
        raise _unreadable(f'"{what}" without a list of something')
    if what in ("queries", "reference") and len(value) > _MOST:
        raise _too_much(f'at most {_MOST:,} rows in "{what}"', f"{len(value):,}")
    if what == "query":
        return next(answer_lines(served.ask([value])))
    if what == "reference":
        return {"ok": served.reference(value)}
    if what == "queries":
        return {"answers": list(answer_lines(served.ask(value)))}
    if what in _UPDATES:
        served.update(what, value)
        return {"ok": True}
    raise _unreadable("another word")


def _say(answer: dict[str, Any], out: IO[str]) -> None:
    """Write one answer as one line, at once."""
    with printed():
        out.write(json.dumps(answer, allow_nan=False) + "\n")
        out.flush()


def _unreadable(got: str) -> SimError:
    return SpecError(
        "OS304", "line", expected='an object with one of "query", "queries", "reference"'
        ' (with --updates also "insert", "relabel", "delete"), and perhaps "id"',
        got=got, hint='write {"query": [0.1, 0.2]}; `opendp-sim session --help` shows every form.',
    )  # fmt: skip


def _too_much(expected: str, got: str) -> SimError:
    return SpecError(
        "OS304", "line", expected=expected, got=got,
        hint="nothing was charged: send several lines, or answer a file with `--batch`.",
    )  # fmt: skip


session_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
session_app.command("session", epilog=session_lines())(session_command)
