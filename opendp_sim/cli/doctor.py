"""Define the curator's command ``doctor``, with the gate's effect on data."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path as File
from typing import Annotated

import typer

from opendp_sim.cli._progress import progress
from opendp_sim.cli._run import (
    AsJson,
    Params,
    SpecPath,
    console,
    handled,
    plain_table,
    read_parameters,
    refuse_usage,
    say,
    say_json,
)
from opendp_sim.cli._stop import note_written
from opendp_sim.dsl.files.write import check_writable
from opendp_sim.dsl.grammar.program import DataEntry
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.plan.text import yaml_text
from opendp_sim.dsl.run.doctor import Look, entries_of, look_at, mended_text
from opendp_sim.dsl.text.diagnostic import Refused

_FILES = 10
"""Files that are named on the screen, those that lose most first."""
_PRIVATE = "PRIVATE: exact numbers about records, for their curator alone; do not pass them on."


def doctor_command(
    spec: SpecPath,
    param: Params = None,
    private: Annotated[
        bool, typer.Option("--private-look", help="Yes: count exactly, and show it on this screen.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Write the mended spec here, beside the spec."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Count dropped and clamped records (private), and find a dialect.

    Behind a flag.

    The spec may have holes, but for the path of the file. Nothing is charged. What is printed has no
    privacy guarantee at all; a mended spec holds the form of the file alone.
    """
    with handled(as_json_text=json_):
        entries, folder = _entries(spec, param)
        if not private:
            raise refuse_usage(
                "--private-look",
                "a look at private data without it",
                "doctor counts records exactly: run it where only the data's curator can see it.",
            )
        target = _target(spec, output)
        with progress("looking at the data"):
            looks = look_at(entries, folder)
        by_name = {entry.name: entry for entry in entries}
        mended = {look.dataset: look.mended(by_name[look.dataset]) for look in looks}
        if target is not None:
            better = {look.dataset: mended[look.dataset] for look in looks if look.is_mended}
            text = mended_text(File(spec).read_text(encoding="utf-8"), better)
            target.write_text(text, encoding="utf-8")
            note_written(str(target))
        if json_:
            say_json({"private": True, "datasets": [asdict(e) for e in looks], "mended": mended})
            return
        say(_PRIVATE)
        for look in looks:
            _show(look)
            if look.is_mended:
                say("mended    its form only; bounds and keys are never taken from data:")
                say(yaml_text({look.dataset: mended[look.dataset]}), lines=True, fold=False)
        if target is not None:
            say(f"wrote {target}; fill in its ??? and run `opendp-sim plan {target}`")


def _entries(spec: str, param: list[str] | None) -> tuple[list[DataEntry], str]:
    """Return a plan's or spec's datasets and folder."""
    try:
        plan = plan_file(spec, read_parameters(param))
    except Refused:
        return entries_of(spec, read_parameters(param)), str(File(spec).parent)
    used = {release.typed.entry.name for release in plan.releases.values()}
    return [e for e in plan.program.data if e.name in used], plan.program.folder


def _target(spec: str, output: str | None) -> File | None:
    """Return the mended spec's path, beside the spec."""
    if output is None:
        return None
    target = File(output)
    if target.exists() or target.resolve().parent != File(spec).resolve().parent:
        raise refuse_usage(
            "a new file beside the spec", output, "its paths are relative to the spec's folder."
        )
    check_writable(target, "--output")
    return target


def _show(look: Look) -> None:
    say(f"dataset   {look.dataset}, ingest: {look.ingest}")
    for reason in look.found.reasons:
        say(f"found     {reason}")
    for question in look.found.asked:
        say(f"asked     {question}")
    for name, cells in look.found.examples.items():
        say(f"unread    column {name}, most often {', '.join(cells)}")
    if look.refused:
        say(f"refused   {look.refused}")
    if not look.refused:
        share = look.dropped / max(look.records, 1)
        does = {
            "enforce": "are dropped",
            "refuse": "end the run",
            "assume": "break what is assumed",
        }[look.ingest]
        if look.as_declared >= 0:
            say(f"declared  {look.as_declared:,} records {does} as the spec is now")
        say(f"records   {look.records:,}, of which {look.dropped:,} ({share:.1%}) {does}")
    lossy = sorted((f for f in look.files if f.dropped), key=lambda f: -f.dropped / f.records)
    for file in lossy[:_FILES]:
        share = file.dropped / file.records
        say(
            f"file      {file.name}: {file.dropped:,} of its {file.records:,} records ({share:.1%})"
        )
    if len(lossy) > _FILES:
        say(f"          and {len(lossy) - _FILES:,} files more; `--json` has all")
    rows = plain_table("column", "declared", "stored", "no value", "outside bounds", "rather")
    for column in look.columns:
        counts = ("-", "-") if look.refused else (f"{column.missing:,}", f"{column.clamped:,}")
        rows.add_row(column.name, column.declared, column.stored, *counts, column.better or "")
    console().print(rows)
