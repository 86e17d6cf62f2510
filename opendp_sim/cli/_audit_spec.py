"""What of a spec can be audited: every release with everything before it, and what is before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from opendp_sim.core.claims import Interactive
from opendp_sim.core.errors import AuditError
from opendp_sim.dsl.accountant import chain, prefix
from opendp_sim.dsl.plan import plan_file

__all__ = ["Auditable", "spec_subjects"]

Auditable = tuple[str, Any, dict[str, Any]]
"""Name, object, and further options of ``audit``."""


def spec_subjects(path: Path) -> list[Auditable]:
    """Plan the spec and return its chains; no data of the spec is opened.

    Raises:
        AuditError: OS501, the spec releases nothing that a synthetic dataset can be made for.
    """
    plan = plan_file(str(path))
    found: list[Auditable] = []
    for name, release in plan.releases.items():
        if release.bound is None:
            continue
        before = prefix(release.typed, release.bound.norm)
        if before is not None:
            found.append((f"{path}#{name} (before the noise)", before, {}))
        claim = release.bound.claim
        if isinstance(claim, Interactive):
            typer.echo(
                f"not audited: {path}#{name}, an interactive release; audit it from Python with drive=",
                err=True,
            )
            continue
        options: dict[str, Any] = {}
        if claim.core is not None and claim.noise is not None:
            inner = claim.core
            options = {
                "core": inner if before is None else lambda x, b=before, i=inner: i(b(x)),
                "noise": claim.noise,
            }
        found.append((f"{path}#{name}", chain(before, release.bound), options))
    if not found:
        raise AuditError(
            "OS501", "audit.spec", expected="a release", got="a spec without one that can be audited",
            hint="interactive releases are audited from Python, with drive=.",
        )  # fmt: skip
    return found
