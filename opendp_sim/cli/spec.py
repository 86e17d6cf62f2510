"""Commands about a spec: ``check``, ``types``, ``plan``, ``apply``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path as File
from typing import Annotated

import typer

from opendp_sim.cli._run import (
    AsJson,
    Params,
    SpecPath,
    console,
    counted,
    handled,
    parameters,
    progress,
    say,
    say_json,
)
from opendp_sim.cli.show_comparison import show_comparison
from opendp_sim.cli.show_plan import show_plan, show_types
from opendp_sim.dsl.advice import advice
from opendp_sim.dsl.compare import compare, refuse_private
from opendp_sim.dsl.execute import Applied, apply
from opendp_sim.dsl.plan import plan_file
from opendp_sim.dsl.plan_document import is_plan, load_plan, save_plan
from opendp_sim.dsl.standing import standing
from opendp_sim.dsl.write import check_writable

__all__ = ["apply_command", "check_command", "plan_command", "types_command"]


def check_command(spec: SpecPath, param: Params = None, json_: AsJson = False) -> None:
    """Parse, type and account a spec; no data is opened."""
    with handled(as_json_text=json_):
        plan = plan_file(spec, parameters(param))
        if json_:
            say_json({"errors": [], "program": plan.program.hash})
        else:
            say(f"{spec}: fine; {counted(len(plan.types), 'stage')}, "
                f"{counted(len(plan.outputs), 'output')}, program {plan.program.hash[:16]}")  # fmt: skip


def types_command(spec: SpecPath, param: Params = None, json_: AsJson = False) -> None:
    """Print the type of every stage."""
    with handled(as_json_text=json_):
        plan = plan_file(spec, parameters(param))
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
    json_: AsJson = False,
) -> None:
    """Print every type, loss, scale, conversion and expected error; no data is opened."""
    with handled(as_json_text=json_):
        plan = plan_file(spec, parameters(param))
        if output is not None:
            check_writable(File(output), "--output")
        if json_:
            say_json(plan.plain() | {"ledger": standing(plan), "advice": advice(plan)})
        else:
            show_plan(plan, console())
        if output is not None:
            save_plan(plan, output)


def apply_command(
    spec: Annotated[str, typer.Argument(help="A spec, or a plan written by `plan -o`.")],
    param: Params = None,
    into: Annotated[
        str | None, typer.Option(help="Folder that outputs are saved under; default the spec's.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Threads that build sketches.")] = 1,
    compared: Annotated[
        bool, typer.Option("--compare", help="Also compare with exact answers; public data only.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Run a spec, or exactly the plan in a plan document, and write outputs and certificates."""
    with handled(as_json_text=json_):
        if is_plan(spec):
            if param:
                raise typer.BadParameter("a plan document has its parameters already")
            plan = load_plan(spec)
        else:
            plan = plan_file(spec, parameters(param))
        if compared:
            refuse_private(plan)
        if not json_:
            show_plan(plan, console(), only=False)
        with progress() as told:
            done = apply(plan, into=into, workers=workers, told=told)
        found = compare(done) if compared else []
        if json_:
            say_json(_plain(done) | {"comparison": [asdict(one) for one in found]})
            return
        say("")
        for name, path in done.files.items():
            say(f"wrote     {path} ({name}), certificate {done.certificates[name].name}")
        if done.spent is not None:
            say(f"ledger    spent {done.spent}; left {done.left}")
        for one in found:
            show_comparison(one)


def _plain(done: Applied) -> dict[str, object]:
    return {
        "plan": done.plan.plain(),
        "files": {name: str(path) for name, path in done.files.items()},
        "certificates": {name: str(path) for name, path in done.certificates.items()},
        "ledger": None if done.charge is None else {
            "entry": done.charge.seq, "head": done.charge.hash, "spent": done.spent,
            "left": done.left,
        },
    }  # fmt: skip
