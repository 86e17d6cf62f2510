"""``doctor``: for the curator alone, what the gate would do to the data; behind a flag."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from opendp_sim.cli._run import (
    AsJson,
    Params,
    SpecPath,
    console,
    handled,
    parameters,
    refuse_usage,
    say,
    say_json,
    table,
)
from opendp_sim.dsl.grammar.program import DataEntry
from opendp_sim.dsl.plan.plan import Plan, plan_file
from opendp_sim.dsl.plan.text import yaml_text
from opendp_sim.dsl.run.doctor import Look, doctor

_PRIVATE = "PRIVATE: exact numbers about records, for their curator alone; do not pass them on."


def doctor_command(
    spec: SpecPath,
    param: Params = None,
    private: Annotated[
        bool, typer.Option("--private-look", help="Yes: count exactly, and show it on this screen.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """PRIVATE: count what the gate would drop and clamp, and guess the declaration; behind a flag.

    Nothing is charged and nothing is written. What is printed has no privacy guarantee at all.
    """
    with handled(as_json_text=json_):
        plan = plan_file(spec, parameters(param))
        if not private:
            raise refuse_usage(
                "--private-look",
                "a look at private data without it",
                "doctor counts records exactly: run it where only the data's curator can see it.",
            )
        looks = doctor(plan)
        mended = {look.dataset: look.mended(_entry(plan, look.dataset)) for look in looks}
        if json_:
            say_json({"private": True, "datasets": [asdict(e) for e in looks], "mended": mended})
            return
        say(_PRIVATE)
        for look in looks:
            _show(look)
            if look.delimiter is not None or any(c.better for c in look.columns):
                say("mended    its form only; bounds and keys are never taken from data:")
                say(yaml_text({look.dataset: mended[look.dataset]}), lines=True, fold=False)


def _entry(plan: Plan, name: str) -> DataEntry:
    return next(entry for entry in plan.program.data if entry.name == name)


def _show(look: Look) -> None:
    say(f"dataset   {look.dataset}, ingest: {look.ingest}")
    if look.delimiter is not None:
        say(f"delimiter the header fits {look.delimiter!r}, which the spec does not say")
    if look.refused:
        say(f"refused   {look.refused}")
    if not look.refused:
        share = look.dropped / max(look.records, 1)
        does = {
            "enforce": "are dropped",
            "refuse": "end the run",
            "assume": "break what is assumed",
        }[look.ingest]
        say(f"records   {look.records:,}, of which {look.dropped:,} ({share:.1%}) {does}")
    rows = table("column", "declared", "stored", "no value", "outside bounds", "rather")
    for column in look.columns:
        counts = ("-", "-") if look.refused else (f"{column.missing:,}", f"{column.clamped:,}")
        rows.add_row(column.name, column.declared, column.stored, *counts, column.better or "")
    console().print(rows)
