"""``opendp-sim session``: JSON lines in, one answer a line out, charged before it leaves."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from opendp_sim.cli._run import handled
from opendp_sim.core.errors import SimError, SpecError
from opendp_sim.dsl.ir import SourceRef
from opendp_sim.dsl.plan import plan_file
from opendp_sim.dsl.serve import Served, read_batch, serve

__all__ = ["session_command"]

_CHUNK = 256
_UPDATES = ("insert", "relabel", "delete")


def session_command(
    spec: Annotated[Path, typer.Argument(help="A spec with an output that says `serve: session`.")],
    output: Annotated[
        str | None, typer.Option(help="Which output, when several are sessions.")
    ] = None,
    batch: Annotated[
        Path | None,
        typer.Option(
            help="Answer this file (.csv, .npz, .npy, .parquet) instead of standard input."
        ),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="The session's store; default as the spec says.")
    ] = None,
    updates: Annotated[
        bool,
        typer.Option(
            "--updates", help="Take insert, relabel and delete lines too (for the curator)."
        ),
    ] = False,
) -> None:
    r"""Answer queries from private data, each charged, durably, before its answer leaves.

    A line is `{"query": \[numbers]}`, `{"query": {"column": value}}` or `{"queries": \[...]}`, with an
    optional "id" that comes back; answers and errors are one JSON object a line.
    """
    with handled():
        plan = plan_file(spec)
        queries = None
        if batch is not None:
            ref = SourceRef(_kind(batch), str(batch))
            queries = read_batch(plan, output, ref)
        with serve(plan, output, store=store) as served:
            if queries is not None:
                _answer_file(served, queries)
            else:
                if isinstance(sys.stdin, io.TextIOWrapper):
                    sys.stdin.reconfigure(errors="surrogateescape")
                _converse(served, sys.stdin, sys.stdout, updates=updates)


def _kind(path: Path) -> str:
    kind = path.suffix.removeprefix(".")
    if kind not in ("csv", "npz", "npy", "parquet"):
        raise SpecError(
            "OS304", "--batch", expected="a file .csv, .npz, .npy or .parquet", got=path.suffix,
            hint="send JSON lines on standard input instead.",
        )  # fmt: skip
    return kind


def _answer_file(served: Served, queries: dict[str, Any]) -> None:
    """Answer all queries of a file, chunk by chunk, with a bar on standard error."""
    total = len(next(iter(queries.values())))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("answering", total=total)
        for start in range(0, total, _CHUNK):
            part = {name: column[start : start + _CHUNK] for name, column in queries.items()}
            answers = list(_plain(served.session.ask(part)))
            for answer in answers:
                _say(answer, sys.stdout)
            progress.advance(bar, len(answers))


def _converse(served: Served, lines: IO[str], out: IO[str], *, updates: bool) -> None:
    for line in lines:
        if not line.strip():
            continue
        message: Any = None
        try:
            message = _read(line)
            answer = _reply(served, message, updates=updates)
        except SimError as error:
            answer = {"error": {"code": error.code, "where": error.where,
                                "expected": error.expected, "hint": error.hint}}  # fmt: skip
        if isinstance(message, dict) and "id" in message:
            answer = {"id": message["id"], **answer}
        _say(answer, out)


def _returns(name: Any) -> bool:
    """Whether an "id" can be sent back as it came: JSON has no NaN and no infinity."""
    try:
        json.dumps(name, allow_nan=False)
    except (ValueError, RecursionError):
        return False
    return True


def _read(line: str) -> dict[str, Any]:
    try:
        line.encode()  # bytes that are no text came in as lone surrogates
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise _unreadable() from None
    if not isinstance(message, dict) or not _returns(message.get("id")):
        raise _unreadable()
    return message


def _reply(served: Served, message: dict[str, Any], *, updates: bool) -> dict[str, Any]:
    body = {name: value for name, value in message.items() if name != "id"}
    if len(body) != 1:
        raise _unreadable()
    (what, value), = body.items()  # fmt: skip
    if what == "query":
        return next(_plain(served.ask([value])))
    if what in ("queries", "reference") and isinstance(value, list) and value:
        if what == "reference":
            return {"ok": served.session.refer(served.queries(value))}
        return {"answers": list(_plain(served.ask(value)))}
    if what in _UPDATES and updates and isinstance(value, list):
        served.update(what, value)
        return {"ok": True}
    raise _unreadable()


def _plain(answers: Any) -> Iterator[dict[str, Any]]:
    for label, count, votes, deviation in zip(
        answers.labels, answers.counts, answers.votes, answers.deviations, strict=True
    ):
        yield {
            "label": label, "count": _whole(count), "votes": [_number(v) for v in votes],
            "deviation": _number(deviation),
        }  # fmt: skip


def _number(value: float) -> float | None:
    """Return a number as JSON knows it; nothing for a class that was not asked about."""
    return round(float(value), 6) if math.isfinite(value) else None


def _whole(count: Any) -> int | None:
    """Return a count; nothing where nobody was counted."""
    return None if math.isnan(count) else int(count)


def _say(answer: dict[str, Any], out: IO[str]) -> None:
    """Write one answer as one line, at once."""
    out.write(json.dumps(answer, allow_nan=False) + "\n")
    out.flush()


def _unreadable() -> SimError:
    return SpecError(
        "OS304", "line", expected='one of "query", "queries", "reference"'
        ' (with --updates also "insert", "relabel", "delete"), and perhaps "id"',
        got="another line", hint='write {"query": [0.1, 0.2]}.',
    )  # fmt: skip
