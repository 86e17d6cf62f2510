"""Find the auditable parts of a spec, with and without releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opendp_sim.accounting.claim_text import claim_sentence, who
from opendp_sim.accounting.composition import loss_text
from opendp_sim.audit.adversary.session_analyst import of_service
from opendp_sim.audit.claimed_distance import checked_distance
from opendp_sim.core import dp
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.core.claims import Interactive
from opendp_sim.core.errors import AuditError
from opendp_sim.dsl.plan.accountant import chain, prefix
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.types.records import Bound

Auditable = tuple[str, Any, dict[str, Any]]
"""Name, object, and further options of ``audit``."""


def spec_subjects(path: Path, d_in: Any = 1) -> list[Auditable]:
    """Return a spec's planned chains at distance ``d_in``, opening no data.

    Raises:
        AuditError: OS501, the spec releases nothing that a synthetic dataset can be made for.
    """
    plan = plan_file(str(path))
    found: list[Auditable] = []
    seen = set()
    for name, release in plan.releases.items():
        if release.bound is None:
            continue
        before = prefix(release.typed, release.bound.norm)
        typed = release.typed
        steps = typed.entry.name, tuple(s.mechanism for s in typed.stages), release.bound.norm
        if before is not None and steps not in seen:  # several releases may start from one chain
            seen.add(steps)
            found.append((f"{path}#{name} (before the noise)", before, {}))
        whole = chain(before, release.bound)
        options = _options(whole, before, release.bound, d_in)
        found.append((f"{path}#{name}", whole, options))
    if not found:
        raise AuditError(
            "OS501", "audit.spec", expected="a release", got="a spec without one that can be audited",
            hint="public data loses nothing, so there is no claim to refute.",
        )  # fmt: skip
    return found


def spec_claims(path: Path, d_in: Any = 1) -> dict[str, str]:
    """Return each part's claim by its audit's name, who and how much.

    Names are left out where the distance is not the program's own: its claim says nothing of it.
    """
    plan = plan_file(str(path))
    privacy = plan.privacy
    if privacy is None or privacy.unit.count != d_in:
        return {}
    whole = claim_sentence(plan.promised)
    whom = who(plan.promised["unit"])
    told: dict[str, str] = {}
    for name, release in plan.releases.items():
        if release.bound is None:
            continue
        if release.maps:
            far = up_text(release.maps[-1][1], 10)
            norm = (release.bound.norm or "").upper().replace("LINF", "L∞")
            told[f"{path}#{name} (before the noise)"] = (
                f"{whom}: what noise is added to changes by at most {far}"
                f"{f' ({norm} norm)' if norm else ''}"
            )
        own = loss_text(privacy.measure, tuple(release.loss))
        alone = tuple(release.loss) == tuple(plan.total)
        told[f"{path}#{name}"] = whole if alone else f"{own} for {whom}; the whole program: {whole}"
    return told


def _options(whole: dp.Measurement, before: Any, bound: Bound, d_in: Any) -> dict[str, Any]:
    """Return the audit's options for a chain."""
    claim: Any = bound.claim
    if isinstance(claim, Interactive):
        distance = checked_distance(whole.input_metric, d_in)
        grid: Any = bound.domain
        return {"drive": of_service(whole, grid, distance, priced=claim.priced, before=before)}
    if claim.core is None or claim.noise is None:
        return {}
    inner = claim.core
    core = inner if before is None else lambda data: inner(before(data))
    return {"core": core, "noise": claim.noise}
