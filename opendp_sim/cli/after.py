"""Run commands after a release, ``answer``, ``verify`` and ``ledger``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path as File
from typing import Annotated, Any

import numpy as np
import typer

from opendp_sim.accounting.ledger._entries import counting_entries as counted_entries
from opendp_sim.accounting.ledger.history import REFUSALS
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.cli._progress import progress
from opendp_sim.cli._run import (
    AsJson,
    Force,
    Params,
    console,
    handled,
    plural,
    refuse_usage,
    say,
    say_json,
)
from opendp_sim.cli._stop import note_written
from opendp_sim.cli.apply import read_plan
from opendp_sim.dsl.files.write import answer_table, formula_note, write_output
from opendp_sim.dsl.run.answer import answer_notes, ask, reference
from opendp_sim.dsl.run.charge import begin_ledger
from opendp_sim.dsl.run.overwrite import check_target, kept_of
from opendp_sim.dsl.types.error_terms import NEGATIVE
from opendp_sim.dsl.verification.derivation import derivation
from opendp_sim.dsl.verification.report import ASSUMED, conclusion
from opendp_sim.dsl.verification.verify import load_checked, verify

_SHOWN = 10
_NEVER_BELOW = frozenset({"count", "density", "distance", "records", "votes"})
"""Columns whose numbers are never below 0 but for noise."""


def answer_command(
    release: Annotated[str, typer.Argument(help="A release that `apply` saved (.npz).")],
    post: Annotated[
        list[str], typer.Option(help="A query mechanism, as in a spec; may be repeated in order.")
    ],
    queries: Annotated[
        str | None,
        typer.Option(
            "--queries",
            "--query",
            help="Public queries: a file, or a built-in dataset; some questions need none.",
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(help="Public points, for a query with `public: points`: a file, or built in."),
    ] = None,
    save: Annotated[
        str | None, typer.Option("--output", "-o", "--save", help="Write .csv, .json or .npz.")
    ] = None,
    force: Force = False,
    spreadsheet: Annotated[
        bool,
        typer.Option(
            "--spreadsheet",
            help="Change texts of a .csv that a spreadsheet would run: an apostrophe before formulas, "
            "control characters escaped.",
        ),
    ] = False,
    json_: AsJson = False,
) -> None:
    """Answer public queries from a saved release.

    No data, no further loss.
    """
    with handled(as_json_text=json_):
        if save is not None and not save.endswith((".csv", ".json", ".npz")):
            raise refuse_usage(
                "--output ending in .csv, .json or .npz", save, "choose one of them."
            )
        if spreadsheet and not (save or "").endswith(".csv"):
            raise refuse_usage(
                "--spreadsheet with --output of a .csv", save or "no file", "leave it out."
            )
        if save is not None:
            named = (("the queries", queries), ("the public points", public))
            given = [(what, File(text)) for what, text in named if text is not None]
            check_target(File(save), chain(kept_of(release), given), force=force)
        opened = [None if text is None else reference(text) for text in (queries, public)]
        loaded = load_checked(release)
        with progress("answering"):
            found, domain, asked = ask(loaded, opened[0], post, opened[1])
        answers = _beside(asked, found)
        notes = answer_notes(loaded, opened[0], post, found, opened[1])
        if save is not None:
            write_output(File(save), answers, domain, spreadsheet=spreadsheet)
            note_written(save)
            notes = [*notes, *filter(None, [formula_note(File(save))])]
            if json_:
                say_json({"wrote": save} | ({"notes": notes} if notes else {}))
            else:
                say(f"wrote     {save}")
                _say_notes(notes)
            return
        names, rows = answer_table(answers, getattr(domain, "labels", None))
        if json_:
            say_json({"columns": names, "rows": rows} | ({"notes": notes} if notes else {}))
            return
        say("\t".join(names))
        for row in rows[:_SHOWN]:
            say("\t".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in row))
        if len(rows) > _SHOWN:
            say(f"... {len(rows) - _SHOWN} more; -o FILE writes them all")
        if _negative(names, rows[:_SHOWN]):
            say(NEGATIVE)
        _say_notes(notes)


def _say_notes(notes: Sequence[str]) -> None:
    for text in notes:
        say(f"note      {text}")


def _negative(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether noise alone made a shown answer negative."""
    places = [at for at, name in enumerate(names) if name.partition(":")[0] in _NEVER_BELOW]
    return any(isinstance(row[at], float | int) and row[at] < 0 for row in rows for at in places)


def _beside(asked: Mapping[str, Any], answers: Any) -> Any:
    """Return answers beside their queries' columns."""
    held = answers if isinstance(answers, Mapping) else {"answer": answers}
    sizes = {len(np.atleast_1d(column)) for column in held.values()}
    if sizes != {len(column) for column in asked.values()}:
        return answers
    told = {name if name not in held else f"query_{name}": v for name, v in asked.items()}
    return told | dict(held)


