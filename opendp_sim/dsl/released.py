"""The releases of a plan: what each one releases before noise, and the release itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opendp_sim.accounting.release import Release
from opendp_sim.core.claims import Noise, Private, Stable
from opendp_sim.core.errors import InternalError
from opendp_sim.core.guard import guarded
from opendp_sim.dsl.certify import claim_about
from opendp_sim.dsl.inputs import Inputs
from opendp_sim.dsl.plan import Plan
from opendp_sim.dsl.release_plan import ReleasePlan
from opendp_sim.sources.fold import build_sketch, collect_rows, fold_whole
from opendp_sim.spaces.records import Records

__all__ = ["data_of", "released"]

Told = Callable[[str, int], None]


def released(
    plan: Plan, inputs: Inputs, sums: Mapping[str, Any], workers: int | None, told: Told
) -> dict[str, Any]:
    """Make every release, from its sum where that was made already."""
    return {
        name: _release(
            plan,
            release,
            sums[name] if name in sums else data_of(release, inputs, workers, told),
            told,
        )
        for name, release in plan.releases.items()
    }


def data_of(release: ReleasePlan, inputs: Inputs, workers: int | None, told: Told) -> Any:
    """Return what is released, before noise: a sum, a fold, or all rows."""
    typed = release.typed
    blocks = inputs.blocks[typed.entry.name]
    last = typed.stages[-1].claim if typed.stages else None
    if isinstance(last, Stable) and last.accumulate is not None:
        told("building", 0)
        return build_sketch(
            typed.stages, blocks, workers=workers, on_block=lambda rows: told("building", rows)
        )
    if isinstance(last, Stable) and last.fold is not None:
        told("building", 0)
        return fold_whole(
            typed.stages, blocks, workers=workers, on_block=lambda rows: told("building", rows)
        )
    if isinstance(typed.domain, Records):
        raise InternalError(
            "OS903",
            typed.name,
            expected="a stage that ends in rows or a sketch",
            got="records",
            hint="put `select` or a sketch before the release.",
        )
    return collect_rows(typed.stages, blocks)


def _release(plan: Plan, release: ReleasePlan, data: Any, told: Told) -> Any:
    claim = release.bound.claim if release.bound is not None else None
    told("releasing", 0)
    if isinstance(claim, Private):
        assert release.record is not None  # noqa: S101 - a claim has a record
        data = guarded(claim.function, release.record.key)(data)
    noise: Noise | None = getattr(claim, "noise", None)
    stages = release.asked_stages
    return (
        data
        if stages is None
        else Release.of_sketch(stages, data, noise, claim_about(plan, release))
    )
