"""``opendp-sim audit``: try to refute a spec, or any OpenDP object a module makes."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import opendp.prelude as dp
import typer

from opendp_sim.audit import Report, audit, to_sarif
from opendp_sim.cli._audit_spec import Auditable, spec_subjects
from opendp_sim.cli._run import handled
from opendp_sim.core.errors import AuditError

__all__ = ["audit_command"]


def audit_command(
    target: Annotated[
        str, typer.Argument(help="a spec, or module:factory (a callable or an object)")
    ],
    d_in: Annotated[float, typer.Option(help="input distance of the claim")] = 1,
    budget: Annotated[
        Literal["quick", "deep"], typer.Option(help="about 10 s, or about 2 min")
    ] = "quick",
    output: Annotated[Literal["text", "json", "sarif"], typer.Option("--format")] = "text",
    seed: Annotated[int, typer.Option(help="seed of the public search")] = 0,
    beta: Annotated[float, typer.Option(help="bound on the chance of a false alarm")] = 1e-3,
) -> None:
    """Say `refuted`, with a counterexample, or `not refuted`, with what would have been seen.

    Exit code 0: not refuted; 1: refuted, or nothing that can be audited; 2: wrong usage.
    """
    distance: Any = int(d_in) if d_in == int(d_in) else d_in
    with handled(as_json_text=output == "json"):
        subjects = _subjects(target)
        share = beta / len(subjects)
        reports = []
        for number, (name, obj, options) in enumerate(subjects, 1):
            typer.echo(f"[{number}/{len(subjects)}] {name}", err=True)
            reports.append(
                audit(obj, distance, budget, seed=seed, beta=share, origin=name, **options)
            )
    typer.echo(_render(reports, output, target))
    raise typer.Exit(int(any(report.evidence is not None for report in reports)))


def _subjects(target: str) -> list[Auditable]:
    """Return what is audited, by name."""
    if target.endswith((".yaml", ".yml")):
        return spec_subjects(Path(target))
    module, colon, name = target.partition(":")
    if not colon:
        raise AuditError(
            "OS501", "audit.target", expected="a spec (*.yaml) or module:factory", got=target,
            hint="for example `opendp-sim audit my_package.mechanisms:noisy_count`.",
        )  # fmt: skip
    dp.enable_features("contrib", "honest-but-curious")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise AuditError(
            "OS501", "audit.target", expected="an importable module with that name in it", got=target,
            hint="run from the folder the module is in, or install it.",
        ) from error  # fmt: skip
    made = isinstance(found, (dp.Transformation, dp.Measurement, dp.Odometer))
    return [(target, found if made or not callable(found) else found(), {})]


def _render(reports: list[Report], output: str, target: str) -> str:
    if output == "text":
        return "\n".join(str(report) for report in reports)
    if output == "json":
        parts = [report.to_dict() for report in reports]
        verdict = "refuted" if any(r.evidence is not None for r in reports) else "not refuted"
        return json.dumps({"verdict": verdict, "audits": parts}, indent=2, sort_keys=True)
    merged = json.loads(to_sarif(reports[0], _file(target)))
    for report in reports[1:]:
        merged["runs"] += json.loads(to_sarif(report, _file(target)))["runs"]
    return json.dumps(merged, indent=2)


def _file(target: str) -> str:
    return (
        target
        if target.endswith((".yaml", ".yml"))
        else target.partition(":")[0].replace(".", "/") + ".py"
    )