def verify_command(
    certificate: Annotated[str, typer.Argument(help="A file that ends in .certificate.json.")],
    spec: Annotated[str | None, typer.Option(help="The spec that it should be about.")] = None,
    ledger: Annotated[
        str | None, typer.Option(help="The ledger; default where the program's paths put it.")
    ] = None,
    signer: Annotated[
        str | None, typer.Option(help="The curator's public key (PEM); demands a signature by it.")
    ] = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="Show the derivation, number by number.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Verify a certificate.

    Derive every number again, compare every part, and list the parts that cannot be checked.
    """
    with handled(as_json_text=json_):
        with progress("verifying"):
            checked, left = verify(certificate, spec, ledger=ledger, signer=signer)
            derived = derivation(certificate) if explained else []
        if json_:
            more = {"derivation": derived} if explained else {}
            say_json(
                {"checked": checked, "not_checked": left, "verdict": conclusion(spec, left), **more}
            )
            return
        for text in derived:
            say(f"derived      {text}")
        for text in checked:
            say(f"checked      {text}")
        for text in left:
            if not text.startswith(ASSUMED):
                say(f"not checked  {text}")
        for text in left:
            if text.startswith(ASSUMED):
                say(f"assumed      {text.removeprefix(ASSUMED)}")
        say(f"verdict      {conclusion(spec, left)}")


ODOMETER = (
    "note      the claim is the limit: a sum that was read at a moment chosen after seeing "
    "answers is no Gaussian DP claim of its own"
)
"""Lemma 6 of ``privacy_filter.md`` is about a limit that was stated in advance."""

ledger_app = typer.Typer(name="ledger", no_args_is_help=True, help="Read a ledger, or begin one.")


@ledger_app.command("show")
def ledger_show(
    file: Annotated[str, typer.Argument(help="A ledger file.")], json_: AsJson = False
) -> None:
    """Print every charge, what was spent and what is left."""
    with handled(as_json_text=json_), Ledger.open(file) as ledger:
        total = ledger.total()
        if json_:
            say_json(
                {
                    "terms": ledger.terms.plain(),
                    "anew": ledger.anew,
                    "head": ledger.head,
                    "entries": [{"seq": e.seq, "hash": e.hash, **e.body} for e in ledger.entries],
                    "spent": list(total.loss),
                    "epsilon": total.epsilon,
                    "left": total.left,
                    "promised": "limit",
                }
            )
            return
        if ledger.anew is not None:
            say(
                f"anew      begun on {ledger.anew} in place of a lost ledger, whose charges are forgotten"
            )
        say(f"limit     {total.limit_text}, {ledger.terms.measure}, {ledger.terms.unit}")
        for line in _losses(ledger):
            say(line)
        if refused := ledger.refusals():
            formed = ledger.refusals(enforced=True)
            own = f", {formed} of at most {REFUSALS} under `ingest: enforce`" if formed else ""
            say(f"refused   {refused} of at most {REFUSALS} runs that the data may refuse{own}")
        say(f"spent     {total.text}")
        say(f"left      {total.left_text}")
        if ledger.terms.measure == "gdp":
            say(ODOMETER)


def _losses(ledger: Ledger) -> Iterator[str]:
    """Yield a line for every entry whose loss counts."""
    finished = {e.body["of"] for e in ledger.entries if e.kind == "outcome"}
    opened = {e.body["store"] for e in ledger.entries if e.kind == "session"}
    for entry, charge in zip(counted_entries(ledger.entries), ledger.charges, strict=True):
        ended = (
            entry.seq in finished
            or "dataset" not in entry.body  # an estimator's fit writes none
            or entry.body.get("store") in opened  # a session or a stream goes on
        )
        state = "" if ended else "  (no outcome: it counts all the same)"
        if entry.kind == "reserve":
            state = "  (reserved by a run that did not end: no outcome, it counts all the same)"
        about: dict[str, Any] = entry.body
        if (answered := ledger.answered_of(entry)) is not None:
            state = f"  {answered:,} answered{state}"
        yield (
            f"  {entry.seq:>4}  {about['time']}  {charge.text}  "
            f"{about.get('name', '')}  {str(about.get('program', ''))[:16]}{state}"
        )


@ledger_app.command("new")
def ledger_new(
    spec: Annotated[str, typer.Argument(help="A spec, or a plan written by `plan -o`.")],
    param: Params = None,
    into: Annotated[
        str | None, typer.Option(help="Folder that outputs are saved under; default the spec's.")
    ] = None,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Begin where one was lost: what it was charged is forgotten."
        ),
    ] = False,
    json_: AsJson = False,
) -> None:
    """Create the ledger of a spec, once, before the first `apply`."""
    with handled(as_json_text=json_):
        plan, into = read_plan(spec, param, into)
        path, known = begin_ledger(plan, None if into is None else File(into), forget=forget)
        note_written(path)
        if json_:
            say_json({"begun": str(path), "forgotten": known or None})
            return
        say(f"begun     {path}")
        if known:
            say(
                f"forgotten whatever was charged before, though {known}; no total counts it any more"
            )


@ledger_app.command("verify")
def ledger_verify(
    file: Annotated[str, typer.Argument(help="A ledger file.")],
    head: Annotated[
        str | None,
        typer.Option(help="A head that a certificate recorded; it must be in the chain."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Check the hash chain from the first entry to the head."""
    with handled(as_json_text=json_), Ledger.open(file) as ledger:
        count = ledger.verify(head)
        if json_:
            say_json({"entries": count, "head": ledger.head})
        else:
            console().print(
                f"{file}: {plural(count, 'entry', 'entries')}, unbroken; head {ledger.head}",
                soft_wrap=True,
            )
            if head is None:
                say(
                    "an older copy of the whole file cannot be distinguished from it: give --head HASH "
                    "from a certificate"
                )
