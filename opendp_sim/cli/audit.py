"""Audit a spec, or any OpenDP object, to refute it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from opendp_sim.audit import Report, audit
from opendp_sim.audit.module_objects import place_of
from opendp_sim.audit.report.report import worst_of
from opendp_sim.audit.report.sarif import failed_sarif, sarif_of
from opendp_sim.cli._audit_module import (
    ModuleTargets,
    PrintCounter,
    listening,
    module_members,
    of_factory,
    source_place,
)
from opendp_sim.cli._audit_spec import spec_claims, spec_subjects
from opendp_sim.cli._run import EXITS, AsJson, handled, plural, say
from opendp_sim.core.errors import AuditError, SimError
from opendp_sim.core.system.escape_text import escape
from opendp_sim.core.system.file_kinds import kind_of_file


@dataclass(frozen=True)
class _Asked:
    """What the command was told."""

    target: str
    distance: Any
    budget: str
    seed: int
    beta: float


def audit_command(
    target: Annotated[
        str,
        typer.Argument(
            help="a spec, module:factory (a callable or an object), or a module (all it makes)",
            metavar="TARGET",
        ),
    ],
    d_in: Annotated[str, typer.Option(help="input distance of the claim; 1 is one record")] = "1",
    budget: Annotated[
        Literal["quick", "deep"], typer.Option(help="about 10 CPU s an object, or about 2 min")
    ] = "quick",
    output: Annotated[Literal["text", "json", "sarif"], typer.Option("--format")] = "text",
    seed: Annotated[int, typer.Option(help="seed of the public search")] = 0,
    beta: Annotated[
        float, typer.Option(help="bound on the chance of a false alarm, which all objects share")
    ] = 1e-3,
    json_: AsJson = False,
) -> None:
    """Print `refuted` with a counterexample, `priced`, or `not refuted`.

    `priced` is a calculation that says the claim is wrong on one pair of datasets and that draws did
    not confirm: have a person look at it. The report has the power of the search.

    An interactive release is asked by a default driver, and the report says what; `audit` in Python
    takes a driver of your own. What the audited code prints is left out.

    Exit code 0: not refuted. 1: refuted, or a spec that `check` refuses as well. 2: wrong usage,
    nothing there that can be audited, an object of the module that could not be, or one whose
    releases all raise. 6: nothing refuted, but something priced.
    """
    told = "json" if json_ else output
    with handled(as_json_text=told == "json", exits=EXITS | {"OS5": 2}), _written(told):
        _one_format(output, as_json=json_)
        asked, heard = _Asked(target, _number(d_in), budget, seed, beta), PrintCounter()
        with listening(heard):
            found = _found(target, asked.distance)
        reports = _audited(asked, found, heard)
        if heard.lines:
            typer.echo(f"left out: {plural(heard.lines, 'line')} that the code printed", err=True)
        say(_render(reports, told, target, found), lines=True, fold=False)
    verdict = worst_of(reports)
    unsure = found.failed or any(report.empty for report in reports)
    raise typer.Exit(1 if verdict == "refuted" else 2 if unsure else 6 * (verdict == "priced"))


def _one_format(output: str, *, as_json: bool) -> None:
    if as_json and output == "sarif":
        raise AuditError(
            "OS501", "audit.format", expected="one format", got="--format sarif and --json",
            hint="leave one of them out.",
        )  # fmt: skip


@contextmanager
def _written(output: str) -> Iterator[None]:
    """Write SARIF even where nothing could be audited."""
    try:
        yield
    except SimError as error:
        if output == "sarif":
            say(failed_sarif(escape(str(error))), lines=True, fold=False)
        raise


def _audited(asked: _Asked, found: ModuleTargets, heard: PrintCounter) -> list[Report]:
    """Audit all; of a module, what cannot be audited hides nothing else."""
    count = len(found.subjects)
    share = asked.beta / count
    claims = spec_claims(Path(asked.target), asked.distance) if _is_spec(asked.target) else {}
    reports: list[Report] = []
    for number, (name, obj, options) in enumerate(found.subjects, 1):
        typer.echo(escape(f"[{number}/{count}] {name}"), err=True)
        try:
            with listening(heard):
                made = audit(
                    obj,
                    asked.distance,
                    asked.budget,
                    seed=asked.seed,
                    beta=share,
                    origin=escape(name),
                    **options,
                )
        except Exception as error:
            if not found.module or (number == count and not reports):
                raise
            why = (
                str(error)
                if isinstance(error, AuditError)
                else f"an error in the audit: {place_of(error)}"
            )
            found.left_out.append((name.partition(":")[2], why))
            found.failed += 1
            continue
        claim = claims.get(name, made.claim)
        reports.append(replace(made, claim=escape(claim), shares=count))
    return reports


def _number(text: str) -> Any:
    """Read a distance; what distance fits is for the audit to say."""
    try:
        number = float(text)
    except ValueError:
        raise AuditError(
            "OS501", "audit.d_in", expected="a positive number", got=text[:40],
            hint="for example `--d-in 1`, one record.",
        ) from None  # fmt: skip
    return int(number) if number.is_integer() else number


def _found(target: str, distance: Any) -> ModuleTargets:
    if _is_spec(target):
        if kind_of_file(target).name == "missing":
            raise _no_target(target)
        return ModuleTargets(list(spec_subjects(Path(target), distance)))
    module, colon, name = target.partition(":")
    if Path(target).is_file():
        raise _no_target(target)
    if module.replace(".", "").isidentifier() and not colon:
        return module_members(module)
    if not (module and colon and name):
        raise _no_target(target)
    return ModuleTargets([(target, of_factory(module, name, target), {})])


def _is_spec(target: str) -> bool:
    return target.endswith((".yaml", ".yml"))


def _no_target(target: str) -> AuditError:
    named = kind_of_file(target)
    missing = named.name == "missing"
    got = f"no file {target}" if missing and _is_spec(target) else target
    got = got if missing else f"{named.said}, at {target}"
    then = f"{named.then}; " if named.then and not missing else ""
    return AuditError(
        "OS501", "audit.target", expected="a spec (*.yaml), a module, or module:factory", got=got,
        hint=f"{then}for example `opendp-sim audit my_package.mechanisms:noisy_count`.",
    )  # fmt: skip


def _render(reports: list[Report], output: str, target: str, found: ModuleTargets) -> str:
    if output == "text":
        parts = [str(report) for report in reports]
        more = len(reports) > 1 or found.left_out
        return "\n\n".join([*parts, *([_summary(reports, found)] if more else [])])
    if output == "json":
        plain = {
            "verdict": worst_of(reports),
            "audits": [report.to_dict() for report in reports],
            "left_out": [{"name": name, "why": why} for name, why in found.left_out],
        }
        return json.dumps(plain, indent=2, sort_keys=True)
    places = [(target, 1) if _is_spec(target) else source_place(r.origin) for r in reports]
    return sarif_of(reports, places, target, found.left_out)


def _summary(reports: list[Report], found: ModuleTargets) -> str:
    """Say how many of what, and what was left out and why."""
    lines = [f"left out: {name}: {escape(why)}" for name, why in found.left_out]
    beta = sum(report.beta for report in reports)
    known = {report.verdict for report in reports} | {"refuted", "not refuted"}
    verdicts = [one for one in ("refuted", "priced", "not refuted") if one in known]
    counts = ", ".join(_counted(reports, verdict) for verdict in verdicts)
    out = f"; {len(found.left_out)} left out" if found.left_out else ""
    lines.append(f"{len(reports)} audited: {counts}{out}")
    if reports:
        lines.append(
            f"risk of a false alarm at most {beta:g} over all of them, {reports[0].beta:g} each"
        )
    return "\n".join(lines)


def _counted(reports: list[Report], verdict: str) -> str:
    """Return how many audits have a verdict, and which."""
    names = [r.origin or r.subject for r in reports if r.verdict == verdict]
    shown_names = f" ({', '.join(names)})" if names and verdict != "not refuted" else ""
    return f"{len(names)} {verdict}{shown_names}"
