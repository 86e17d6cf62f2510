"""``opendp-sim audit``: try to refute a spec, or any OpenDP object a module makes."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from opendp_sim.audit import Report, audit, to_sarif
from opendp_sim.audit.modules import makers
from opendp_sim.cli._audit_spec import Auditable, spec_claims, spec_subjects
from opendp_sim.cli._run import EXITS, AsJson, handled, say
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError
from opendp_sim.core.file_kinds import kind_of_file
from opendp_sim.core.shown import shown

__all__ = ["audit_command"]


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
        Literal["quick", "deep"], typer.Option(help="about 10 s, or about 2 min")
    ] = "quick",
    output: Annotated[Literal["text", "json", "sarif"], typer.Option("--format")] = "text",
    seed: Annotated[int, typer.Option(help="seed of the public search")] = 0,
    beta: Annotated[float, typer.Option(help="bound on the chance of a false alarm")] = 1e-3,
    json_: AsJson = False,
) -> None:
    """Say `refuted`, with a counterexample, or `not refuted`, with what would have been seen.

    An interactive release is asked by a default driver, and the report says what; `audit` in Python
    takes a driver of your own.

    Exit code 0: not refuted. 1: refuted, or a spec that `check` refuses as well. 2: wrong usage, or
    nothing there that can be audited.
    """
    output = "json" if json_ else output
    with handled(as_json_text=output == "json", exits=EXITS | {"OS5": 2}):
        distance = _number(d_in)
        subjects = _subjects(target, distance)
        share = beta / len(subjects)
        claims = spec_claims(Path(target), distance) if _is_spec(target) else {}
        reports = []
        for number, (name, obj, options) in enumerate(subjects, 1):
            typer.echo(shown(f"[{number}/{len(subjects)}] {name}"), err=True)
            found = audit(
                obj, distance, budget, seed=seed, beta=share, origin=shown(name), **options
            )
            reports.append(replace(found, claim=shown(claims.get(name, "")), shares=len(subjects)))
    say(_render(reports, output, target), lines=True, fold=False)
    raise typer.Exit(int(any(report.evidence is not None for report in reports)))


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


def _subjects(target: str, distance: Any) -> list[Auditable]:
    """Return what is audited, by name."""
    if _is_spec(target):
        return spec_subjects(Path(target), distance)
    module, colon, name = target.partition(":")
    if Path(target).is_file():
        raise _no_target(target)
    if module.replace(".", "").isidentifier() and not colon:
        return _whole_module(module, target)
    if not (module and colon and name):
        raise _no_target(target)
    dp.enable_features("contrib", "honest-but-curious")
    sys.path.insert(0, str(Path.cwd()))
    found = _imported(module, name)
    if isinstance(found, (dp.Transformation, dp.Measurement, dp.Odometer)) or not callable(found):
        return [(target, found, {})]
    return [(target, _made(found, target), {})]


def _is_spec(target: str) -> bool:
    return target.endswith((".yaml", ".yml"))


def _no_target(target: str) -> AuditError:
    named = kind_of_file(target)
    got = target if named.name == "missing" else f"{named.said}, at {target}"
    then = f"{named.then}; " if named.then and named.name != "missing" else ""
    return AuditError(
        "OS501", "audit.target", expected="a spec (*.yaml), a module, or module:factory", got=got,
        hint=f"{then}for example `opendp-sim audit my_package.mechanisms:noisy_count`.",
    )  # fmt: skip


def _whole_module(module: str, target: str) -> list[Auditable]:
    """Return every object that a module holds or makes."""
    dp.enable_features("contrib", "honest-but-curious")
    sys.path.insert(0, str(Path.cwd()))
    _imported(module, "__name__")
    found = makers(module)
    if not found:
        raise _unmade(
            target, "a module that holds or makes measurements", "none in it",
            "name factories make_..., without required arguments, or use module:factory.",
        )  # fmt: skip
    return [(f"{module}:{name}", _made(make, f"{module}:{name}"), {}) for name, make in found]


def _imported(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "") in module:
            raise _unmade(
                f"{module}:{name}",
                "an importable module",
                f"no module named {error.name}",
                "run from the folder the module is in, or install it.",
            ) from error
        if isinstance(error, AttributeError) and module in sys.modules:
            raise _unmade(
                f"{module}:{name}",
                "a name of that module",
                f"no {name} in it",
                "name a function without arguments, or an OpenDP object.",
            ) from error
        raise _unmade(
            f"{module}:{name}",
            "a module that imports",
            _place(error),
            "run it in Python to see why.",
        ) from error


def _made(factory: Any, target: str) -> Any:
    """Call the user's factory; what goes wrong in it is theirs to see, by kind and place."""
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise _unmade(
            target,
            "a factory that works without arguments",
            _place(error),
            "call it in Python to see the whole message.",
        ) from error


def _place(error: BaseException) -> str:
    """Return kind and place of an exception; its text could quote what the factory read."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename != __file__ and "importlib" not in f.filename]
    where = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return f"{type(error).__name__}{where}"


def _unmade(target: str, expected: str, got: str, hint: str) -> AuditError:
    return AuditError("OS501", target, expected=expected, got=got, hint=hint)


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
