"""Run commands that open no data, ``check``, ``types``, ``plan``."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path as File
from typing import Annotated, Any

import typer

from opendp_sim.cli._progress import progress
from opendp_sim.cli._run import (
    AsJson,
    Force,
    Params,
    SpecPath,
    console,
    handled,
    plural,
    read_parameters,
    say,
    say_json,
)
from opendp_sim.cli.output.folding import folded
from opendp_sim.cli.output.plan import show_plan, show_types
from opendp_sim.cli.output.quiet import hushed
from opendp_sim.cli.output.summary import next_command, show_advice, show_first
from opendp_sim.core.system.escape_text import escape
from opendp_sim.dsl.files.paths import absent
from opendp_sim.dsl.plan.advice import advice, advised_of
from opendp_sim.dsl.plan.error_units import unit_of_answers
from opendp_sim.dsl.plan.plan import Plan, plan_file
from opendp_sim.dsl.plan.statements import tell
from opendp_sim.dsl.run.charge import standing
from opendp_sim.dsl.types.error_terms import WITHIN, as_predicted, wide


def check_command(spec: SpecPath, param: Params = None, json_: AsJson = False) -> None:
    """Parse, type and account a spec; no data is opened."""
    with handled(as_json_text=json_):
        plan = plan_file(spec, read_parameters(param))
        if json_:
            say_json(
                {"errors": [], "program": plan.program.hash, "advice": advised_of(plan)}
                | ({"absent": gone} if (gone := absent(plan.program)) else {})
            )
        else:
            say(
                f"{spec}: fine; {plural(len(plan.types), 'stage')}, "
                f"{plural(len(plan.outputs), 'output')}, program {plan.program.hash[:16]}"
            )
            show_advice(advised_of(plan), console())
            _say_notes(plan)


def types_command(spec: SpecPath, param: Params = None, json_: AsJson = False) -> None:
    """Print the type of every stage."""
    with handled(as_json_text=json_):
        plan = plan_file(spec, read_parameters(param))
        if json_:
            say_json(plan.plain()["stages"])
        else:
            show_types(plan, console())


def plan_command(
    spec: SpecPath,
    param: Params = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Write the plan as a document for `apply`.")
    ] = None,
    force: Force = False,
    like: Annotated[
        str | None,
        typer.Option(
            help="Public points that look like the data: a file, or a built-in dataset. For outputs of "
            "`density` and `distance` with `queries:`, without classes."
        ),
    ] = None,
    size: Annotated[
        int,
        typer.Option(min=1, max=10**12, help="With --like: a public guess of how many records."),
    ] = 1000,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also every type, map, loss and scale.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Print a plan's protection and errors.

    No private data is opened.
    """
    with handled(as_json_text=json_):
        with progress("planning") as change:
            plan = plan_file(spec, read_parameters(param))
            change("predicting errors", 0)
            told = {} if like is None else _predicted(plan, like, size)
        if output is not None:
            from opendp_sim.dsl.run.overwrite import check_target, kept_of  # noqa: PLC0415 - for `-o` only

            check_target(File(output), kept_of(spec), force=force)
        if json_:
            ledger = standing(plan)
            plain = plan.plain() | {"ledger": ledger and ledger.plain(), "advice": advice(plan)}
            plain["forecast"] = {name: one.plain() for name, one in plan.forecast().items()}
            each = {name: asdict(parts) | {"total": parts.total} for name, parts in told.items()}
            say_json(plain | ({"predicted": each} if each else {}))
        else:
            first = {
                name: as_predicted(parts.total, parts.noise, size, unit_of_answers(plan, name))
                for name, parts in told.items()
            }
            found = standing(plan)
            said, out = tell(plan, ledger=found, predicted=first), console()
            show_first(said, next_command(plan, said, spec, found), out, whole=verbose)
            _say_notes(plan)
            show_advice(said.advice, out, whole=verbose)
            if verbose:
                out.print()
                show_plan(plan, out)
            for name, parts in told.items():
                say(
                    f"predicted {name}: {WITHIN} within ±{wide(parts.total)} of about {size:,} records; "
                    f"each alone: noise ±{wide(parts.noise)}, sampling ±{wide(parts.sampling)}, grid "
                    f"and maps ±{wide(parts.maps)}, bias ±{wide(parts.bias)}"
                    f"{_too_few(parts.least, size)}"
                )
        if output is not None:
            _save(plan, output)


def _say_notes(plan: Plan) -> None:
    if plan.solved:
        say(f"solved   {plan.solved}")
    for text in absent(plan.program):
        say(f"note     {text}")


def _too_few(least: float, size: int) -> str:
    """Say what means of fewer records than their divisor's floor are."""
    few = f"{math.ceil(least):,} records cannot be distinguished from noise"
    return f"; fewer than {few}: answers are pulled to 0" if size < least else ""


def _predicted(plan: Plan, like: str, size: int) -> dict[str, Any]:
    from opendp_sim.dsl.run.answer import reference  # noqa: PLC0415 - for `--like` only
    from opendp_sim.dsl.run.predict import predict_errors  # noqa: PLC0415

    return predict_errors(plan, reference(like), size)


def _save(plan: Plan, output: str) -> None:
    from opendp_sim.dsl.plan.document import outputs_of_plan, save_plan  # noqa: PLC0415 - for `-o` only

    save_plan(plan, output)
    if (own := outputs_of_plan(output, plan)) is not None and not hushed():
        typer.echo(
            folded(
                escape(
                    f"note: `opendp-sim apply {output}` saves its outputs under {own}, the plan's own "
                    "folder; the spec, its data and its ledger stay where they are"
                ),
                console(error=True).width,
            ),
            err=True,
        )
